//===- KernelEmitter.cpp - One attention to one attn.kernel ---------------===//
//
// Sizes first (declared, set, and bound by the parameters' shapes), then the statements in
// order, then the outputs.
//
//===----------------------------------------------------------------------===//

#include "KernelEmitter.h"
#include "Lexer.h"
#include "Parser.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/Support/FormatVariadic.h"

#include <cmath>

using namespace mlir;
using namespace attn;
using namespace attn::language;
using llvm::formatv;
using llvm::StringRef;

static bool isFloatDtype(StringRef dtype) { return llvm::is_contained({"f64", "f32", "f16", "bf16"}, dtype); }

namespace {

class KernelEmitter {
public:
  KernelEmitter(const Kernel &kernel, const FunctionTable &functions, const LanguageOptions &options,
                OpBuilder &builder, const llvm::SourceMgr &sources, Diagnostics &diagnostics)
      : kernel(kernel), options(options), builder(builder), sources(sources), diagnostics(diagnostics),
        resolver(builder.getContext(), diagnostics, functions) {
    resolver.setStatements(kernel.statements);
  }

  void run(const File &file, std::vector<std::string> &knownSizes) {
    for (const Function &function : file.functions)
      resolver.resolveFunction(function);
    declareSizes();
    declareParameters();
    for (StringRef name : resolver.sizeNames())
      knownSizes.push_back(name.str());
    checkSizesCanBeFound();
    createKernel();
    resolver.collectRanges(kernel.statements);
    for (const Statement &statement : kernel.statements)
      emitStatement(statement);
    emitReturn();
    recordChecks();
  }

private:
  // --- Sizes and parameters -------------------------------------------------------------------

  void declareSizes() {
    for (const DeclaredSize &size : kernel.sizes) {
      if (resolver.hasSize(size.name)) {
        diagnostics.error(size.name, formatv("size `{0}` is declared twice", size.name));
        continue;
      }
      auto set = options.sizes.find(size.name);
      std::optional<int64_t> value = set == options.sizes.end() ? size.value : set->second;
      if (!value)
        diagnostics.error(size.name, formatv("size `{0}` has no value", size.name))
            .help(formatv("give it one with --set {0}=16, or a default: [{0} = 16]", size.name));
      resolver.addSize(size.name, value.value_or(1));
      declared.push_back(size.name);
    }
    // Sizes that are set but not declared are those of the parameters' shapes.
    for (const Parameter &parameter : kernel.parameters)
      for (const ExpressionPtr &size : parameter.shape)
        setSizesIn(*size);
  }

  void setSizesIn(const Expression &expression) {
    if (const auto *binary = dyn_cast<BinaryExpression>(&expression)) {
      setSizesIn(*binary->lhs);
      return setSizesIn(*binary->rhs);
    }
    const auto *name = dyn_cast<NameExpression>(&expression);
    if (!name || !isSizeName(name->name) || resolver.hasSize(name->name))
      return;
    if (auto set = options.sizes.find(name->name); set != options.sizes.end())
      resolver.addSize(name->name, set->second);
  }

  void declareParameters() {
    StringRef firstFloat;
    for (const Parameter &parameter : kernel.parameters)
      if (firstFloat.empty() && isFloatDtype(parameter.dtype))
        firstFloat = parameter.dtype;
    for (const Parameter &parameter : kernel.parameters) {
      Tensor &tensor = resolver.addTensor(parameter.name);
      tensor.isParameter = true;
      bool retyped = !options.dtype.empty() && !parameter.shape.empty() && parameter.dtype == firstFloat;
      tensor.dtype = retyped ? StringRef(options.dtype) : parameter.dtype;
      tensor.hasShape = true;
      for (const ExpressionPtr &dimension : parameter.shape) {
        SizeAttr size = resolver.resolveSize(*dimension, /*declare=*/true);
        tensor.hasShape &= static_cast<bool>(size);
        if (size)
          tensor.shape.push_back(size);
      }
      if (parameter.defaultValue)
        checkDefault(parameter);
      if (outputDtype.empty() && isFloatDtype(tensor.dtype))
        outputDtype = tensor.dtype;
      if (tensor.dtype == "f64")
        computeF64 = true;
      tensors.push_back(&tensor);
    }
  }

  /// The value of a constant expression, or nothing.
  std::optional<double> evaluate(const Expression &expression) {
    if (const auto *integer = dyn_cast<IntegerExpression>(&expression))
      return static_cast<double>(integer->value);
    if (const auto *real = dyn_cast<FloatExpression>(&expression))
      return real->value;
    if (const auto *name = dyn_cast<NameExpression>(&expression)) {
      if (name->name == "inf")
        return std::numeric_limits<double>::infinity();
      if (name->name == "pi")
        return 3.14159265358979323846;
      return std::nullopt;
    }
    if (const auto *unary = dyn_cast<UnaryExpression>(&expression)) {
      std::optional<double> operand = evaluate(*unary->operand);
      return operand && !unary->isNot ? std::optional(-*operand) : std::nullopt;
    }
    if (const auto *binary = dyn_cast<BinaryExpression>(&expression)) {
      std::optional<double> lhs = evaluate(*binary->lhs), rhs = evaluate(*binary->rhs);
      if (!lhs || !rhs)
        return std::nullopt;
      switch (binary->op) {
      case BinaryOperator::Add:
        return *lhs + *rhs;
      case BinaryOperator::Sub:
        return *lhs - *rhs;
      case BinaryOperator::Mul:
        return *lhs * *rhs;
      case BinaryOperator::Div:
        return *lhs / *rhs;
      case BinaryOperator::Power:
        return std::pow(*lhs, *rhs);
      default:
        return std::nullopt;
      }
    }
    return std::nullopt;
  }

  /// Integers are evaluated exactly; `evaluate` would round those beyond 2^53.
  static std::optional<int64_t> evaluateInteger(const Expression &expression) {
    if (const auto *integer = dyn_cast<IntegerExpression>(&expression))
      return integer->value;
    if (const auto *unary = dyn_cast<UnaryExpression>(&expression); unary && !unary->isNot)
      if (std::optional<int64_t> operand = evaluateInteger(*unary->operand))
        return -*operand;
    return std::nullopt;
  }

  void checkDefault(const Parameter &parameter) {
    const Expression &value = *parameter.defaultValue;
    if (!parameter.shape.empty()) {
      diagnostics
          .error(value.text, formatv("`{0}` has {1} dimension{2} and cannot have a default", parameter.name,
                                     parameter.shape.size(), parameter.shape.size() == 1 ? "" : "s"))
          .help("only scalars have defaults");
      return;
    }
    const auto *name = dyn_cast<NameExpression>(&value);
    bool truth = name && (name->name == "true" || name->name == "false");
    if (truth != (parameter.dtype == "bool")) {
      if (truth || evaluate(value))
        diagnostics.error(value.text, formatv("the default of `{0}` must be {1}, but is `{2}`", parameter.name,
                                              truth ? "a number" : "true or false", value.text));
      else
        notConstant(parameter);
      return;
    }
    if (truth)
      return;
    std::optional<double> number = evaluate(value);
    if (!number)
      return notConstant(parameter);
    if (isFloatDtype(parameter.dtype))
      return;
    std::optional<int64_t> exact = integerDefault(value);
    int64_t least = parameter.dtype == "i64"   ? INT64_MIN
                    : parameter.dtype == "i32" ? INT32_MIN
                    : parameter.dtype == "i8"  ? INT8_MIN
                                               : 0;
    int64_t greatest = parameter.dtype == "i64"   ? INT64_MAX
                       : parameter.dtype == "i32" ? INT32_MAX
                       : parameter.dtype == "i8"  ? INT8_MAX
                                                  : UINT8_MAX;
    if (!exact || *exact < least || *exact > greatest)
      diagnostics.error(value.text, formatv("the default of `{0}` must be an integer from {1} to {2}, but is `{3}`",
                                            parameter.name, least, greatest, value.text));
  }

  void notConstant(const Parameter &parameter) {
    const Expression &value = *parameter.defaultValue;
    diagnostics
        .error(value.text, formatv("the default of `{0}` must be a constant, but is `{1}`", parameter.name, value.text))
        .help("a default is made of numbers, inf, pi, + - * / and **");
  }

  std::optional<int64_t> integerDefault(const Expression &value) {
    if (std::optional<int64_t> exact = evaluateInteger(value))
      return exact;
    std::optional<double> number = evaluate(value);
    if (number && std::abs(*number) < 0x1p53 && *number == std::trunc(*number))
      return static_cast<int64_t>(*number);
    return std::nullopt;
  }

  /// Whether `size`, which has one unknown name, can be solved for it: the name occurs once, and not in a `//`.
  static bool isSolvable(SizeAttr size, StringRef unknown) {
    if (size.isConstant() || size.isName())
      return true;
    bool inside = false;
    size.forEachName([&](StringAttr name) { inside |= name.getValue() == unknown; });
    if (inside && (size.getKind() == SizeKind::FloorDiv || size.getKind() == SizeKind::Mod))
      return false;
    return isSolvable(size.getLhs(), unknown) && isSolvable(size.getRhs(), unknown);
  }

  /// Every size must follow from the shapes: from a dimension of its own, or by solving an expression for it.
  void checkSizesCanBeFound() {
    llvm::SmallVector<StringRef> known;
    bool progress = true;
    while (progress) {
      progress = false;
      for (Tensor *tensor : tensors)
        for (SizeAttr size : tensor->shape) {
          llvm::SmallVector<StringRef> unknown;
          size.forEachName([&](StringAttr name) {
            if (!llvm::is_contained(known, name.getValue()))
              unknown.push_back(name.getValue());
          });
          if (unknown.size() == 1 && isSolvable(size, unknown.front())) {
            known.push_back(unknown.front());
            progress = true;
          }
        }
    }
    for (const Parameter &parameter : kernel.parameters)
      for (const ExpressionPtr &dimension : parameter.shape)
        requireKnown(*dimension, parameter, known);
  }

  void requireKnown(const Expression &expression, const Parameter &parameter, llvm::SmallVectorImpl<StringRef> &known) {
    if (const auto *binary = dyn_cast<BinaryExpression>(&expression)) {
      requireKnown(*binary->lhs, parameter, known);
      return requireKnown(*binary->rhs, parameter, known);
    }
    const auto *name = dyn_cast<NameExpression>(&expression);
    if (!name || !isSizeName(name->name) || llvm::is_contained(known, name->name) || options.sizes.count(name->name) ||
        llvm::is_contained(declared, name->name))
      return;
    diagnostics.error(name->name, formatv("size `{0}` cannot be found from the shapes of the parameters", name->name))
        .help(formatv("declare it in brackets after the kernel's name: `attention {0}[{1} = 16](…)`", kernel.name,
                      name->name));
    known.push_back(name->name);
  }

  // --- Emission -------------------------------------------------------------------------------

  Attribute defaultAttribute(const Parameter &parameter, Type type) {
    if (!parameter.defaultValue || !parameter.shape.empty())
      return builder.getUnitAttr();
    const Expression &value = *parameter.defaultValue;
    if (type.isInteger(1))
      return builder.getBoolAttr(cast<NameExpression>(value).name == "true");
    if (isa<FloatType>(type))
      return builder.getFloatAttr(type, *evaluate(value));
    APInt bits(type.getIntOrFloatBitWidth(), static_cast<uint64_t>(*integerDefault(value)),
               /*isSigned=*/!type.isUnsignedInteger(), /*implicitTrunc=*/true);
    return IntegerAttr::get(type, bits);
  }

  void createKernel() {
    llvm::SmallVector<StringRef> names;
    llvm::SmallVector<Attribute> defaults;
    bool emittable = !diagnostics.hasErrors();
    for (const Parameter &parameter : kernel.parameters) {
      names.push_back(parameter.name);
      Type type = Emitter::storageType(builder, parameter.dtype);
      defaults.push_back(emittable ? defaultAttribute(parameter, type) : builder.getUnitAttr());
    }
    FloatType computeType = computeF64 ? FloatType(builder.getF64Type()) : FloatType(builder.getF32Type());
    emitter.emplace(builder, sources, diagnostics, resolver, computeType);
    op = KernelOp::create(builder, emitter->location(kernel.name), kernel.name, builder.getStrArrayAttr(names),
                          builder.getArrayAttr(defaults));
    Block &block = op.getBody().emplaceBlock();
    for (auto [parameter, tensor] : llvm::zip(kernel.parameters, tensors)) {
      Type element = Emitter::storageType(builder, tensor->dtype);
      auto type = AttnTensorType::get(builder.getContext(), tensor->shape, element);
      Value value = block.addArgument(type, emitter->location(parameter.name));
      if (tensor->hasShape)
        tensor->value = value;
    }
    builder.setInsertionPointToEnd(&block);
  }

  void emitStatement(const Statement &statement) {
    if (!statement.value) {
      resolver.addTensor(statement.name);
      return;
    }
    size_t errors = diagnostics.count();
    std::optional<std::vector<Variable *>> indices = resolver.resolveStatement(statement);
    Value value;
    if (indices)
      value = emitter->emitStatement(statement, *indices);
    bool failed = diagnostics.count() != errors;
    Tensor &tensor = resolver.addTensor(statement.name);
    tensor.dtype = statement.dtype;
    if (!indices)
      return;
    tensor.hasShape = true;
    for (Variable *variable : *indices)
      tensor.shape.push_back(variable->range);
    if (!failed)
      tensor.value = value;
  }

  Type outputType(const Tensor &tensor) {
    if (!tensor.dtype.empty())
      return Emitter::storageType(builder, tensor.dtype);
    Type element = cast<AttnTensorType>(tensor.value.getType()).getElementType();
    if (!isa<FloatType>(element) || outputDtype.empty())
      return element;
    return Emitter::storageType(builder, outputDtype);
  }

  void emitReturn() {
    llvm::SmallVector<Value> values;
    llvm::SmallVector<Attribute> types;
    llvm::SmallVector<StringRef> returned;
    for (StringRef name : kernel.outputs) {
      Tensor *tensor = resolver.findTensor(name);
      if (!tensor) {
        diagnostics.error(name, formatv("unknown name `{0}`", name)).suggest(name, resolver.tensorNames());
        continue;
      }
      const auto *first = llvm::find(returned, name);
      if (tensor->isParameter) {
        diagnostics.error(name, formatv("`{0}` is a parameter and cannot be returned", name))
            .note(tensor->name, "defined here")
            .help(formatv("return a copy: `copy[…] = {0}[…]`", name));
      } else if (first != returned.end()) {
        diagnostics.error(name, formatv("`{0}` is returned twice", name)).note(*first, "first returned here");
      } else if (tensor->value) {
        values.push_back(tensor->value);
        types.push_back(TypeAttr::get(outputType(*tensor)));
      }
      returned.push_back(name);
    }
    if (!diagnostics.hasErrors())
      ReturnOp::create(builder, emitter->location(kernel.outputs.front()), values, builder.getArrayAttr(types));
  }

  /// Comparisons that need the sizes are left to whoever knows them, as the kernel's attribute `attn.checks`: part must
  /// not exceed whole, or `message` is the error.
  void recordChecks() {
    llvm::SetVector<Attribute> attributes;
    for (const SizeCheck &check : resolver.sizeChecks())
      attributes.insert(builder.getDictionaryAttr(
          {builder.getNamedAttr("part", check.part), builder.getNamedAttr("whole", check.whole),
           builder.getNamedAttr("message", builder.getStringAttr(check.message))}));
    if (!attributes.empty())
      op->setAttr("attn.checks", builder.getArrayAttr(attributes.getArrayRef()));
  }

  const Kernel &kernel;
  const LanguageOptions &options;
  OpBuilder &builder;
  const llvm::SourceMgr &sources;
  Diagnostics &diagnostics;
  Resolver resolver;
  std::optional<Emitter> emitter;
  KernelOp op;
  std::vector<Tensor *> tensors; ///< Of the parameters.
  llvm::SmallVector<StringRef> declared;
  StringRef outputDtype; ///< Of unannotated float outputs; empty where no parameter is a float.
  bool computeF64 = false;
};

} // namespace

void attn::language::emitKernel(const Kernel &kernel, const FunctionTable &functions, const File &file,
                                const LanguageOptions &options, OpBuilder &builder, const llvm::SourceMgr &sources,
                                Diagnostics &diagnostics, std::vector<std::string> &knownSizes) {
  OpBuilder::InsertionGuard guard(builder);
  KernelEmitter(kernel, functions, options, builder, sources, diagnostics).run(file, knownSizes);
}

//===- KernelEmitter.cpp - One attention to one attn.kernel ---------------===//
//
// Sizes first (declared, set, and bound by the parameters' shapes), then the statements in
// order, then the outputs.
//
//===----------------------------------------------------------------------===//

#include "KernelEmitter.h"
#include "Defaults.h"
#include "KernelSizes.h"
#include "Types.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace attn;
using namespace attn::language;
using llvm::formatv;
using llvm::StringRef;

namespace {

class KernelEmitter {
public:
  KernelEmitter(const Kernel &kernel, const FunctionTable &functions, const LanguageOptions &options,
                OpBuilder &builder, const llvm::SourceMgr &sources, Diagnostics &diagnostics)
      : kernel(kernel), options(options), builder(builder), sources(sources), diagnostics(diagnostics),
        sizes(builder.getContext(), diagnostics), resolver(builder.getContext(), diagnostics, functions, sizes) {
    resolver.setStatements(kernel.statements);
  }

  void run(const File &file, std::vector<std::string> &knownSizes) {
    for (const Function &function : file.functions)
      resolver.resolveFunction(function);
    declareSizes(kernel, options, sizes, diagnostics);
    declareParameters();
    for (StringRef name : sizes.names())
      knownSizes.push_back(name.str());
    checkSizesCanBeFound(kernel, dimensions, options, diagnostics);
    createKernel();
    resolver.collectRanges(kernel.statements);
    for (const Statement &statement : kernel.statements)
      emitStatement(statement);
    emitReturn();
    recordChecks();
  }

private:
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
        SizeAttr size = sizes.resolve(*dimension, /*declare=*/true);
        tensor.hasShape &= static_cast<bool>(size);
        if (size)
          tensor.shape.push_back(size);
      }
      llvm::append_range(dimensions, tensor.shape);
      if (parameter.defaultValue)
        checkDefault(parameter, diagnostics);
      if (outputDtype.empty() && isFloatDtype(tensor.dtype))
        outputDtype = tensor.dtype;
      if (tensor.dtype == "f64")
        computeF64 = true;
      tensors.push_back(&tensor);
    }
  }

  void createKernel() {
    llvm::SmallVector<StringRef> names;
    llvm::SmallVector<Attribute> defaults;
    bool emittable = !diagnostics.hasErrors();
    for (const Parameter &parameter : kernel.parameters) {
      names.push_back(parameter.name);
      Type type = storageType(builder, parameter.dtype);
      defaults.push_back(emittable ? defaultAttribute(builder, parameter, type) : builder.getUnitAttr());
    }
    FloatType computeType = computeF64 ? FloatType(builder.getF64Type()) : FloatType(builder.getF32Type());
    emitter.emplace(builder, sources, diagnostics, resolver, computeType);
    op = KernelOp::create(builder, emitter->location(kernel.name), kernel.name, builder.getStrArrayAttr(names),
                          builder.getArrayAttr(defaults));
    Block &block = op.getBody().emplaceBlock();
    for (auto [parameter, tensor] : llvm::zip(kernel.parameters, tensors)) {
      Type element = storageType(builder, tensor->dtype);
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
      return storageType(builder, tensor.dtype);
    Type element = cast<AttnTensorType>(tensor.value.getType()).getElementType();
    if (!isa<FloatType>(element) || outputDtype.empty())
      return element;
    return storageType(builder, outputDtype);
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
  SizeTable sizes;
  Resolver resolver;
  std::optional<Emitter> emitter;
  KernelOp op;
  std::vector<Tensor *> tensors;          ///< Of the parameters.
  llvm::SmallVector<SizeAttr> dimensions; ///< Of the parameters.
  StringRef outputDtype;                  ///< Of unannotated float outputs; empty where no parameter is a float.
  bool computeF64 = false;
};

} // namespace

void attn::language::emitKernel(const Kernel &kernel, const FunctionTable &functions, const File &file,
                                const LanguageOptions &options, OpBuilder &builder, const llvm::SourceMgr &sources,
                                Diagnostics &diagnostics, std::vector<std::string> &knownSizes) {
  OpBuilder::InsertionGuard guard(builder);
  KernelEmitter(kernel, functions, options, builder, sources, diagnostics).run(file, knownSizes);
}

//===- Resolver.cpp - What the names of a kernel mean ---------------------===//

#include "Resolver.h"
#include "Lexer.h"
#include "Parser.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"

using namespace attn;
using namespace attn::language;
using llvm::formatv;

//===----------------------------------------------------------------------===//
// Functions
//===----------------------------------------------------------------------===//

FunctionTable::FunctionTable(const File &file, Diagnostics &diagnostics) {
  for (const Function &function : file.functions) {
    if (isSizeName(function.name))
      diagnostics.error(function.name, formatv("a function cannot be called `{0}`: names that begin with an upper-case "
                                               "letter are sizes",
                                               function.name));
    if (findBuiltin(function.name)) {
      diagnostics.error(function.name, formatv("`{0}` is a built-in function", function.name))
          .help("give the function another name");
      continue;
    }
    auto [entry, inserted] = functions.insert({function.name, &function});
    if (!inserted)
      diagnostics.error(function.name, formatv("function `{0}` is defined twice", function.name))
          .note(entry->first, "first defined here");
    for (size_t index = 0; index < function.parameters.size(); ++index) {
      StringRef name = function.parameters[index];
      if (isSizeName(name))
        diagnostics
            .error(name, formatv("a function's parameter cannot be called `{0}`: names that begin with an "
                                 "upper-case letter are sizes",
                                 name))
            .help(formatv("write `{0}`", name.lower()));
      for (size_t other = 0; other < index; ++other)
        if (function.parameters[other] == name)
          diagnostics.error(name, formatv("function `{0}` has two parameters named `{1}`", function.name, name))
              .note(function.parameters[other], "the first is here");
    }
  }
}

const Function *FunctionTable::findAnywhere(StringRef name) const {
  auto found = functions.find(name);
  return found == functions.end() ? nullptr : found->second;
}

const Function *FunctionTable::find(StringRef name, const char *place) const {
  const Function *function = findAnywhere(name);
  // A function is defined after the end of its line.
  return function && function->name.data() < place ? function : nullptr;
}

std::vector<StringRef> FunctionTable::names() const {
  std::vector<StringRef> names;
  for (const auto &entry : functions)
    names.push_back(entry.first);
  return names;
}

//===----------------------------------------------------------------------===//
// Sizes and tensors
//===----------------------------------------------------------------------===//

void Resolver::addSize(StringRef name, std::optional<int64_t> value) {
  sizes.insert({name, value ? SizeAttr::constant(context, *value) : SizeAttr::named(context, name)});
}

std::vector<StringRef> Resolver::sizeNames() const {
  std::vector<StringRef> names;
  for (const auto &entry : sizes)
    names.push_back(entry.first);
  return names;
}

SizeAttr Resolver::resolveSize(const Expression &expression, bool declare) {
  if (const auto *integer = llvm::dyn_cast<IntegerExpression>(&expression))
    return SizeAttr::constant(context, integer->value);
  if (const auto *name = llvm::dyn_cast<NameExpression>(&expression)) {
    if (!isSizeName(name->name)) {
      Diagnostic &error = diagnostics.error(
          name->name, formatv("a size must begin with an upper-case letter, but found `{0}`", name->name));
      error.help(formatv("write `{0}`", name->name.upper()));
      return {};
    }
    if (!hasSize(name->name)) {
      if (!declare) {
        diagnostics.error(name->name, formatv("unknown size `{0}`", name->name))
            .suggest(name->name, sizeNames())
            .help(formatv("a size that no parameter gives is declared in brackets after the kernel's name: [{0} = 16]",
                          name->name));
        return {};
      }
      addSize(name->name, std::nullopt);
    }
    return sizes.lookup(name->name);
  }
  if (const auto *binary = llvm::dyn_cast<BinaryExpression>(&expression)) {
    std::optional<SizeKind> kind;
    switch (binary->op) {
    case BinaryOperator::Add:
      kind = SizeKind::Add;
      break;
    case BinaryOperator::Sub:
      kind = SizeKind::Sub;
      break;
    case BinaryOperator::Mul:
      kind = SizeKind::Mul;
      break;
    case BinaryOperator::FloorDiv:
      kind = SizeKind::FloorDiv;
      break;
    default:
      break;
    }
    if (kind) {
      SizeAttr lhs = resolveSize(*binary->lhs, declare), rhs = resolveSize(*binary->rhs, declare);
      if (!lhs || !rhs)
        return {};
      SizeAttr size = SizeAttr::binary(*kind, lhs, rhs);
      if (size.isConstant() && size.getValue() < 0) {
        diagnostics.error(binary->text, formatv("the size `{0}` is negative: {1}", binary->text, size.getValue()));
        return {};
      }
      if (lhs.isConstant() && rhs.isConstant() && !size.isConstant()) {
        bool zero = *kind == SizeKind::FloorDiv && rhs.getValue() == 0;
        diagnostics.error(binary->text, zero ? formatv("the size `{0}` divides by zero", binary->text)
                                             : formatv("the size `{0}` is too large", binary->text));
        return {};
      }
      return size;
    }
    diagnostics.error(binary->opText, formatv("`{0}` cannot stand in a size", binary->opText))
        .help(binary->op == BinaryOperator::Div ? "write `//` for a division that rounds down"
                                                : "sizes are made of names, integers, + - * and //");
    return {};
  }
  diagnostics.error(expression.text, formatv("`{0}` is not a size", expression.text))
      .help("sizes are made of names, integers, + - * and //");
  return {};
}

Tensor &Resolver::addTensor(StringRef name) {
  Tensor &tensor = tensors.emplace_back();
  tensor.name = name;
  if (isSizeName(name))
    diagnostics
        .error(name,
               formatv("a tensor cannot be called `{0}`: names that begin with an upper-case letter are sizes", name))
        .help(formatv("write `{0}`", name.lower()));
  auto [entry, inserted] = tensorByName.insert({name, &tensor});
  if (!inserted)
    diagnostics.error(name, formatv("`{0}` is defined twice", name)).note(entry->second->name, "first defined here");
  return tensor;
}

Tensor *Resolver::findTensor(StringRef name) { return tensorByName.lookup(name); }

std::vector<StringRef> Resolver::tensorNames() const {
  std::vector<StringRef> names;
  for (const Tensor &tensor : tensors)
    names.push_back(tensor.name);
  return names;
}

//===----------------------------------------------------------------------===//
// Names
//===----------------------------------------------------------------------===//

const Binding &Resolver::binding(const Expression &expression) const {
  static const Binding none;
  auto found = bindings.find(&expression);
  return found == bindings.end() ? none : found->second;
}

Variable *Resolver::findVariable(StringRef name) const {
  for (Variable *variable : llvm::reverse(scope))
    if (variable->name == name)
      return variable;
  return nullptr;
}

Variable *Resolver::introduce(const Index &index) {
  if (isSizeName(index.name))
    diagnostics
        .error(index.name, formatv("an index variable cannot be called `{0}`: names that begin with an upper-case "
                                   "letter are sizes",
                                   index.name))
        .help(formatv("write `{0}`", index.name.lower()));
  else if (Variable *other = findVariable(index.name))
    diagnostics.error(index.name, formatv("index variable `{0}` is introduced twice", index.name))
        .note(other->name, "first introduced here");
  else if (Tensor *tensor = findTensor(index.name))
    diagnostics
        .error(index.name, formatv("index variable `{0}` has the name of a {1}", index.name,
                                   tensor->isParameter ? "parameter" : "tensor"))
        .note(tensor->name, "defined here");
  else if (const Function *function = functions.find(index.name, index.name.data()))
    diagnostics.error(index.name, formatv("index variable `{0}` has the name of a function", index.name))
        .note(function->name, "defined here");
  Variable &variable = variables.emplace_back();
  variable.name = index.name;
  introduced[&index] = &variable;
  if (index.range)
    setExplicitRange(variable, *index.range);
  return &variable;
}

void Resolver::setExplicitRange(Variable &variable, const Expression &range) {
  variable.isExplicit = true;
  SizeAttr size = resolveSize(range);
  if (size && variable.range && !sameSize(size, variable.range)) {
    diagnostics
        .error(range.text, formatv("index variable `{0}` has two ranges: {1} and {2}", variable.name,
                                   variable.range.str(), size.str()))
        .note(variable.name, "introduced here");
    return;
  }
  if (size)
    variable.range = size;
}

void Resolver::resolve(const Expression &expression) {
  switch (expression.kind) {
  case Expression::Kind::Integer:
  case Expression::Kind::Float:
    return;
  case Expression::Kind::Name:
    return resolveName(llvm::cast<NameExpression>(expression));
  case Expression::Kind::Unary:
    return resolve(*llvm::cast<UnaryExpression>(expression).operand);
  case Expression::Kind::Binary:
    resolve(*llvm::cast<BinaryExpression>(expression).lhs);
    return resolve(*llvm::cast<BinaryExpression>(expression).rhs);
  case Expression::Kind::Call:
    return resolveCall(llvm::cast<CallExpression>(expression));
  case Expression::Kind::Subscript:
    return resolveSubscript(llvm::cast<SubscriptExpression>(expression));
  case Expression::Kind::Reduction:
    return resolveReduction(llvm::cast<ReductionExpression>(expression));
  }
}

void Resolver::resolveName(const NameExpression &expression) {
  StringRef name = expression.name;
  Binding &binding = bindings[&expression];
  if (currentFunction) {
    auto found = llvm::find(currentFunction->parameters, name);
    if (found != currentFunction->parameters.end()) {
      binding.parameter = found - currentFunction->parameters.begin();
      return;
    }
  }
  if (llvm::is_contained({"inf", "pi", "true", "false"}, name)) {
    binding.constant = name;
    return;
  }
  if (currentFunction) {
    Diagnostic &error =
        diagnostics.error(name, formatv("unknown name `{0}` in function `{1}`", name, currentFunction->name));
    error.suggest(name, currentFunction->parameters)
        .help("a function sees its parameters only: pass the value as an argument");
    return;
  }
  if ((binding.variable = findVariable(name)))
    return;
  if (isSizeName(name)) {
    if (name == "True" || name == "False") {
      diagnostics.error(name, formatv("unknown size `{0}`", name)).help(formatv("write `{0}`", name.lower()));
      return;
    }
    binding.size = resolveSize(expression);
    return;
  }
  if (Tensor *tensor = findTensor(name)) {
    if (tensor->hasShape && !tensor->shape.empty()) {
      diagnostics
          .error(name, formatv("`{0}` has {1} dimension{2} and needs subscripts", name, tensor->shape.size(),
                               tensor->shape.size() == 1 ? "" : "s"))
          .note(tensor->name, "defined here")
          .help(formatv("write `{0}[…]`", name));
      return;
    }
    binding.tensor = tensor;
    return;
  }
  unknownName(name);
}

void Resolver::unknownName(StringRef name) {
  Diagnostic &error = diagnostics.error(name, formatv("unknown name `{0}`", name));
  if (functions.find(name, name.data()) || findBuiltin(name) || isReduction(name) || isDtype(name)) {
    error.message = formatv("`{0}` is a function and needs arguments", name);
    error.help(isReduction(name) ? formatv("write `{0}[n](…)`", name) : formatv("write `{0}(…)`", name));
    return;
  }
  for (const Statement &statement : *statements)
    if (statement.name == name && statement.name.data() >= scopeStart) {
      bool itself = statement.name.data() == scopeStart;
      error.message = itself ? formatv("`{0}` is used in its own definition", name)
                             : formatv("`{0}` is used before it is defined", name);
      if (!itself)
        error.note(statement.name, "defined here");
      return;
    }
  for (Variable *row : hiddenRows)
    if (row->name == name) {
      error.message = formatv("the sink cannot depend on `{0}`, which the softmax runs over", name);
      error.note(row->name, "introduced here");
      return;
    }
  for (const Variable &variable : variables)
    if (variable.name == name) {
      error.note(variable.name, "an index variable is known only inside the reduction that introduces it");
      return;
    }
  if (hasSize(name.upper())) {
    auto spelled = sizes.find(name.upper());
    error.help(formatv("did you mean the size `{0}`?", spelled->first));
    return;
  }
  std::vector<StringRef> candidates = tensorNames();
  for (Variable *variable : scope)
    candidates.push_back(variable->name);
  candidates.insert(candidates.end(), {"inf", "pi", "true", "false"});
  error.suggest(name, candidates);
}

void Resolver::resolveCall(const CallExpression &expression) {
  for (const ExpressionPtr &argument : expression.arguments)
    resolve(*argument);
  StringRef name = expression.name;
  size_t count = expression.arguments.size();
  Binding &binding = bindings[&expression];
  auto wrongCount = [&](size_t expected, StringRef signature) -> Diagnostic & {
    return diagnostics
        .error(expression.text, formatv("`{0}` takes {1} argument{2}, but {3} {4} given", name, expected,
                                        expected == 1 ? "" : "s", count, count == 1 ? "is" : "are"))
        .help(formatv("write `{0}`", signature));
  };
  if (isDtype(name)) {
    if (count != 1)
      wrongCount(1, formatv("{0}(x)", name).str());
    else
      binding.conversion = name;
    return;
  }
  if (const BuiltinInfo *info = findBuiltin(name)) {
    if (count != info->arity)
      wrongCount(info->arity, info->signature);
    else
      binding.builtin = info;
    return;
  }
  if (isReduction(name)) {
    diagnostics.error(name, formatv("`{0}` needs the index it runs over", name))
        .help(formatv("write `{0}[n](…)`", name));
    return;
  }
  if (const Function *function = functions.find(name, name.data())) {
    if (function == currentFunction) {
      diagnostics.error(name, formatv("function `{0}` calls itself", name));
      return;
    }
    if (count != function->parameters.size()) {
      std::vector<std::string> parameters(function->parameters.begin(), function->parameters.end());
      wrongCount(function->parameters.size(), formatv("{0}({1})", name, llvm::join(parameters, ", ")).str())
          .note(function->name, "defined here");
      return;
    }
    binding.function = function;
    return;
  }
  if (const Function *later = functions.findAnywhere(name)) {
    diagnostics.error(name, formatv("function `{0}` is used before it is defined", name))
        .note(later->name, "defined here");
    return;
  }
  Tensor *tensor = currentFunction ? nullptr : findTensor(name);
  if (tensor || findVariable(name)) {
    diagnostics.error(name, formatv("`{0}` is not a function", name))
        .help(tensor ? formatv("tensors are subscripted with brackets: `{0}[…]`", name)
                     : formatv("a product is written with `*`: `{0} * (…)`", name));
    return;
  }
  std::vector<StringRef> candidates = functions.names();
  for (const BuiltinInfo &info : builtins())
    candidates.push_back(info.name);
  candidates.insert(candidates.end(), {"sum", "max", "min", "softmax", "logsumexp"});
  Diagnostic &error = diagnostics.error(name, formatv("unknown function `{0}`", name));
  if (name == "where")
    error.help("write `select(condition, a, b)`");
  else
    error.suggest(name, candidates);
}

void Resolver::resolveSubscript(const SubscriptExpression &expression) {
  StringRef name = expression.name;
  if (currentFunction) {
    diagnostics.error(expression.text, formatv("function `{0}` cannot read tensors", currentFunction->name))
        .help("pass the element as an argument");
    return;
  }
  for (const ExpressionPtr &subscript : expression.subscripts)
    resolve(*subscript);
  Tensor *tensor = findTensor(name);
  if (!tensor) {
    if (isSizeName(name) && hasSize(name))
      diagnostics.error(name, formatv("`{0}` is a size and cannot be subscripted", name));
    else if (Variable *variable = findVariable(name))
      diagnostics.error(name, formatv("`{0}` is an index variable and cannot be subscripted", name))
          .note(variable->name, "introduced here");
    else if (functions.find(name, name.data()) || findBuiltin(name))
      diagnostics.error(name, formatv("`{0}` is a function and cannot be subscripted", name))
          .help(formatv("write `{0}(…)`", name));
    else
      unknownName(name);
    return;
  }
  if (!tensor->hasShape)
    return;
  if (tensor->shape.size() != expression.subscripts.size()) {
    size_t rank = tensor->shape.size(), count = expression.subscripts.size();
    Diagnostic &error =
        rank == 0 ? diagnostics.error(name, formatv("`{0}` is a scalar and cannot be subscripted", name))
                  : diagnostics.error(expression.text,
                                      formatv("`{0}` has {1} dimension{2}, but {3} subscript{4} given", name, rank,
                                              rank == 1 ? "" : "s", count, count == 1 ? " is" : "s are"));
    error.note(tensor->name, "defined here");
    return;
  }
  bindings[&expression].tensor = tensor;
  subscripts.push_back(&expression);
  for (auto [dimension, subscript] : llvm::enumerate(expression.subscripts))
    if (Variable *variable = binding(*subscript).variable)
      variable->uses.push_back({tensor->shape[dimension], subscript->text, name, static_cast<unsigned>(dimension)});
}

void Resolver::resolveReduction(const ReductionExpression &expression) {
  if (currentFunction) {
    diagnostics.error(expression.name, formatv("function `{0}` cannot contain a reduction", currentFunction->name))
        .help("functions are scalar: reduce in the kernel and pass the result");
    return;
  }
  bool exponential = expression.name == "softmax" || expression.name == "logsumexp";
  if (expression.sink && !exponential)
    diagnostics.error(expression.sink->text, formatv("`{0}` cannot have a sink", expression.name))
        .help("only softmax and logsumexp have one");
  size_t depth = scope.size();
  if (expression.name == "softmax") {
    // Its index is one of those in scope: the value is that of the element at hand. Inside, the same name runs over the
    // row.
    std::vector<Variable *> rows;
    for (const Index &index : expression.indices) {
      Variable *variable = findVariable(index.name);
      if (!variable) {
        diagnostics
            .error(index.name, formatv("softmax runs over `{0}`, which is not an index of the result", index.name))
            .help(formatv("softmax keeps its index: write `name[…, {0}] = softmax[{0}](…)`, or logsumexp[{0}] for the "
                          "logarithm of the sum",
                          index.name));
        variable = introduce(index);
        scope.push_back(variable);
      } else if (llvm::is_contained(rows, variable)) {
        diagnostics.error(index.name, formatv("softmax runs over `{0}` twice", index.name));
      } else if (index.range) {
        setExplicitRange(*variable, *index.range);
      }
      rows.push_back(variable);
      introduced[&index] = variable;
    }
    resolve(*expression.body);
    if (expression.condition)
      resolve(*expression.condition);
    if (expression.sink) {
      // The sink is one number a row, so the row's own index is not known in it.
      std::vector<Variable *> outer = scope;
      llvm::erase_if(scope, [&](Variable *variable) { return llvm::is_contained(rows, variable); });
      hiddenRows = rows;
      resolve(*expression.sink);
      hiddenRows.clear();
      scope = std::move(outer);
    }
    scope.resize(depth);
    return;
  }
  for (const Index &index : expression.indices)
    scope.push_back(introduce(index));
  resolve(*expression.body);
  if (expression.condition)
    resolve(*expression.condition);
  scope.resize(depth);
  if (expression.sink)
    resolve(*expression.sink);
}

//===----------------------------------------------------------------------===//
// Statements and functions
//===----------------------------------------------------------------------===//

void Resolver::resolveFunction(const Function &function) {
  if (!function.body)
    return;
  currentFunction = &function;
  resolve(*function.body);
  currentFunction = nullptr;
}

std::optional<std::vector<Variable *>> Resolver::resolveStatement(const Statement &statement) {
  size_t errors = diagnostics.count();
  variables.clear();
  scope.clear();
  subscripts.clear();
  scopeStart = statement.name.data();
  for (const Index &index : statement.indices)
    scope.push_back(introduce(index));
  std::vector<Variable *> indices = scope;
  resolve(*statement.value);
  bool resolved = diagnostics.count() == errors;
  bool ranged = true;
  for (Variable &variable : variables)
    ranged &= decideRange(variable, /*quiet=*/!resolved);
  if (!ranged)
    return std::nullopt;
  for (const SubscriptExpression *subscript : subscripts)
    checkSubscripts(*subscript);
  return indices;
}

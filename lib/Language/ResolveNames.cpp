//===- ResolveNames.cpp - What a name, a call or a subscript refers to ----===//

#include "Lexer.h"
#include "Parser.h"
#include "Resolver.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"

using namespace attn;
using namespace attn::language;
using llvm::formatv;

//===----------------------------------------------------------------------===//
// Names
//===----------------------------------------------------------------------===//

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
    SourceError &error =
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
    binding.size = sizes.resolve(expression);
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
  SourceError &error = diagnostics.error(name, formatv("unknown name `{0}`", name));
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
  if (std::string upper = name.upper(); sizes.contains(upper)) {
    error.help(formatv("did you mean the size `{0}`?", upper));
    return;
  }
  std::vector<StringRef> candidates = tensorNames();
  for (Variable *variable : scope)
    candidates.push_back(variable->name);
  candidates.insert(candidates.end(), {"inf", "pi", "true", "false"});
  error.suggest(name, candidates);
}

//===----------------------------------------------------------------------===//
// Calls
//===----------------------------------------------------------------------===//

void Resolver::resolveCall(const CallExpression &expression) {
  for (const ExpressionPtr &argument : expression.arguments)
    resolve(*argument);
  StringRef name = expression.name;
  size_t count = expression.arguments.size();
  Binding &binding = bindings[&expression];
  auto wrongCount = [&](size_t expected, StringRef signature) -> SourceError & {
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
  unknownFunction(name);
}

void Resolver::unknownFunction(StringRef name) {
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
  SourceError &error = diagnostics.error(name, formatv("unknown function `{0}`", name));
  if (name == "where")
    error.help("write `select(condition, a, b)`");
  else
    error.suggest(name, candidates);
}

//===----------------------------------------------------------------------===//
// Subscripts
//===----------------------------------------------------------------------===//

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
    if (isSizeName(name) && sizes.contains(name))
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
    SourceError &error =
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

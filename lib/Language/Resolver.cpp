//===- Resolver.cpp - What the names of a kernel mean ---------------------===//

#include "Resolver.h"
#include "Lexer.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/FormatVariadic.h"

using namespace attn;
using namespace attn::language;
using llvm::formatv;

//===----------------------------------------------------------------------===//
// Tensors
//===----------------------------------------------------------------------===//

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
    ranged &= decideRange(variable, /*quiet=*/!resolved || hasUnparsed);
  if (!ranged)
    return std::nullopt;
  for (const SubscriptExpression *subscript : subscripts)
    checkSubscripts(*subscript);
  return indices;
}

const Binding &Resolver::binding(const Expression &expression) const {
  static const Binding none;
  auto found = bindings.find(&expression);
  return found == bindings.end() ? none : found->second;
}

//===----------------------------------------------------------------------===//
// Index variables
//===----------------------------------------------------------------------===//

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
  SizeAttr size = sizes.resolve(range);
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

//===----------------------------------------------------------------------===//
// Expressions
//===----------------------------------------------------------------------===//

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
  if (expression.name == "softmax")
    return resolveSoftmax(expression);
  size_t depth = scope.size();
  for (const Index &index : expression.indices)
    scope.push_back(introduce(index));
  resolve(*expression.body);
  if (expression.condition)
    resolve(*expression.condition);
  scope.resize(depth);
  if (expression.sink)
    resolve(*expression.sink);
}

/// Its index is one of those in scope: the value is that of the element at hand. Inside, the same name runs over the
/// row.
void Resolver::resolveSoftmax(const ReductionExpression &expression) {
  size_t depth = scope.size();
  std::vector<Variable *> rows;
  for (const Index &index : expression.indices) {
    Variable *variable = findVariable(index.name);
    if (!variable) {
      diagnostics.error(index.name, formatv("softmax runs over `{0}`, which is not an index of the result", index.name))
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
}

//===- Ranges.cpp - The ranges of index variables, and subscripts in bounds -===//
//
// An index variable ranges over the dimensions that it subscripts alone, which must all have the
// same size; or it was given a range, which must fit in all of them. Other subscripts are
// bounded by interval arithmetic over sizes: `h * D + d` with h < H and d < D is at most H · D − 1.
//
//===----------------------------------------------------------------------===//

#include "Lexer.h"
#include "Resolver.h"

#include "llvm/Support/FormatVariadic.h"

using namespace attn;
using namespace attn::language;
using llvm::formatv;

static std::string describe(const Variable::Use &use) {
  return formatv("dimension {0} of `{1}` is {2}", use.dimension, use.tensor, use.size.str());
}

void Resolver::collectRanges(const std::vector<Statement> &statements) {
  for (const Statement &statement : statements) {
    collectRanges(statement.indices);
    if (statement.value)
      collectRanges(*statement.value);
    else
      hasUnparsed = true;
  }
}

void Resolver::collectRanges(const std::vector<Index> &indices) {
  for (const Index &index : indices)
    if (index.range)
      if (SizeAttr size = sizes.resolve(*index.range))
        rangesOfNames[index.name].push_back({size, index.name});
}

void Resolver::collectRanges(const Expression &expression) {
  auto each = [&](const std::vector<ExpressionPtr> &children) {
    for (const ExpressionPtr &child : children)
      collectRanges(*child);
  };
  if (const auto *unary = llvm::dyn_cast<UnaryExpression>(&expression))
    return collectRanges(*unary->operand);
  if (const auto *binary = llvm::dyn_cast<BinaryExpression>(&expression)) {
    collectRanges(*binary->lhs);
    return collectRanges(*binary->rhs);
  }
  if (const auto *call = llvm::dyn_cast<CallExpression>(&expression))
    return each(call->arguments);
  if (const auto *reduction = llvm::dyn_cast<ReductionExpression>(&expression)) {
    collectRanges(reduction->indices);
    for (const Expression *child : {reduction->body.get(), reduction->condition.get(), reduction->sink.get()})
      if (child)
        collectRanges(*child);
    return;
  }
  const auto *subscript = llvm::dyn_cast<SubscriptExpression>(&expression);
  if (!subscript)
    return;
  each(subscript->subscripts);
  Tensor *tensor = findTensor(subscript->name);
  if (!tensor || tensor->shape.size() != subscript->subscripts.size())
    return;
  for (auto [size, index] : llvm::zip(tensor->shape, subscript->subscripts))
    if (const auto *name = llvm::dyn_cast<NameExpression>(index.get()); name && !isSizeName(name->name))
      rangesOfNames[name->name].push_back({size, name->text});
}

/// The range that the variable's name has elsewhere in the kernel.
bool Resolver::takeRangeOfName(Variable &variable, bool quiet) {
  auto known = rangesOfNames.find(variable.name);
  if (known == rangesOfNames.end()) {
    // After an error the use that gives the range may be the one that was wrong.
    if (!quiet)
      diagnostics
          .error(variable.name,
                 formatv("index variable `{0}` has no range: it subscripts no dimension alone", variable.name))
          .help(formatv("give it one where it is introduced: `{0}: SIZE`", variable.name));
    return false;
  }
  auto [first, place] = known->second.front();
  for (auto [size, other] : known->second)
    if (!sameSize(size, first)) {
      diagnostics
          .error(variable.name, formatv("index variable `{0}` has no range: elsewhere it ranges over both {1} and {2}",
                                        variable.name, first.str(), size.str()))
          .note(place, formatv("here it ranges over {0}", first.str()))
          .note(other, formatv("here it ranges over {0}", size.str()))
          .help(formatv("give it one where it is introduced: `{0}: {1}`", variable.name, first.str()));
      return false;
    }
  variable.range = first;
  return true;
}

bool Resolver::decideRange(Variable &variable, bool quiet) {
  if (variable.isExplicit)
    return static_cast<bool>(variable.range);
  if (variable.uses.empty())
    return takeRangeOfName(variable, quiet);
  const Variable::Use &first = variable.uses.front();
  variable.range = first.size;
  for (const Variable::Use &use : llvm::ArrayRef(variable.uses).drop_front()) {
    if (sameSize(use.size, first.size))
      continue;
    diagnostics
        .error(use.place, formatv("index variable `{0}` ranges over both {1} and {2}", variable.name, first.size.str(),
                                  use.size.str()))
        .note(first.place, describe(first))
        .note(use.place, describe(use))
        .help(formatv("tensors that share a dimension declare it with the same name; a variable over a part of a "
                      "dimension is given its range: `{0}: {1}`",
                      variable.name, first.size.str()));
    return false;
  }
  rangesOfNames[variable.name].push_back({variable.range, variable.name});
  return true;
}

/// The quotient of a division of values from 0 … `greatest` by `divisor`, rounded down, at most.
static std::optional<Polynomial> greatestQuotient(const Polynomial &greatest, const Polynomial &divisor) {
  if (std::optional<int64_t> value = greatest.constant(), by = divisor.constant(); value && by && *by > 0)
    return Polynomial(llvm::divideFloorSigned(*value, *by));
  // floor((a · b − 1) / b) = a − 1
  std::optional<Polynomial> count = greatest.plus(Polynomial(1));
  std::optional<Polynomial> quotient = count ? count->dividedBy(divisor) : std::nullopt;
  return quotient ? quotient->minus(Polynomial(1)) : std::nullopt;
}

std::optional<Resolver::Interval> Resolver::boundsOf(const BinaryExpression &binary) const {
  std::optional<Interval> lhs = boundsOf(*binary.lhs), rhs = boundsOf(*binary.rhs);
  if (!rhs || (!lhs && binary.op != BinaryOperator::Mod))
    return std::nullopt;
  std::optional<Polynomial> least, greatest;
  switch (binary.op) {
  case BinaryOperator::Add:
    least = lhs->least.plus(rhs->least);
    greatest = lhs->greatest.plus(rhs->greatest);
    break;
  case BinaryOperator::Sub:
    least = lhs->least.minus(rhs->greatest);
    greatest = lhs->greatest.minus(rhs->least);
    break;
  case BinaryOperator::Mul:
    if (lhs->least == lhs->greatest)
      std::swap(lhs, rhs);
    if (!(rhs->least == rhs->greatest) || !rhs->least.isNeverNegative())
      return std::nullopt;
    least = lhs->least.times(rhs->least);
    greatest = lhs->greatest.times(rhs->least);
    break;
  case BinaryOperator::FloorDiv:
    if (!(rhs->least == rhs->greatest) || !(lhs->least == Polynomial(0)))
      return std::nullopt;
    least = Polynomial(0);
    greatest = greatestQuotient(lhs->greatest, rhs->least);
    break;
  case BinaryOperator::Mod:
    if (!(rhs->least == rhs->greatest) || !rhs->least.isNeverNegative())
      return std::nullopt;
    least = Polynomial(0);
    greatest = rhs->least.minus(Polynomial(1));
    break;
  default:
    return std::nullopt;
  }
  if (!least || !greatest)
    return std::nullopt;
  return Interval{*least, *greatest};
}

std::optional<Resolver::Interval> Resolver::boundsOf(const Expression &expression) const {
  if (const auto *integer = llvm::dyn_cast<IntegerExpression>(&expression))
    return Interval{Polynomial(integer->value), Polynomial(integer->value)};
  if (const auto *binary = llvm::dyn_cast<BinaryExpression>(&expression))
    return boundsOf(*binary);
  if (const auto *unary = llvm::dyn_cast<UnaryExpression>(&expression)) {
    std::optional<Interval> operand = !unary->isNot ? boundsOf(*unary->operand) : std::nullopt;
    if (!operand)
      return std::nullopt;
    std::optional<Polynomial> least = Polynomial(0).minus(operand->greatest);
    std::optional<Polynomial> greatest = Polynomial(0).minus(operand->least);
    return least && greatest ? std::optional(Interval{*least, *greatest}) : std::nullopt;
  }
  const Binding &name = binding(expression);
  if (name.size) {
    std::optional<Polynomial> size = Polynomial::of(name.size);
    return size ? std::optional(Interval{*size, *size}) : std::nullopt;
  }
  if (!name.variable || !name.variable->range)
    return std::nullopt;
  std::optional<Polynomial> range = Polynomial::of(name.variable->range);
  std::optional<Polynomial> greatest = range ? range->minus(Polynomial(1)) : std::nullopt;
  return greatest ? std::optional(Interval{Polynomial(0), *greatest}) : std::nullopt;
}

void Resolver::checkSubscripts(const SubscriptExpression &expression) {
  const Tensor &tensor = *binding(expression).tensor;
  for (auto [dimension, subscript] : llvm::enumerate(expression.subscripts)) {
    SizeAttr size = tensor.shape[dimension];
    std::optional<Polynomial> whole = Polynomial::of(size);
    std::optional<Interval> bounds = boundsOf(*subscript);
    std::optional<Polynomial> span = bounds ? bounds->greatest.minus(bounds->least) : std::nullopt;
    if (!whole || !bounds || (span && span->isAlwaysNegative())) // an index of size 0 has no value
      continue;
    std::string where = formatv("dimension {0} of `{1}`, which is {2}", dimension, expression.name, size.str());
    std::optional<Polynomial> above = bounds->least.minus(*whole), missing = whole->minus(bounds->greatest);
    bool outside = bounds->greatest.isAlwaysNegative() || (above && above->isNeverNegative());
    const Variable *variable = binding(*subscript).variable;
    if (variable && variable->isExplicit) {
      std::optional<Polynomial> part = Polynomial::of(variable->range);
      std::optional<Polynomial> spare = part ? whole->minus(*part) : std::nullopt;
      if (spare && spare->isNeverNegative())
        continue;
      std::string range = variable->range.str();
      if (spare && spare->isAlwaysNegative()) {
        diagnostics
            .error(subscript->text,
                   formatv("index variable `{0}` ranges over {1} and leaves {2}", variable->name, range, where))
            .note(variable->name, "introduced here");
        continue;
      }
      checks.push_back(
          {variable->range, size, formatv("index `{0}` ranges over {1} and leaves {2}", variable->name, range, where)});
      continue;
    }
    // An empty dimension is no error of the program, so a size must be known to say that a subscript leaves it.
    if (outside && (bounds->greatest.isAlwaysNegative() || whole->constant()))
      diagnostics.error(subscript->text, formatv("subscript `{0}` is outside {1}", subscript->text, where))
          .note(tensor.name, "defined here")
          .help("subscripts count from 0");
    else if (std::optional<int64_t> value = bounds->least.constant();
             value && *value >= 0 && bounds->least == bounds->greatest && !whole->constant())
      checks.push_back(
          {SizeAttr::constant(context, *value + 1), size, formatv("subscript {0} is outside {1}", *value, where)});
  }
}

//===- KeyRange.cpp - Which keys a mask can let through --------------------===//

#include "attn/Analysis/KeyRange.h"
#include "attn/Analysis/Dependence.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace attn;

using Bound = std::shared_ptr<const KeyBound>;

namespace {
/// coefficient · key + the linear bound `rest`.
struct Affine {
  int64_t coefficient = 0;
  KeyBound rest{KeyBound::Kind::Linear};
};
} // namespace

static void accumulate(Affine &sum, const Affine &term, int64_t factor) {
  sum.coefficient += factor * term.coefficient;
  sum.rest.constant += factor * term.rest.constant;
  for (auto [value, coefficient] : term.rest.terms)
    sum.rest.terms.push_back({value, factor * coefficient});
}

/// `value` as an affine form of the key, or nothing.
static std::optional<Affine> affine(Value value, BlockArgument key) {
  Affine result;
  if (value == key) {
    result.coefficient = 1;
    return result;
  }
  if (!dependence(value).contains(key)) {
    APInt constant;
    if (matchPattern(value, m_ConstantInt(&constant)))
      result.rest.constant = constant.getSExtValue();
    else
      result.rest.terms.push_back({value, 1});
    return result;
  }
  Operation *op = value.getDefiningOp();
  if (!isa<arith::AddIOp, arith::SubIOp>(op))
    return std::nullopt;
  std::optional<Affine> lhs = affine(op->getOperand(0), key), rhs = affine(op->getOperand(1), key);
  if (!lhs || !rhs)
    return std::nullopt;
  accumulate(result, *lhs, 1);
  accumulate(result, *rhs, isa<arith::AddIOp>(op) ? 1 : -1);
  return result;
}

/// `bound` times ±1 plus `offset`.
static Bound scaled(const KeyBound &bound, int64_t factor, int64_t offset) {
  KeyBound result{KeyBound::Kind::Linear};
  result.constant = factor * bound.constant + offset;
  for (auto [value, coefficient] : bound.terms)
    result.terms.push_back({value, factor * coefficient});
  return std::make_shared<KeyBound>(result);
}

static Bound join(KeyBound::Kind kind, Bound lhs, Bound rhs) {
  KeyBound result{kind};
  result.lhs = std::move(lhs);
  result.rhs = std::move(rhs);
  return std::make_shared<KeyBound>(result);
}

static KeyRange intersection(KeyRange a, KeyRange b) {
  auto both = [](KeyBound::Kind kind, Bound x, Bound y) { return x && y ? join(kind, x, y) : x ? x : y; };
  return {both(KeyBound::Kind::Max, a.lower, b.lower), both(KeyBound::Kind::Min, a.upper, b.upper)};
}

static KeyRange hull(KeyRange a, KeyRange b) {
  auto either = [](KeyBound::Kind kind, Bound x, Bound y) { return x && y ? join(kind, x, y) : Bound(); };
  return {either(KeyBound::Kind::Min, a.lower, b.lower), either(KeyBound::Kind::Max, a.upper, b.upper)};
}

/// Where coefficient · key + rest `predicate` 0 can hold.
static KeyRange comparison(arith::CmpIPredicate predicate, const Affine &form) {
  using arith::CmpIPredicate;
  bool rising = form.coefficient == 1; // else −1
  // At equality key = root.
  int64_t sign = rising ? -1 : 1;
  auto below = [&](int64_t offset) -> KeyRange { return {nullptr, scaled(form.rest, sign, offset)}; };
  auto above = [&](int64_t offset) -> KeyRange { return {scaled(form.rest, sign, offset), nullptr}; };
  switch (predicate) {
  case CmpIPredicate::eq:
    return intersection(above(0), below(1));
  case CmpIPredicate::slt:
    return rising ? below(0) : above(1);
  case CmpIPredicate::sle:
    return rising ? below(1) : above(0);
  case CmpIPredicate::sgt:
    return rising ? above(1) : below(0);
  case CmpIPredicate::sge:
    return rising ? above(0) : below(1);
  default:
    return {};
  }
}

static KeyRange rangeOf(Value condition, BlockArgument key, bool negated) {
  APInt constant;
  if (matchPattern(condition, m_ConstantInt(&constant))) {
    bool value = constant.getBoolValue() != negated;
    KeyBound zero{KeyBound::Kind::Linear};
    return value ? KeyRange() : KeyRange{nullptr, std::make_shared<KeyBound>(zero)};
  }
  Operation *op = condition.getDefiningOp();
  if (auto both = dyn_cast_or_null<arith::AndIOp>(op); both && both.getType().isInteger(1)) {
    KeyRange lhs = rangeOf(both.getLhs(), key, negated), rhs = rangeOf(both.getRhs(), key, negated);
    return negated ? hull(lhs, rhs) : intersection(lhs, rhs);
  }
  if (auto either = dyn_cast_or_null<arith::OrIOp>(op)) {
    KeyRange lhs = rangeOf(either.getLhs(), key, negated), rhs = rangeOf(either.getRhs(), key, negated);
    return negated ? intersection(lhs, rhs) : hull(lhs, rhs);
  }
  if (auto exclusive = dyn_cast_or_null<arith::XOrIOp>(op))
    if (matchPattern(exclusive.getRhs(), m_One()))
      return rangeOf(exclusive.getLhs(), key, !negated);
  if (!dependence(condition).contains(key)) {
    if (negated)
      return {};
    KeyBound guard{KeyBound::Kind::Guard};
    guard.condition = condition;
    return {nullptr, std::make_shared<KeyBound>(guard)};
  }
  auto compare = dyn_cast_or_null<arith::CmpIOp>(op);
  if (!compare || !compare.getLhs().getType().isInteger(64))
    return {};
  std::optional<Affine> lhs = affine(compare.getLhs(), key), rhs = affine(compare.getRhs(), key);
  if (!lhs || !rhs)
    return {};
  accumulate(*lhs, *rhs, -1);
  if (lhs->coefficient != 1 && lhs->coefficient != -1)
    return {};
  return comparison(negated ? arith::invertPredicate(compare.getPredicate()) : compare.getPredicate(), *lhs);
}

KeyRange attn::keyRange(Value condition, BlockArgument key) { return rangeOf(condition, key, /*negated=*/false); }

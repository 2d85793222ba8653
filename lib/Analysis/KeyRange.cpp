//===- KeyRange.cpp - Which keys a mask can let through --------------------===//

#include "attn/Analysis/KeyRange.h"
#include "attn/Analysis/Cost.h"
#include "attn/Analysis/Dependence.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/Matchers.h"

#include <numeric>

using namespace mlir;
using namespace attn;

using Bound = std::shared_ptr<const KeyBound>;

namespace {
/// coefficient · key + the linear bound `rest`; or of key // `divisor`, if there is one.
struct Affine {
  int64_t coefficient = 0;
  Value divisor;
  KeyBound rest{KeyBound::Kind::Linear};
};
} // namespace

/// Whether sums of such constants stay in 64 bits. Others bound nothing.
static bool isSmall(int64_t constant) {
  constexpr int64_t largest = int64_t(1) << 60;
  return -largest <= constant && constant <= largest;
}

/// Adds `term`, or subtracts it where `factor` is −1. False where they are forms of different quotients, or where the
/// constant is too large.
static bool accumulate(Affine &sum, const Affine &term, int64_t factor) {
  if (sum.coefficient && term.coefficient && sum.divisor != term.divisor)
    return false;
  if (term.coefficient)
    sum.divisor = term.divisor;
  sum.coefficient += factor * term.coefficient;
  sum.rest.constant += factor * term.rest.constant;
  for (auto [value, coefficient] : term.rest.terms)
    sum.rest.terms.push_back({value, factor * coefficient});
  return isSmall(sum.rest.constant);
}

/// False where a number is too large. Halves of 64 bits, times a coefficient, are added up in 64 bits.
static bool multiplyBy(Affine &form, int64_t factor) {
  constexpr int64_t largest = 1 << 24;
  bool isExact = !llvm::MulOverflow(form.rest.constant, factor, form.rest.constant) && isSmall(form.rest.constant);
  auto multiply = [&](int64_t &coefficient) {
    isExact &= !llvm::MulOverflow(coefficient, factor, coefficient) && std::abs(coefficient) <= largest;
  };
  multiply(form.coefficient);
  for (auto &[value, coefficient] : form.rest.terms)
    multiply(coefficient);
  return isExact;
}

/// What `value` divides the key by, if it does, and if that is positive wherever there is a key: a number, or a size
/// that the number of keys is a multiple of. (n // 0 is 0 for all n, and bounds nothing.)
static Value divisorOfKey(Value value, BlockArgument key) {
  auto quotient = value.getDefiningOp<FloorDivOp>();
  std::optional<SizeAttr> divisor = quotient && quotient.getLhs() == key ? sizeOf(quotient.getRhs()) : std::nullopt;
  if (!divisor || !isNeverNegative(*divisor))
    return {};
  SizeAttr keys = indexSize(key);
  bool isPositive =
      divisor->isConstant() ? divisor->getValue() > 0 : keys.getKind() == SizeKind::Mul && keys.getRhs() == *divisor;
  return isPositive ? quotient.getRhs() : Value();
}

/// `value` as an affine form of the key, or nothing.
static std::optional<Affine> affine(Value value, BlockArgument key) {
  Affine result;
  result.divisor = divisorOfKey(value, key);
  if (value == key || result.divisor) {
    result.coefficient = 1;
    return result;
  }
  if (!dependence(value).contains(key)) {
    APInt constant;
    if (matchPattern(value, m_ConstantInt(&constant)))
      result.rest.constant = constant.getSExtValue();
    else
      result.rest.terms.push_back({value, 1});
    return isSmall(result.rest.constant) ? std::optional(result) : std::nullopt;
  }
  Operation *op = value.getDefiningOp();
  APInt factor;
  if (isa<arith::MulIOp>(op) && matchPattern(op->getOperand(1), m_ConstantInt(&factor))) {
    std::optional<Affine> product = affine(op->getOperand(0), key);
    return product && multiplyBy(*product, factor.getSExtValue()) ? product : std::nullopt;
  }
  if (!isa<arith::AddIOp, arith::SubIOp>(op))
    return std::nullopt;
  std::optional<Affine> lhs = affine(op->getOperand(0), key), rhs = affine(op->getOperand(1), key);
  if (!lhs || !rhs)
    return std::nullopt;
  bool isOne = accumulate(result, *lhs, 1) && accumulate(result, *rhs, isa<arith::AddIOp>(op) ? 1 : -1);
  return isOne ? std::optional(result) : std::nullopt;
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

static Bound quotient(Bound bound, int64_t divisor) {
  KeyBound result{KeyBound::Kind::Quotient};
  result.lhs = std::move(bound);
  result.constant = divisor;
  return std::make_shared<KeyBound>(result);
}

/// The keys whose quotients by `divisor` are in `range`.
static KeyRange timesDivisor(KeyRange range, Value divisor) {
  auto times = [&](Bound bound) {
    KeyBound result{KeyBound::Kind::Times};
    result.lhs = std::move(bound);
    result.factor = divisor;
    return result.lhs ? std::make_shared<KeyBound>(result) : Bound();
  };
  return {times(range.lower), times(range.upper)};
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
  bool rising = form.coefficient > 0;
  // At equality c · key = root, with c = |coefficient|. What decides is c · key < b or c · key >= b for some integer b
  // near the root, and so whether key < ⌈b / c⌉.
  int64_t sign = rising ? -1 : 1, divisor = std::abs(form.coefficient);
  auto bound = [&](int64_t offset) {
    Bound product = scaled(form.rest, sign, offset + divisor - 1);
    return divisor == 1 ? product : quotient(product, divisor);
  };
  auto below = [&](int64_t offset) -> KeyRange { return {nullptr, bound(offset)}; };
  auto above = [&](int64_t offset) -> KeyRange { return {bound(offset), nullptr}; };
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

/// An interval inside the union of two, as large as can be told from the text: half-lines on the same side are joined.
static KeyRange insideUnion(KeyRange a, KeyRange b) {
  if (!a.lower && !b.lower)
    return hull(a, b);
  if (!a.upper && !b.upper)
    return hull(a, b);
  return a;
}

static KeyRange nothing() { return {nullptr, std::make_shared<KeyBound>(KeyBound::Kind::Linear)}; }

static MaskRange intersection(const MaskRange &a, const MaskRange &b) {
  return {intersection(a.possible, b.possible), intersection(a.certain, b.certain)};
}

static MaskRange join(const MaskRange &a, const MaskRange &b) {
  return {hull(a.possible, b.possible), insideUnion(a.certain, b.certain)};
}

/// b `swapped(p)` a where a p b.
static arith::CmpIPredicate swapped(arith::CmpIPredicate predicate) {
  switch (predicate) {
  case arith::CmpIPredicate::slt:
    return arith::CmpIPredicate::sgt;
  case arith::CmpIPredicate::sle:
    return arith::CmpIPredicate::sge;
  case arith::CmpIPredicate::sgt:
    return arith::CmpIPredicate::slt;
  case arith::CmpIPredicate::sge:
    return arith::CmpIPredicate::sle;
  default:
    return predicate;
  }
}

/// Where lhs `predicate` sign · rhs holds.
static MaskRange comparison(arith::CmpIPredicate predicate, Value lhs, Value rhs, int64_t sign, BlockArgument key) {
  const MaskRange unknown = {KeyRange(), nothing()};
  std::optional<Affine> form = affine(lhs, key), other = affine(rhs, key);
  if (!form || !other || predicate == arith::CmpIPredicate::ne)
    return unknown;
  if (!accumulate(*form, *other, -sign) || form->coefficient == 0)
    return unknown;
  KeyRange range = comparison(predicate, *form);
  if (form->divisor)
    range = timesDivisor(range, form->divisor);
  return {range, range};
}

/// Where |x| `predicate` limit holds: |x| < c where x < c and x > −c, |x| > c where x > c or x < −c.
static MaskRange magnitude(arith::CmpIPredicate predicate, Value x, Value limit, BlockArgument key) {
  using arith::CmpIPredicate;
  bool isSmall = predicate == CmpIPredicate::slt || predicate == CmpIPredicate::sle;
  if (!isSmall && predicate != CmpIPredicate::sgt && predicate != CmpIPredicate::sge)
    return {KeyRange(), nothing()};
  MaskRange positive = comparison(predicate, x, limit, 1, key),
            negative = comparison(swapped(predicate), x, limit, -1, key);
  return isSmall ? intersection(positive, negative) : join(positive, negative);
}

static MaskRange rangeOf(Value condition, BlockArgument key, bool negated) {
  const MaskRange unknown = {KeyRange(), nothing()};
  APInt constant;
  if (matchPattern(condition, m_ConstantInt(&constant))) {
    KeyRange range = constant.getBoolValue() != negated ? KeyRange() : nothing();
    return {range, range};
  }
  Operation *op = condition.getDefiningOp();
  auto operand = [&](unsigned index, bool inverted) { return rangeOf(op->getOperand(index), key, inverted); };
  if (isa_and_nonnull<arith::AndIOp, arith::OrIOp>(op)) {
    MaskRange lhs = operand(0, negated), rhs = operand(1, negated);
    return isa<arith::AndIOp>(op) != negated ? intersection(lhs, rhs) : join(lhs, rhs);
  }
  if (auto exclusive = dyn_cast_or_null<arith::XOrIOp>(op))
    if (matchPattern(exclusive.getRhs(), m_One()))
      return operand(0, !negated);
  if (!dependence(condition).contains(key)) {
    if (negated)
      return unknown;
    KeyBound guard(KeyBound::Kind::Guard);
    guard.condition = condition;
    KeyRange range = {nullptr, std::make_shared<KeyBound>(guard)};
    return {range, range};
  }
  auto compare = dyn_cast_or_null<arith::CmpIOp>(op);
  if (!compare || !compare.getLhs().getType().isInteger(64))
    return unknown;
  auto predicate = negated ? arith::invertPredicate(compare.getPredicate()) : compare.getPredicate();
  if (auto absolute = compare.getLhs().getDefiningOp<math::AbsIOp>())
    return magnitude(predicate, absolute.getOperand(), compare.getRhs(), key);
  if (auto absolute = compare.getRhs().getDefiningOp<math::AbsIOp>())
    return magnitude(swapped(predicate), absolute.getOperand(), compare.getLhs(), key);
  return comparison(predicate, compare.getLhs(), compare.getRhs(), 1, key);
}

MaskRange attn::maskRange(Value condition, BlockArgument key) { return rangeOf(condition, key, /*negated=*/false); }

static bool areEqual(const Bound &a, const Bound &b) {
  if (a == b || !a || !b)
    return a == b;
  return a->kind == b->kind && a->constant == b->constant && a->terms == b->terms && a->condition == b->condition &&
         a->factor == b->factor && areEqual(a->lhs, b->lhs) && areEqual(a->rhs, b->rhs);
}

bool attn::isKeyRange(Value condition, BlockArgument key) {
  MaskRange range = maskRange(condition, key);
  return areEqual(range.possible.lower, range.certain.lower) && areEqual(range.possible.upper, range.certain.upper);
}

/// The most of 64 keys that one vector, or one element, has in a dimension of what is read: 0 if none has.
static int64_t keysAtOnce(ReadOp read, unsigned dimension, BlockArgument key) {
  constexpr int64_t most = 64;
  Value subscript = read.getSubscripts()[dimension];
  if (!dependence(subscript).contains(key))
    return most;
  APInt divisor;
  if (Value value = divisorOfKey(subscript, key))
    return matchPattern(value, m_ConstantInt(&divisor)) ? std::gcd(divisor.getSExtValue(), most) : 0;
  // A subscript that is clamped is a number for each key.
  ArrayRef<SizeAttr> shape = read.getTensor().getType().getShape();
  return subscript == key && dimension + 1 == shape.size() && shape[dimension] == indexSize(key) ? most : 0;
}

int64_t attn::keysSearchedAtOnce(Value condition, BlockArgument key) {
  constexpr int64_t least = 8;
  if (isKeyRange(condition, key))
    return 0;
  int64_t keys = 64;
  bool isDear = anyInSlice(condition, [&](Operation *op) {
    if (auto read = dyn_cast<ReadOp>(op))
      for (unsigned dimension = 0; dimension < read.getSubscripts().size(); ++dimension)
        keys = std::min(keys, keysAtOnce(read, dimension, key));
    // The rest of a distance leaves no gap, and a division for each pair takes long.
    if (isa<ModOp>(op) || (isa<FloorDivOp>(op) && !matchPattern(op->getOperand(1), m_Constant()))) {
      IndexSet indices = dependence(op->getResult(0));
      return indices.contains(key) && indices.size() > 1;
    }
    return isa<ReduceOp>(op) || isFunction(op);
  });
  return isDear || keys < least ? 0 : keys;
}

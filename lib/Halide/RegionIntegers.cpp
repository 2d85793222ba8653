//===- RegionIntegers.cpp - Integers, sizes and subscripts of regions ------===//
//
// Every integer has a range, found from those of its operands, which says whether 32 bits hold it.
//
//===----------------------------------------------------------------------===//

#include "Mathematics.h"
#include "Region.h"
#include "StepLowering.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/Matchers.h"

using Halide::cast;
using Halide::Expr;
using Halide::select;

namespace attn::lowering {

Scalar integer(Expr expr, IntegerRange range) {
  Halide::Type type = Halide::Int(range.fits32() ? 32 : 64);
  return {expr.type() == type ? expr : cast(type, expr), range};
}

/// A range from exact bounds; one that leaves 64 bits wraps, so nothing is known.
static IntegerRange rangeOf(__int128 low, __int128 high) {
  if (low < INT64_MIN || high > INT64_MAX)
    return {};
  return {static_cast<int64_t>(low), static_cast<int64_t>(high)};
}

static IntegerRange productRange(IntegerRange a, IntegerRange b) {
  __int128 corners[] = {(__int128)a.low * b.low, (__int128)a.low * b.high, (__int128)a.high * b.low,
                        (__int128)a.high * b.high};
  return rangeOf(*std::min_element(corners, corners + 4), *std::max_element(corners, corners + 4));
}

/// `op(a, b)` computed in the width that operands and result need.
template <typename Op> static Scalar combine(Scalar a, Scalar b, IntegerRange range, Op op) {
  bool narrow = a.range.fits32() && b.range.fits32() && range.fits32();
  Halide::Type type = Halide::Int(narrow ? 32 : 64);
  return integer(op(cast(type, a.expr), cast(type, b.expr)), range);
}

/// The same for sums and products. What may leave 64 bits wraps, and Halide must not move it to the other side of a
/// comparison, as it does with signed numbers.
template <typename Op> static Scalar combineWrapping(Scalar a, Scalar b, IntegerRange range, Op op) {
  // Halide makes uint64(x) of the bits of int64(x), which is another number of a negative float.
  auto isOfFloat = [](const Scalar &value) {
    const auto *conversion = value.expr.as<Halide::Internal::Cast>();
    return conversion && conversion->value.type().is_float();
  };
  if (range.low != INT64_MIN || range.high != INT64_MAX || isOfFloat(a) || isOfFloat(b))
    return combine(a, b, range, op);
  auto bits = [](const Scalar &value) { return Halide::reinterpret<uint64_t>(cast<int64_t>(value.expr)); };
  return {Halide::reinterpret<int64_t>(op(bits(a), bits(b))), range};
}

static Scalar add(Scalar a, Scalar b) {
  return combineWrapping(a, b, rangeOf((__int128)a.range.low + b.range.low, (__int128)a.range.high + b.range.high),
                         [](Expr x, Expr y) { return x + y; });
}

static Scalar subtract(Scalar a, Scalar b) {
  return combineWrapping(a, b, rangeOf((__int128)a.range.low - b.range.high, (__int128)a.range.high - b.range.low),
                         [](Expr x, Expr y) { return x - y; });
}

static Scalar multiply(Scalar a, Scalar b) {
  return combineWrapping(a, b, productRange(a.range, b.range), [](Expr x, Expr y) { return x * y; });
}

/// Halide divides with a remainder that is never negative and gives 0 for a divisor of 0: for divisors that are
/// not negative that is floor division. Others are made so: x / y = (−x) / (−y).
static Scalar floorDivide(Scalar a, Scalar b) {
  int64_t largest = std::max(std::abs(std::max(a.range.low, -INT64_MAX)), std::abs(std::max(a.range.high, -INT64_MAX)));
  IntegerRange range = {-largest, largest};
  if (a.range.low >= 0 && b.range.low >= 0)
    range.low = 0;
  bool negative = b.range.low < 0;
  return combine(a, b, range,
                 [&](Expr x, Expr y) { return negative ? select(y < 0, -x, x) / select(y < 0, -y, y) : x / y; });
}

static Scalar floorModulo(Scalar a, Scalar b) {
  if (b.range.low < 0) {
    Scalar quotient = floorDivide(a, b);
    Expr remainder = cast<int64_t>(a.expr) - cast<int64_t>(quotient.expr) * cast<int64_t>(b.expr);
    return integer(select(b.expr == 0, cast<int64_t>(0), remainder), b.range);
  }
  IntegerRange range = {0, b.range.high == 0 ? 0 : b.range.high - 1};
  return combine(a, b, range, [](Expr x, Expr y) { return x % y; });
}

Scalar lowerSize(StepLowering &kernel, SizeAttr size) {
  switch (size.getKind()) {
  case SizeKind::Constant:
    return integer(Halide::Internal::make_const(Halide::Int(64), size.getValue()), {size.getValue(), size.getValue()});
  case SizeKind::Name:
    return integer(kernel.size(size.getName()), {0, longestDimension});
  case SizeKind::Add:
    return add(lowerSize(kernel, size.getLhs()), lowerSize(kernel, size.getRhs()));
  case SizeKind::Sub:
    return subtract(lowerSize(kernel, size.getLhs()), lowerSize(kernel, size.getRhs()));
  case SizeKind::Mul:
    return multiply(lowerSize(kernel, size.getLhs()), lowerSize(kernel, size.getRhs()));
  case SizeKind::FloorDiv:
    return floorDivide(lowerSize(kernel, size.getLhs()), lowerSize(kernel, size.getRhs()));
  case SizeKind::Mod:
    return floorModulo(lowerSize(kernel, size.getLhs()), lowerSize(kernel, size.getRhs()));
  }
  llvm_unreachable("unknown size kind");
}

Expr extent(StepLowering &kernel, SizeAttr size) {
  auto both = [&](auto op) { return op(extent(kernel, size.getLhs()), extent(kernel, size.getRhs())); };
  switch (size.getKind()) {
  case SizeKind::Constant:
    return static_cast<int32_t>(size.getValue());
  case SizeKind::Name:
    return kernel.size(size.getName());
  case SizeKind::Add:
    return both([](Expr a, Expr b) { return a + b; });
  case SizeKind::Sub:
    return both([](Expr a, Expr b) { return a - b; });
  case SizeKind::Mul:
    return both([](Expr a, Expr b) { return a * b; });
  case SizeKind::FloorDiv:
    return both([](Expr a, Expr b) { return a / b; });
  case SizeKind::Mod:
    return both([](Expr a, Expr b) { return a % b; });
  }
  llvm_unreachable("unknown size kind");
}

Expr lastIndex(StepLowering &kernel, SizeAttr size) { return Halide::max(extent(kernel, size), 1) - 1; }

/// The low `bits` of an integer, as a signed number.
static Scalar wrapped(Expr value, unsigned bits) {
  IntegerRange range = {-(int64_t(1) << (bits - 1)), (int64_t(1) << (bits - 1)) - 1};
  return integer(convert(cast<int64_t>(value), Halide::Int(bits)), range);
}

Scalar RegionLowering::lowerInteger(mlir::Operation *op) {
  auto operand = [&](unsigned index) { return lower(op->getOperand(index)); };
  llvm::APInt constant;
  if (mlir::matchPattern(op->getResult(0), mlir::m_ConstantInt(&constant))) {
    int64_t value = constant.getSExtValue();
    return integer(Halide::Internal::make_const(Halide::Int(64), value), {value, value});
  }
  if (auto size = mlir::dyn_cast<SizeOp>(op))
    return lowerSize(kernel, size.getSize());
  if (mlir::isa<mlir::arith::AddIOp>(op))
    return add(operand(0), operand(1));
  if (mlir::isa<mlir::arith::SubIOp>(op))
    return subtract(operand(0), operand(1));
  if (mlir::isa<mlir::arith::MulIOp>(op))
    return multiply(operand(0), operand(1));
  if (mlir::isa<FloorDivOp>(op))
    return floorDivide(operand(0), operand(1));
  if (mlir::isa<ModOp>(op))
    return floorModulo(operand(0), operand(1));
  if (mlir::isa<mlir::arith::MaxSIOp, mlir::arith::MinSIOp>(op)) {
    bool largest = mlir::isa<mlir::arith::MaxSIOp>(op);
    Scalar a = operand(0), b = operand(1);
    auto pick = [&](int64_t x, int64_t y) { return largest ? std::max(x, y) : std::min(x, y); };
    IntegerRange range = {pick(a.range.low, b.range.low), pick(a.range.high, b.range.high)};
    return combine(a, b, range, [&](Expr x, Expr y) { return largest ? Halide::max(x, y) : Halide::min(x, y); });
  }
  if (auto choice = mlir::dyn_cast<mlir::arith::SelectOp>(op)) {
    Scalar a = lower(choice.getTrueValue()), b = lower(choice.getFalseValue());
    IntegerRange range = {std::min(a.range.low, b.range.low), std::max(a.range.high, b.range.high)};
    Expr condition = expression(choice.getCondition());
    return combine(a, b, range, [&](Expr x, Expr y) { return select(condition, x, y); });
  }
  if (mlir::isa<mlir::arith::FPToSIOp>(op)) {
    unsigned bits = op->getResult(0).getType().getIntOrFloatBitWidth();
    Scalar whole = {cast<int64_t>(operand(0).expr), {}};
    return bits == 64 ? whole : wrapped(whole.expr, bits);
  }
  if (auto widen = mlir::dyn_cast<mlir::arith::ExtUIOp>(op)) {
    unsigned bits = widen.getIn().getType().getIntOrFloatBitWidth();
    if (bits == 1)
      return integer(select(operand(0).expr, 1, 0), {0, 1});
    IntegerRange range = {0, (int64_t(1) << bits) - 1};
    return integer(convert(cast<int64_t>(operand(0).expr), Halide::UInt(bits)), range);
  }
  if (auto narrow = mlir::dyn_cast<mlir::arith::TruncIOp>(op))
    return wrapped(operand(0).expr, narrow.getType().getIntOrFloatBitWidth());
  if (mlir::isa<mlir::arith::ExtSIOp>(op))
    return operand(0);
  if (mlir::isa<mlir::math::AbsIOp>(op)) {
    Scalar a = operand(0);
    return {select(cast<int64_t>(a.expr) < 0, -cast<int64_t>(a.expr), cast<int64_t>(a.expr)), {}};
  }
  throw Unsupported("operation '" + op->getName().getStringRef().str() + "' on integers is not supported yet");
}

//===----------------------------------------------------------------------===//
// Subscripts
//===----------------------------------------------------------------------===//

Expr RegionLowering::subscript(ReadOp read, unsigned dimension) {
  return subscript(read, dimension, kernel.lastIndex(read.getTensor(), dimension));
}

Expr RegionLowering::subscript(ReadOp read, unsigned dimension, Expr top) {
  mlir::Value value = read.getSubscripts()[dimension];
  auto found = environment.indices.find(value);
  SizeAttr size = read.getTensor().getType().getShape()[dimension];
  if (found != environment.indices.end()) {
    // The variable itself: inside unless its loop is padded, or it is what `n + 0` of another dimension has become.
    bool isInside = !found->second.padded && isInRange(value, size);
    return isInside ? found->second.expr : Halide::clamp(found->second.expr, 0, top);
  }
  auto kept = environment.subscripts.find(value);
  if (kept != environment.subscripts.end() && Halide::Internal::equal(kept->second.top, top))
    return kept->second.expr;
  if (std::optional<TwoDigits> digits = TwoDigits::of(value); digits && isInRange(value, size))
    return Halide::clamp(expression(digits->high) * extent(kernel, indexSize(digits->low)) + expression(digits->low), 0,
                         top);
  Scalar index = lower(value);
  if (index.expr.type().bits() == 32)
    return Halide::clamp(index.expr, 0, top);
  return cast<int32_t>(Halide::clamp(index.expr, cast<int64_t>(0), cast<int64_t>(top)));
}

} // namespace attn::lowering

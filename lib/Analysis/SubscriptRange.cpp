//===- SubscriptRange.cpp - Which subscripts stay inside their dimension --===//

#include "attn/Analysis/Dependence.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "llvm/Support/CheckedArithmetic.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace attn;

/// Whether `value` is n // B for an index n of `size` · B.
static bool isQuotientInRange(Value value, SizeAttr size) {
  auto quotient = value.getDefiningOp<FloorDivOp>();
  auto index = quotient ? dyn_cast<BlockArgument>(quotient.getLhs()) : BlockArgument();
  if (!index || indexSize(index).getKind() != SizeKind::Mul)
    return false;
  SizeAttr whole = indexSize(index);
  return whole.getLhs() == size && sizeOf(quotient.getRhs()) == whole.getRhs();
}

std::optional<TwoDigits> TwoDigits::of(Value value) {
  auto sum = value.getDefiningOp<arith::AddIOp>();
  auto product = sum ? sum.getLhs().getDefiningOp<arith::MulIOp>() : arith::MulIOp();
  auto high = product ? dyn_cast<BlockArgument>(product.getLhs()) : BlockArgument();
  auto low = sum ? dyn_cast<BlockArgument>(sum.getRhs()) : BlockArgument();
  if (!high || !low || sizeOf(product.getRhs()) != indexSize(low))
    return std::nullopt;
  return TwoDigits{high, low};
}

/// Whether `value` is a number of two digits below `size`.
static bool areDigitsInRange(Value value, SizeAttr size) {
  std::optional<TwoDigits> digits = TwoDigits::of(value);
  return digits && size.getKind() == SizeKind::Mul && indexSize(digits->high) == size.getLhs() &&
         indexSize(digits->low) == size.getRhs();
}

namespace {
/// The least and the greatest of what an integer may be.
struct Bounds {
  int64_t least, greatest;
};
} // namespace

/// What `a` and `b` give by `operation`, which is least and greatest where they are; nothing where 64 bits do not hold
/// it.
static std::optional<Bounds> combine(Bounds a, Bounds b,
                                     llvm::function_ref<std::optional<int64_t>(int64_t, int64_t)> operation) {
  std::optional<Bounds> result;
  for (int64_t x : {a.least, a.greatest})
    for (int64_t y : {b.least, b.greatest}) {
      std::optional<int64_t> value = operation(x, y);
      if (!value)
        return std::nullopt;
      result =
          result ? Bounds{std::min(result->least, *value), std::max(result->greatest, *value)} : Bounds{*value, *value};
    }
  return result;
}

/// Between which numbers `value` is, if the sizes that say it are known and it is made of at most `steps` numbers, which
/// are counted: what a formula uses twice is looked at twice.
static std::optional<Bounds> boundsOf(Value value, unsigned &steps) {
  if (steps == 0)
    return std::nullopt;
  --steps;
  if (auto index = dyn_cast<BlockArgument>(value)) {
    SizeAttr size = indexSize(index);
    return size.isConstant() && size.getValue() > 0 ? std::optional(Bounds{0, size.getValue() - 1}) : std::nullopt;
  }
  if (std::optional<SizeAttr> size = sizeOf(value); size && size->isConstant())
    return Bounds{size->getValue(), size->getValue()};
  Operation *op = value.getDefiningOp();
  if (op->getNumOperands() != 2)
    return std::nullopt;
  auto isKnown = [](Operation *op) {
    return isa<arith::AddIOp, arith::SubIOp, arith::MulIOp, FloorDivOp, ModOp, arith::MinSIOp, arith::MaxSIOp>(op);
  };
  std::optional<Bounds> a = isKnown(op) ? boundsOf(op->getOperand(0), steps) : std::nullopt;
  std::optional<Bounds> b = a ? boundsOf(op->getOperand(1), steps) : std::nullopt;
  if (!b || (isa<FloorDivOp, ModOp>(op) && b->least <= 0))
    return std::nullopt;
  if (isa<ModOp>(op))
    return Bounds{0, b->greatest - 1};
  return combine(*a, *b, [&](int64_t x, int64_t y) -> std::optional<int64_t> {
    if (isa<arith::AddIOp>(op))
      return llvm::checkedAdd(x, y);
    if (isa<arith::SubIOp>(op))
      return llvm::checkedSub(x, y);
    if (isa<arith::MulIOp>(op))
      return llvm::checkedMul(x, y);
    if (isa<FloorDivOp>(op))
      return llvm::divideFloorSigned(x, y);
    return isa<arith::MinSIOp>(op) ? std::min(x, y) : std::max(x, y);
  });
}

bool attn::isInRange(Value subscript, SizeAttr size) {
  if (auto index = dyn_cast<BlockArgument>(subscript))
    return indexSize(index) == size;
  if (auto remainder = subscript.getDefiningOp<ModOp>(); remainder && sizeOf(remainder.getRhs()) == size)
    return true;
  if (isQuotientInRange(subscript, size) || areDigitsInRange(subscript, size))
    return true;
  unsigned steps = 64;
  std::optional<Bounds> bounds = size.isConstant() ? boundsOf(subscript, steps) : std::nullopt;
  return bounds && bounds->least >= 0 && bounds->greatest < size.getValue();
}

bool attn::isInRange(ReadOp read) {
  AttnTensorType type = read.getTensor().getType();
  return llvm::all_of(llvm::zip_equal(read.getSubscripts(), type.getShape()), [](auto pair) {
    auto [subscript, size] = pair;
    return isInRange(subscript, size);
  });
}

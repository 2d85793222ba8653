//===- SubscriptRange.cpp - Which subscripts stay inside their dimension --===//

#include "attn/Analysis/Dependence.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Interfaces/Utils/InferIntRangeCommon.h"

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

/// Between which numbers `value` is, as sizes that are known say; any where they do not, or where it is made of more
/// than `steps` numbers, which are counted: what a formula uses twice is looked at twice.
static ConstantIntRanges rangeOf(Value value, unsigned &steps) {
  ConstantIntRanges any = ConstantIntRanges::maxRange(64);
  auto between = [](int64_t least, int64_t greatest) {
    return ConstantIntRanges::fromSigned(APInt(64, least, /*isSigned=*/true), APInt(64, greatest, /*isSigned=*/true));
  };
  if (steps == 0 || !value.getType().isInteger(64))
    return any;
  --steps;
  if (auto index = dyn_cast<BlockArgument>(value)) {
    SizeAttr size = indexSize(index);
    return size.isConstant() && size.getValue() > 0 ? between(0, size.getValue() - 1) : any;
  }
  if (std::optional<SizeAttr> size = sizeOf(value); size && size->isConstant())
    return between(size->getValue(), size->getValue());
  Operation *op = value.getDefiningOp();
  if (!isa<arith::AddIOp, arith::SubIOp, arith::MulIOp, arith::MinSIOp, arith::MaxSIOp, FloorDivOp, ModOp>(op))
    return any;
  ConstantIntRanges operands[] = {rangeOf(op->getOperand(0), steps), rangeOf(op->getOperand(1), steps)};
  if (isa<arith::AddIOp>(op))
    return intrange::inferAdd(operands);
  if (isa<arith::SubIOp>(op))
    return intrange::inferSub(operands);
  if (isa<arith::MulIOp>(op))
    return intrange::inferMul(operands);
  if (isa<arith::MinSIOp>(op))
    return intrange::inferMinS(operands);
  if (isa<arith::MaxSIOp>(op))
    return intrange::inferMaxS(operands);
  if (!operands[1].smin().isStrictlyPositive())
    return any;
  return isa<FloorDivOp>(op) ? intrange::inferFloorDivS(operands) : between(0, operands[1].smax().getSExtValue() - 1);
}

bool attn::isInRange(Value subscript, SizeAttr size) {
  if (auto index = dyn_cast<BlockArgument>(subscript))
    return indexSize(index) == size;
  if (auto remainder = subscript.getDefiningOp<ModOp>(); remainder && sizeOf(remainder.getRhs()) == size)
    return true;
  if (isQuotientInRange(subscript, size) || areDigitsInRange(subscript, size))
    return true;
  if (!size.isConstant())
    return false;
  unsigned steps = 64;
  ConstantIntRanges range = rangeOf(subscript, steps);
  return range.smin().isNonNegative() && range.smax().slt(size.getValue());
}

bool attn::isInRange(ReadOp read) {
  AttnTensorType type = read.getTensor().getType();
  return llvm::all_of(llvm::zip_equal(read.getSubscripts(), type.getShape()), [](auto pair) {
    auto [subscript, size] = pair;
    return isInRange(subscript, size);
  });
}

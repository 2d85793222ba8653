//===- Finiteness.cpp - Values that are never infinite or NaN -------------===//

#include "attn/Analysis/Finiteness.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace attn;

/// The tensor of whose elements `value` is the largest magnitude, times some magnitude; or null.
static Value magnitudeOf(Value value) {
  if (auto product = value.getDefiningOp<arith::MulFOp>())
    return product.getRhs().getDefiningOp<math::AbsFOp>() ? magnitudeOf(product.getLhs()) : Value();
  auto reduce = value.getDefiningOp<ReduceOp>();
  if (!reduce || reduce.getKind() != ReduceKind::Max || reduce.isConditional())
    return {};
  auto magnitude = yielded(reduce.getBody()).getDefiningOp<math::AbsFOp>();
  auto read = magnitude ? magnitude.getOperand().getDefiningOp<ReadOp>() : ReadOp();
  // All elements: each subscript is an index variable of the reduction.
  if (!read || llvm::any_of(read.getSubscripts(), [&](Value subscript) {
        auto index = dyn_cast<BlockArgument>(subscript);
        return !index || index.getParentRegion() != &reduce.getBody();
      }))
    return {};
  return read.getTensor();
}

static void collect(Value condition, TensorSet &finite) {
  Operation *op = condition.getDefiningOp();
  if (isa_and_nonnull<arith::AndIOp>(op))
    for (Value operand : op->getOperands())
      collect(operand, finite);
  if (auto read = dyn_cast_or_null<ReadOp>(op); read && read.getSubscripts().empty())
    if (auto flag = read.getTensor().getDefiningOp<TensorOp>())
      collect(yielded(flag.getBody()), finite);
  auto comparison = dyn_cast_or_null<arith::CmpFOp>(op);
  FloatAttr limit;
  if (!comparison || comparison.getPredicate() != arith::CmpFPredicate::OLE ||
      !matchPattern(comparison.getRhs(), m_Constant(&limit)) || !limit.getValue().isFinite())
    return;
  // An infinite or NaN magnitude makes its product with another infinite or NaN, also where that is 0.
  if (Value tensor = magnitudeOf(comparison.getLhs()))
    finite.insert(tensor);
}

TensorSet attn::finiteWhere(Value condition) {
  TensorSet finite;
  collect(condition, finite);
  return finite;
}

/// `proven` are values that are: a formula may use one twice, many times over.
static bool isFinite(Value value, const TensorSet &finite, DenseSet<Value> &proven) {
  Operation *op = value.getDefiningOp();
  if (!isa<FloatType>(value.getType()) || proven.contains(value))
    return true;
  FloatAttr constant;
  if (matchPattern(value, m_Constant(&constant)))
    return constant.getValue().isFinite();
  if (auto read = dyn_cast<ReadOp>(op))
    return finite.contains(read.getTensor());
  if (isa<arith::SIToFPOp, arith::UIToFPOp>(op))
    return true;
  if (auto root = dyn_cast<math::SqrtOp>(op)) {
    auto number = root.getOperand().getDefiningOp<arith::SIToFPOp>();
    return number && number.getIn().getDefiningOp<SizeOp>();
  }
  bool keeps = isa<arith::AddFOp, arith::SubFOp, arith::MulFOp, arith::NegFOp, arith::SelectOp, arith::MaximumFOp,
                   arith::MinimumFOp, math::AbsFOp>(op);
  if (!keeps || !llvm::all_of(op->getOperands(), [&](Value operand) { return isFinite(operand, finite, proven); }))
    return false;
  proven.insert(value);
  return true;
}

bool attn::isFinite(Value value, const TensorSet &finite) {
  DenseSet<Value> proven;
  return ::isFinite(value, finite, proven);
}

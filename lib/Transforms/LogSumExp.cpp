//===- LogSumExp.cpp - Weights from the log-sum-exp of their row ----------===//

#include "LogSumExp.h"
#include "Scores.h"
#include "Slice.h"
#include "Statement.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

#include <limits>

using namespace mlir;
using namespace attn;

TensorOp attn::writeLogSumExp(TensorOp softmax, StringRef name, OpBuilder &builder) {
  auto reduce = yielded(softmax.getBody()).getDefiningOp<ReduceOp>();
  SmallVector<BlockArgument> rows(softmax.getBody().getArguments());
  llvm::erase_if(rows, [&](Value index) { return llvm::is_contained(reduce.getAt(), index); });
  Statement sum{name.str(), llvm::map_to_vector(rows, axisOf), {}, reduce.getType(), nullptr};
  sum.term = [&](OpBuilder &builder, Indices indices) -> Value {
    IRMapping mapping;
    mapping.map(ArrayRef<BlockArgument>(rows), indices);
    for (Value at : reduce.getAt()) // a log-sum-exp has none
      mapping.map(at, at);
    auto copy = cast<ReduceOp>(cloneSlice(reduce.getResult(), mapping, builder).getDefiningOp());
    copy.setKind(ReduceKind::LogSumExp);
    copy.getAtMutable().clear();
    return copy.getResult();
  };
  return sum.write(softmax->getParentOfType<KernelOp>(), builder, softmax.getLoc());
}

Value attn::finiteLogSumExp(Value sum, OpBuilder &builder, Location location) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  auto constant = [&](double value) { return floatConstant(value, sum.getType(), builder, location); };
  Value isEmpty = arith::CmpFOp::create(builder, location, arith::CmpFPredicate::OEQ, sum, constant(-infinity));
  return arith::SelectOp::create(builder, location, isEmpty, constant(infinity), sum);
}

Value attn::weightOf(Value score, Value sum, OpBuilder &builder, Location location) {
  Value exponent = arith::SubFOp::create(builder, location, score, finiteLogSumExp(sum, builder, location));
  // No score is larger than its log-sum-exp, and weights that are no normal numbers may be 0.
  return math::ExpOp::create(builder, location, exponent, arith::FastMathFlags::afn);
}

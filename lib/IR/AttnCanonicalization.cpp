//===- AttnCanonicalization.cpp - Rewrites that always simplify -----------===//
//
// A condition that is always true is dropped: from a reduction, from a weighted sum, and as the mask of a softmax.
// A result of a softmax that nobody uses loses its name, which says that it need not be computed.
//
//===----------------------------------------------------------------------===//

#include "attn/IR/Attn.h"

#include "mlir/IR/Matchers.h"
#include "mlir/IR/PatternMatch.h"

using namespace mlir;
using namespace attn;

/// Whether `region` yields true whatever its arguments are.
static bool isAlwaysTrue(Region &region) { return !region.empty() && matchPattern(yielded(region), m_One()); }

/// Leaves `region` without a block.
static void clear(Region &region, Operation *op, PatternRewriter &rewriter) {
  rewriter.modifyOpInPlace(op, [&] { rewriter.eraseBlock(&region.front()); });
}

LogicalResult ReduceOp::canonicalize(ReduceOp op, PatternRewriter &rewriter) {
  if (!isAlwaysTrue(op.getWhere()))
    return failure();
  clear(op.getWhere(), op, rewriter);
  return success();
}

LogicalResult WeightedSumOp::canonicalize(WeightedSumOp op, PatternRewriter &rewriter) {
  if (!isAlwaysTrue(op.getWhere()))
    return failure();
  clear(op.getWhere(), op, rewriter);
  return success();
}

LogicalResult SoftmaxOp::canonicalize(SoftmaxOp op, PatternRewriter &rewriter) {
  auto mask = op.getMask() ? op.getMask().getDefiningOp<MaskOp>() : MaskOp();
  if (mask && isAlwaysTrue(mask.getBody())) {
    rewriter.modifyOpInPlace(op, [&] { op.getMaskMutable().clear(); });
    return success();
  }
  bool weight = op.getWeight().use_empty() && !op.getName().empty();
  bool logsumexp = op.getLogsumexp().use_empty() && !op.getLogsumexpName().empty();
  if (!weight && !logsumexp)
    return failure();
  rewriter.modifyOpInPlace(op, [&] {
    if (weight)
      op.setName("");
    if (logsumexp)
      op.setLogsumexpName("");
  });
  return success();
}

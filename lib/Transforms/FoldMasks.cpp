//===- FoldMasks.cpp - Masks that are made of sums join their scores ------===//
//
//   weight[m, n] = softmax[n](score[m, n] where n <= m and score[m, n] > -inf)
//
// where the score is a dot product, becomes
//
//   weight[m, n] = softmax[n](select(score[m, n] > -inf, score[m, n], -inf) where n <= m)
//
// A key whose score is −inf is masked. So the sums of a mask are products of queries and keys as those of a score, and
// shared with them; what is left of the mask bounds the keys.
//
//===----------------------------------------------------------------------===//

#include "Conjunction.h"
#include "Scores.h"
#include "Slice.h"
#include "attn/Analysis/Dependence.h"
#include "attn/Transforms/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

#include <cmath>

using namespace mlir;
using namespace attn;

namespace attn {
#define GEN_PASS_DEF_ATTNFOLDMASKS
#include "attn/Transforms/Passes.h.inc"
} // namespace attn

/// Makes the score of `reduce` −inf where `condition`, which is of its `where`, is false.
static void foldInto(ReduceOp reduce, Value condition) {
  Block &body = reduce.getBody().front(), &where = reduce.getWhere().front();
  OpBuilder builder(body.getTerminator());
  IRMapping mapping;
  for (BlockArgument index : dependence(condition))
    mapping.map(index, index.getOwner() == &where ? body.getArgument(index.getArgNumber()) : index);
  Value isVisible = cloneSlice(condition, mapping, builder), score = yielded(reduce.getBody());
  Value hidden = floatConstant(-INFINITY, score.getType(), builder, condition.getLoc());
  Value folded = arith::SelectOp::create(builder, condition.getLoc(), isVisible, score, hidden);
  body.getTerminator()->setOperand(0, folded);
}

static void foldMask(ReduceOp reduce) {
  SmallVector<Value> left;
  for (Value condition : conjunctsOf(yielded(reduce.getWhere())))
    if (reduces(condition))
      foldInto(reduce, condition);
    else
      left.push_back(condition);
  setConditions(reduce, left);
}

namespace {
struct FoldMasks : attn::impl::AttnFoldMasksBase<FoldMasks> {
  void runOnOperation() override {
    getOperation().walk([](ReduceOp reduce) {
      if (isExponential(reduce.getKind()) && reduce.isConditional() && !reduce.getWhere().getOps<ReduceOp>().empty())
        foldMask(reduce);
    });
  }
};
} // namespace

//===- SumWeights.cpp - Sums for what nobody sums but the log-sum-exp -----===//
//
//   weight, lse = softmax(score)
//   half[m]     = lse[m] / 2
//
// becomes
//
//   weight, lse        = softmax(score)
//   lse_sum[m, one: 1] = sum[n](weight[m, n])
//   half[m]            = lse[m] / 2
//
// What computes a weighted sum has the log-sum-exp of its weights at hand, from scores of a whole tile of queries. The
// sum is 1, and nobody reads it. By itself a log-sum-exp is computed row by row: those of 8 heads of 1024 queries and
// keys of width 64 take 98 ms then (one thread, Zen 3), and with the sum 17.
//
//===----------------------------------------------------------------------===//

#include "Form.h"
#include "Scores.h"
#include "attn/Analysis/Fusion.h"
#include "attn/Transforms/Passes.h"

#include "mlir/IR/Builders.h"

using namespace mlir;
using namespace attn;

namespace attn {
#define GEN_PASS_DEF_ATTNSUMWEIGHTS
#include "attn/Transforms/Passes.h.inc"
} // namespace attn

/// The position of the query among the rows of `softmax`: the last row that some of its keys do not depend on.
static std::optional<unsigned> queryOf(SoftmaxOp softmax) {
  Block &scores = bodyOf(softmax.getScore()).front();
  IndexSet queries = queryIndices({softmax.getScore().getDefiningOp(), &scores, scores.getArguments().back()});
  return queries.empty() ? std::nullopt : std::optional(queries.back().getArgNumber());
}

/// Whether a weighted sum stores the log-sum-exp of `softmax`.
static bool hasSum(SoftmaxOp softmax) {
  return llvm::any_of(softmax.getWeight().getUsers(), [](Operation *user) {
    auto sum = user->getParentOfType<WeightedSumOp>();
    return sum && logSumExpBeside(sum);
  });
}

static void addSum(SoftmaxOp softmax, unsigned query) {
  auto score = cast<ScoreOp>(softmax.getScore().getDefiningOp());
  OpBuilder builder(softmax.getContext());
  builder.setInsertionPointAfter(softmax);
  Type element = softmax.getWeight().getType().getElementType();
  ArrayRef<SizeAttr> sizes = softmax.getWeight().getType().getShape();
  ArrayRef<Attribute> indices = score.getIndices().getValue();
  SmallVector<SizeAttr> shape(sizes.drop_back());
  SmallVector<Attribute> names(indices.drop_back());
  shape.push_back(SizeAttr::constant(builder.getContext(), 1));
  names.push_back(builder.getStringAttr("one"));
  std::string name = freshName(softmax->getParentOfType<KernelOp>(), (softmax.getLogsumexpName() + "_sum").str());
  auto sum = WeightedSumOp::create(builder, softmax.getLoc(), AttnTensorType::get(builder.getContext(), shape, element),
                                   name, builder.getArrayAttr(names), cast<StringAttr>(indices.back()).getValue(),
                                   sizes.back(), query);
  Block &body = sum.getBody().emplaceBlock();
  for (size_t argument = 0; argument <= names.size(); ++argument)
    body.addArgument(builder.getI64Type(), softmax.getLoc());
  builder.setInsertionPointToEnd(&body);
  SmallVector<Value> subscripts(body.getArguments().drop_back(2));
  subscripts.push_back(body.getArguments().back());
  Value weight = ReadOp::create(builder, softmax.getLoc(), softmax.getWeight(), subscripts);
  Value one = floatConstant(1.0, element, builder, softmax.getLoc());
  YieldOp::create(builder, softmax.getLoc(), ValueRange{weight, one});
  if (!isTileable(sum) || !logSumExpBeside(sum))
    sum.erase();
}

namespace {
struct SumWeights : attn::impl::AttnSumWeightsBase<SumWeights> {
  void runOnOperation() override {
    for (SoftmaxOp softmax : llvm::to_vector(getOperation().getBody().front().getOps<SoftmaxOp>()))
      if (std::optional<unsigned> query = queryOf(softmax);
          query && !softmax.getLogsumexp().use_empty() && !hasSum(softmax))
        addSum(softmax, *query);
  }
};
} // namespace

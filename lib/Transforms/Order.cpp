//===- Order.cpp - Weighted sums come before readers of a log-sum-exp -----===//
//
//   weight, lse = softmax(score)
//   half[m]     = lse[m] / 2
//   out[m, e]   = sum[n](weight[m, n] * v[n, e])
//
// computes half after out. What computes a weighted sum has the log-sum-exp of its weights at hand, and stores it; a
// statement that needs it before would have all scores computed twice.
//
//===----------------------------------------------------------------------===//

#include "attn/Analysis/Dependence.h"
#include "attn/Analysis/Fusion.h"
#include "attn/Transforms/Passes.h"

#include "llvm/ADT/DenseSet.h"

using namespace mlir;
using namespace attn;

namespace attn {
#define GEN_PASS_DEF_ATTNORDER
#include "attn/Transforms/Passes.h.inc"
} // namespace attn

/// Moves the statements between `softmax` and `sum` that cannot be computed without the log-sum-exp behind `sum`.
static void orderReaders(SoftmaxOp softmax, WeightedSumOp sum) {
  llvm::DenseSet<Value> tensors = {softmax.getLogsumexp()};
  auto isLate = [&](Value operand) { return tensors.contains(operand); };
  SmallVector<Operation *> readers;
  for (Operation *op = softmax->getNextNode(); op != sum; op = op->getNextNode())
    if (uses(op, isLate)) {
      readers.push_back(op);
      tensors.insert(op->result_begin(), op->result_end());
    }
  if (uses(sum, isLate))
    return;
  Operation *last = sum;
  for (Operation *reader : readers) {
    reader->moveAfter(last);
    last = reader;
  }
}

namespace {
struct Order : attn::impl::AttnOrderBase<Order> {
  void runOnOperation() override {
    for (WeightedSumOp sum : llvm::to_vector(getOperation().getBody().front().getOps<WeightedSumOp>()))
      if (SoftmaxOp softmax = softmaxOf(sum))
        orderReaders(softmax, sum);
  }
};
} // namespace

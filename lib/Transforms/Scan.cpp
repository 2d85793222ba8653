//===- Scan.cpp - Running totals become tensors ----------------------------===//
//
//   rest[m, n]   = sum[j](log(1 - sigmoid(sum[d](q[m, d] * k[j, d]))) where n < j)
//   weight[m, n] = exp(score[m, n] + rest[m, n])
//
// is of M·N·N terms, each a dot product. As tensors
//
//   rest_sum[m, j]  = sum[d](q[m, d] * k[j, d])
//   rest[m, n]      = sum[j](log(1 - sigmoid(rest_sum[m, j])) where n < j)
//
// they are of M·N: a plan visits the terms of a row once (lib/Halide/ScanLoop.h).
//
//===----------------------------------------------------------------------===//

#include "attn/Analysis/Scan.h"
#include "Conjunction.h"
#include "Rewrites.h"
#include "Scores.h"
#include "Slice.h"
#include "attn/Analysis/Dependence.h"
#include "attn/Transforms/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace attn;

namespace attn {
#define GEN_PASS_DEF_ATTNSCAN
#include "attn/Transforms/Passes.h.inc"
} // namespace attn

/// Makes a tensor of the terms of `scan`, in the formula of `tensor`: 0 where its conditions leave them out.
static void storeTerms(const Scan &scan, TensorOp tensor) {
  ReduceOp reduce = scan.reduce;
  auto read = yielded(reduce.getBody()).getDefiningOp<ReadOp>();
  if (read && scan.conditions.empty() && llvm::all_of(read.getSubscripts(), llvm::IsaPred<BlockArgument>))
    return;
  Operation *yield = reduce.getBody().front().getTerminator();
  OpBuilder builder(yield);
  Value term = yield->getOperand(0);
  if (!scan.conditions.empty()) {
    IRMapping mapping;
    for (BlockArgument index : dependence(scan.conditions))
      mapping.map(index, index);
    mapping.map(reduce.getWhere().getArgument(0), reduce.getBody().getArgument(0));
    SmallVector<Value> conditions;
    for (Value condition : scan.conditions)
      conditions.push_back(cloneSlice(condition, mapping, builder));
    Value zero = floatConstant(0, term.getType(), builder, reduce.getLoc());
    term = arith::SelectOp::create(builder, reduce.getLoc(), conjunction(conditions, builder), term, zero);
  }
  yield->setOperand(0, hoist(term, tensor, (tensor.getName() + "_term").str(), builder));
  eraseUnused(reduce.getBody().front());
  setConditions(reduce, scan.comparison);
}

namespace {
struct Scans : attn::impl::AttnScanBase<Scans> {
  using AttnScanBase::AttnScanBase;

  void runOnOperation() override {
    for (TensorOp tensor : llvm::to_vector(getOperation().getBody().front().getOps<TensorOp>())) {
      SmallVector<ReduceOp> reductions; // the innermost first
      tensor.getBody().walk([&](ReduceOp reduce) { reductions.push_back(reduce); });
      for (ReduceOp reduce : reductions)
        if (std::optional<Scan> scan = Scan::of(reduce);
            scan && dependence(reduce.getResult()).size() <= tensor.getBody().getNumArguments())
          storeScan(*scan, tensor);
    }
  }

  void storeScan(const Scan &scan, TensorOp tensor) {
    ReduceOp reduce = scan.reduce;
    for (ReduceOp inner : llvm::to_vector(reduce.getBody().getOps<ReduceOp>()))
      splitOff(inner, tensor, "_" + stringifyReduceKind(inner.getKind()));
    if (differentiated && reduce.getKind() == ReduceKind::Sum && isa<FloatType>(reduce.getType()))
      storeTerms(scan, tensor);
    if (yielded(tensor.getBody()) == reduce.getResult())
      return;
    noteRewrite(tensor, "scan",
                "a reduction in '" + tensor.getName() + "' of the terms up to '" + indexName(scan.end) +
                    "' is a tensor of its own, whose elements follow one from the other");
    splitOff(reduce, tensor, "_scan");
  }
};
} // namespace

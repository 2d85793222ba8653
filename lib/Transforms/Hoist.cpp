//===- Hoist.cpp - What one side of a pair decides is computed once -------===//
//
//   score[m, n] = sum[d](q[m, d] * k[n, d]) * rsqrt(sum[d](k[n, d] ** 2))
//
// becomes
//
//   norm[n]     = rsqrt(sum[d](k[n, d] ** 2))
//   score[m, n] = sum[d](q[m, d] * k[n, d]) * norm[n]
//
// Of what depends on the query alone the lowering computes one number a query anyway; it is hoisted only where it is a
// reduction within a reduction.
//
//===----------------------------------------------------------------------===//

#include "Rewrites.h"
#include "Scores.h"
#include "attn/Analysis/Cost.h"
#include "attn/Transforms/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/Builders.h"

using namespace mlir;
using namespace attn;

namespace attn {
#define GEN_PASS_DEF_ATTNHOIST
#include "attn/Transforms/Passes.h.inc"
} // namespace attn

/// Whether an element costs more than reading it: reductions, divisions and functions do.
static bool isCostly(Value value) {
  return anyInSlice(value, [](Operation *op) { return isFunction(op) || isa<ReduceOp, arith::DivFOp>(op); });
}

namespace {
struct Hoist : attn::impl::AttnHoistBase<Hoist> {
  void runOnOperation() override {
    for (const PairFormula &formula : pairFormulas(getOperation())) {
      seen.clear();
      seenNested.clear();
      IndexSet queries = queryIndices(formula);
      hoistFrom(formula.value(), false, formula, queries);
      if (auto sum = dyn_cast<WeightedSumOp>(formula.op))
        hoistFrom(yielded(sum.getBody(), 1), false, formula, queries);
    }
  }

  void hoistFrom(Value value, bool nested, const PairFormula &formula, const IndexSet &queries);

  llvm::DenseSet<Operation *> seen, seenNested; ///< What hoistFrom has looked at, within a reduction or not.
};
} // namespace

void Hoist::hoistFrom(Value value, bool nested, const PairFormula &formula, const IndexSet &queries) {
  Operation *op = value.getDefiningOp();
  if (!op || isa<AttnTensorType>(value.getType()) || !(nested ? seenNested : seen).insert(op).second)
    return;
  IndexSet used = dependence(value);
  bool keys = used.contains(formula.key), query = llvm::any_of(queries, [&](auto row) { return used.contains(row); });
  bool worthwhile = keys ? !query && !queries.empty() && isCostly(value) : nested && reduces(value);
  if (worthwhile && isa<FloatType>(value.getType())) {
    OpBuilder builder(op);
    StringRef base = cast<DefinitionOpInterface>(formula.op).getName();
    Value element = hoist(value, formula.op, (base + (keys ? "_key" : "_query")).str(), builder);
    StringRef name = cast<TensorOp>(element.getDefiningOp<ReadOp>().getTensor().getDefiningOp()).getName();
    noteRewrite(formula.op, "hoist",
                "a part of '" + base + "' depends on the " + (keys ? "key" : "query") +
                    " alone; it is computed once, as '" + name + "'");
    value.replaceAllUsesWith(element);
    return;
  }
  for (Value operand : llvm::to_vector(op->getOperands()))
    hoistFrom(operand, nested, formula, queries);
  for (Region &region : op->getRegions())
    if (!region.empty())
      hoistFrom(yielded(region), true, formula, queries);
}

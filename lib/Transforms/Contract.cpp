//===- Contract.cpp - Sums of products become dot products ----------------===//
//
//   score[m, n] = sum[d](q[m, d] * k[n, d] / temperature[m] * gain[d])
//
// becomes
//
//   score[m, n] = sum[d]((q[m, d] / temperature[m] * gain[d]) * k[n, d])
//
// What does not depend on the key comes first, in the order it was written: the lowering computes it once for a query,
// and a pair costs one multiply-add a term. The factors stay inside the sum, so that an infinite one, or a sum over
// nothing, gives what it gave.
//
//===----------------------------------------------------------------------===//

#include "Rewrites.h"
#include "Scores.h"
#include "attn/Transforms/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/Builders.h"

using namespace mlir;
using namespace attn;

namespace attn {
#define GEN_PASS_DEF_ATTNCONTRACT
#include "attn/Transforms/Passes.h.inc"
} // namespace attn

namespace {
/// A factor of a term, or a divisor.
struct TermFactor {
  Value value;
  bool divides;
};

/// A term of a sum by its factors, and how many operations on it the key takes part in.
struct DotTerm {
  SmallVector<TermFactor> rows, keys;
  int keyed = 0;
  bool negative = false;
};
} // namespace

static void collect(Value value, bool divides, const PairFormula &formula, DotTerm &term) {
  Operation *op = value.getDefiningOp();
  bool inner = op && value.hasOneUse() && formula.dependsOnKey(value);
  // A quotient stays whole below a division, and where the key is in the divisor alone: it is a function, as in 1 / (1
  // + e^x).
  bool whole = inner && isa<arith::DivFOp>(op) && (divides || !formula.dependsOnKey(op->getOperand(0)));
  if (!inner || whole || !isa<arith::MulFOp, arith::DivFOp, arith::NegFOp>(op)) {
    (formula.dependsOnKey(value) ? term.keys : term.rows).push_back({value, divides});
    return;
  }
  ++term.keyed;
  if (isa<arith::NegFOp>(op))
    term.negative = !term.negative;
  collect(op->getOperand(0), divides, formula, term);
  if (op->getNumOperands() == 2)
    collect(op->getOperand(1), divides || isa<arith::DivFOp>(op), formula, term);
}

/// The product of `factors`, after `start` if there is one.
static Value productOf(Value start, ArrayRef<TermFactor> factors, OpBuilder &builder, Location location) {
  for (const TermFactor &factor : factors) {
    if (factor.divides) {
      if (!start)
        start = floatConstant(1, factor.value.getType(), builder, location);
      start = arith::DivFOp::create(builder, location, start, factor.value);
    } else {
      start = start ? arith::MulFOp::create(builder, location, start, factor.value).getResult() : factor.value;
    }
  }
  return start;
}

/// Reorders the product that `reduce` sums. Returns whether a pair costs less.
static bool contract(ReduceOp reduce, const PairFormula &formula) {
  if (reduce.getKind() != ReduceKind::Sum)
    return false;
  Operation *yield = reduce.getBody().front().getTerminator();
  DotTerm term;
  collect(yield->getOperand(0), false, formula, term);
  // With the key remain one operation for each of its factors, less the first where nothing comes before it.
  if (term.rows.empty() || term.keys.empty() || term.keyed <= static_cast<int>(term.keys.size()))
    return false;
  OpBuilder builder(yield);
  Value row = productOf({}, term.rows, builder, reduce.getLoc());
  if (term.negative)
    row = arith::NegFOp::create(builder, reduce.getLoc(), row);
  yield->setOperand(0, productOf(row, term.keys, builder, reduce.getLoc()));
  eraseUnused(reduce.getBody().front());
  return true;
}

namespace {
struct Contract : attn::impl::AttnContractBase<Contract> {
  void runOnOperation() override {
    for (const PairFormula &formula : pairFormulas(getOperation())) {
      bool changed = false;
      for (ReduceOp reduce : llvm::to_vector(formula.block->getOps<ReduceOp>()))
        changed |= contract(reduce, formula);
      if (changed)
        noteRewrite(formula.op, "contract",
                    "the sum in '" + cast<DefinitionOpInterface>(formula.op).getName() +
                        "' is a dot product: what no key changes is multiplied together once for each query");
    }
  }
};
} // namespace

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
/// A factor of a product, or a divisor.
struct Factor {
  Value value;
  bool divides;
};

/// The factors of a term of a sum, and how many operations on it the key takes part in.
struct Product {
  SmallVector<Factor> rows, keys;
  int keyed = 0;
  bool negative = false;
};
} // namespace

static void collect(Value value, bool divides, const PairFormula &formula, Product &product) {
  Operation *op = value.getDefiningOp();
  bool inner = op && value.hasOneUse() && formula.dependsOnKey(value);
  // A quotient stays whole below a division, and where the key is in the divisor alone: it is a function, as in 1 / (1
  // + e^x).
  bool whole = inner && isa<arith::DivFOp>(op) && (divides || !formula.dependsOnKey(op->getOperand(0)));
  if (!inner || whole || !isa<arith::MulFOp, arith::DivFOp, arith::NegFOp>(op)) {
    (formula.dependsOnKey(value) ? product.keys : product.rows).push_back({value, divides});
    return;
  }
  ++product.keyed;
  if (isa<arith::NegFOp>(op))
    product.negative = !product.negative;
  collect(op->getOperand(0), divides, formula, product);
  if (op->getNumOperands() == 2)
    collect(op->getOperand(1), divides || isa<arith::DivFOp>(op), formula, product);
}

/// The product of `factors`, after `start` if there is one.
static Value multiply(Value start, ArrayRef<Factor> factors, OpBuilder &builder, Location location) {
  for (const Factor &factor : factors) {
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
  Product product;
  collect(yield->getOperand(0), false, formula, product);
  // With the key remain one operation for each of its factors, less the first where nothing comes before it.
  if (product.rows.empty() || product.keys.empty() || product.keyed <= static_cast<int>(product.keys.size()))
    return false;
  OpBuilder builder(yield);
  Value row = multiply({}, product.rows, builder, reduce.getLoc());
  if (product.negative)
    row = arith::NegFOp::create(builder, reduce.getLoc(), row);
  yield->setOperand(0, multiply(row, product.keys, builder, reduce.getLoc()));
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

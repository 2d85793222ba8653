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
//   score[m, n] = sum[d](q[m, d] * (k[n, d] + table[n - m + far, d]))
//
// becomes
//
//   score[m, n] = sum[d](q[m, d] * k[n, d]) + sum[d](q[m, d] * table[n - m + far, d])
//
// because each of the two is a product of matrices, at least in part (lib/Halide/TileBand.cpp).
//
//===----------------------------------------------------------------------===//

#include "Rewrites.h"
#include "Scores.h"
#include "Slice.h"
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

/// Whether `value` reads a tensor at a subscript that is computed of query and key.
static bool readsTable(Value value, const PairFormula &formula, const IndexSet &queries) {
  return anyInSlice(value, [&](Operation *op) {
    auto read = dyn_cast<ReadOp>(op);
    return read && llvm::any_of(read.getSubscripts(), [&](Value subscript) {
             IndexSet indices = dependence(subscript);
             return !isa<BlockArgument>(subscript) && indices.contains(formula.key) &&
                    llvm::any_of(queries, [&](BlockArgument query) { return indices.contains(query); });
           });
  });
}

/// Whether the pairs of many queries and keys are computed together: a weighted sum has queries that its values do not
/// depend on.
static bool isTiled(const PairFormula &formula) {
  auto hasQueries = [](Operation *op) {
    auto sum = dyn_cast<WeightedSumOp>(op);
    return sum && static_cast<int64_t>(sum.getQuery()) >= 0;
  };
  auto score = dyn_cast<ScoreOp>(formula.op);
  if (!score)
    return hasQueries(formula.op);
  return llvm::any_of(score.getResult().getUsers(), [&](Operation *user) {
    auto softmax = dyn_cast<SoftmaxOp>(user);
    return softmax && llvm::any_of(softmax.getWeight().getUsers(), [&](Operation *reader) {
             return hasQueries(isa<ReadOp>(reader) ? reader->getParentOp() : reader);
           });
  });
}

/// Makes two sums of one whose terms are a product with a sum of what a key has and of what a table has. Returns
/// whether it did.
static bool distribute(ReduceOp reduce, const PairFormula &formula) {
  if (reduce.getKind() != ReduceKind::Sum || reduce.isConditional() || !isTiled(formula))
    return false;
  DotTerm term;
  collect(yielded(reduce.getBody()), false, formula, term);
  IndexSet queries = queryIndices(formula);
  auto ofTable = [&](Value value) { return readsTable(value, formula, queries); };
  auto isBoth = [&](const TermFactor &factor) {
    Operation *op = factor.value.getDefiningOp();
    return !factor.divides && isa_and_nonnull<arith::AddFOp, arith::SubFOp>(op) && op->hasOneUse() && // no square
           ofTable(op->getOperand(0)) != ofTable(op->getOperand(1)) &&
           llvm::all_of(op->getOperands(), [&](Value operand) { return formula.dependsOnKey(operand); });
  };
  auto *both = llvm::find_if(term.keys, isBoth);
  if (both == term.keys.end())
    return false;
  attn::distribute(reduce, both->value.getDefiningOp());
  return true;
}

namespace {
struct Contract : attn::impl::AttnContractBase<Contract> {
  void runOnOperation() override {
    for (const PairFormula &formula : pairFormulas(getOperation())) {
      bool changed = false, distributed = false;
      for (ReduceOp reduce : llvm::to_vector(formula.block->getOps<ReduceOp>()))
        distributed |= distribute(reduce, formula);
      for (ReduceOp reduce : llvm::to_vector(formula.block->getOps<ReduceOp>()))
        changed |= contract(reduce, formula);
      if (distributed)
        noteRewrite(formula.op, "contract",
                    "the sum in '" + cast<DefinitionOpInterface>(formula.op).getName() +
                        "' is two: one with keys, and one with rows of a table, each of which is a matrix product");
      if (changed)
        noteRewrite(formula.op, "contract",
                    "the sum in '" + cast<DefinitionOpInterface>(formula.op).getName() +
                        "' is a dot product: what no key changes is multiplied together once for each query");
    }
  }
};
} // namespace

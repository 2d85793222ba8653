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
// The same goes for the features of attention in linear time, which a matrix product reads again for each column:
//
//   state[d, e]  = sum[n](exp(k[n, d]) * v[n, e])
//
// becomes
//
//   feature[n, d] = exp(k[n, d])
//   state[d, e]   = sum[n](feature[n, d] * v[n, e])
//
// and for all factors that its columns have in common (RowFactors.cpp), for reductions that are the same in a row of a
// matrix product, which is one as a whole without them:
//
//   feature[n, r] = exp(sum[d](w[r, d] * k[n, d]) - sum[d](k[n, d] ** 2) / 2)
//
// and for reductions that are the same for all terms of another one:
//
//   total[m] = sum[n](s[m, n] / sqrt(sum[j](s[m, j] ** 2)))
//
//===----------------------------------------------------------------------===//

#include "Form.h"
#include "Product.h"
#include "Rewrites.h"
#include "RowFactors.h"
#include "Scores.h"
#include "attn/Analysis/ComparedTensors.h"
#include "attn/Analysis/Cost.h"
#include "attn/Analysis/PlacedSum.h"
#include "attn/Analysis/Scan.h"
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

/// An element that `factor` reads by all of its indices, and by nothing else: what has an element for each of those
/// takes no more memory than it. Null where there is none.
static ReadOp readByAllIndices(const Factor &factor) {
  ReadOp found;
  anyInSlice(factor.value, [&](Operation *op) {
    auto read = dyn_cast<ReadOp>(op);
    if (read && isReadByAll(read, factor.indices))
      found = read;
    return static_cast<bool>(found);
  });
  return found;
}

/// Whether `factor`, of the terms of `sum`, calls functions, and is the same for some indices of `tensor`.
static bool isFeature(const Factor &factor, ReduceOp sum, TensorOp tensor) {
  auto changesFactor = [&](BlockArgument index) { return factor.indices.contains(index); };
  return factor.changesWith(sum.getBody().getArguments()) &&
         !llvm::all_of(tensor.getBody().getArguments(), changesFactor) && !reduces(factor.value) &&
         anyInSlice(factor.value, isFunction);
}

static void hoistFeatures(TensorOp tensor) {
  for (ReduceOp sum : llvm::to_vector(tensor.getBody().front().getOps<ReduceOp>())) {
    if (sum.getKind() != ReduceKind::Sum || !isa<FloatType>(sum.getType()))
      continue;
    for (Factor factor : Product::of(yielded(sum.getBody())).factors) {
      ReadOp read = isFeature(factor, sum, tensor) ? readByAllIndices(factor) : ReadOp();
      if (!read)
        continue;
      OpBuilder builder(factor.value.getContext());
      builder.setInsertionPointAfterValue(factor.value);
      Value element = hoist(factor.value, tensor, (tensor.getName() + "_feature").str(), builder,
                            cast<BlockArgument>(read.getSubscripts().back()));
      noteRewrite(tensor, "hoist",
                  "a factor of '" + tensor.getName() +
                      "' calls functions, and is the same for all its columns; it is computed once, as '" +
                      tensorName(element.getDefiningOp<ReadOp>().getTensor()) + "'");
      factor.value.replaceAllUsesWith(element);
    }
  }
}

/// Makes a tensor of a reduction in `tensor`, which is the same for `what`.
static void hoistReduction(ReduceOp reduce, TensorOp tensor, StringRef what) {
  OpBuilder builder(reduce);
  Value element = hoist(reduce.getResult(), tensor, (tensor.getName() + "_row").str(), builder);
  noteRewrite(tensor, "hoist",
              "a reduction in '" + tensor.getName() + "' is the same for " + what.str() +
                  "; it is computed once, as '" + tensorName(element.getDefiningOp<ReadOp>().getTensor()) + "'");
  reduce.replaceAllUsesWith(element);
  reduce.erase();
}

/// Makes tensors of what is reduced once for a row, where the other reductions are products of matrices.
static void hoistRows(TensorOp tensor) {
  SmallVector<ReduceOp> rows;
  unsigned products = 0;
  for (ReduceOp reduce : tensor.getBody().front().getOps<ReduceOp>()) {
    bool isOfRow = !dependence(reduce.getResult()).contains(tensor.getBody().getArguments().back());
    if (isOfRow && isa<FloatType>(reduce.getType()))
      rows.push_back(reduce);
    else if (isMatrixProduct(reduce, tensor))
      ++products;
    else
      return;
  }
  if (products == 0 || rows.empty() || isStoredWithPairs(tensor))
    return;
  for (ReduceOp reduce : rows)
    hoistReduction(reduce, tensor, "a whole row");
}

/// Makes tensors of reductions that are the same for all terms of another one.
static void hoistFromTerms(TensorOp tensor) {
  SmallVector<ReduceOp> same;
  tensor.getBody().walk<WalkOrder::PreOrder>([&](ReduceOp reduce) {
    bool isOfElement = isa<FloatType>(reduce.getType()) &&
                       llvm::all_of(dependence(reduce.getResult()),
                                    [&](BlockArgument index) { return index.getOwner() == &tensor.getBody().front(); });
    if (!isOfElement || !isa<ReduceOp>(reduce->getParentOp()))
      return WalkResult::advance();
    same.push_back(reduce);
    return WalkResult::skip();
  });
  for (ReduceOp reduce : same)
    hoistReduction(reduce, tensor, "all terms of another one");
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
    llvm::DenseSet<Value> compared = comparedTensors(getOperation());
    for (TensorOp tensor : llvm::to_vector(getOperation().getBody().front().getOps<TensorOp>()))
      if (!tensor.getBody().getArguments().empty()) {
        if (!PlacedSum::of(tensor) && !Scan::of(tensor))
          hoistRowFactors(tensor, compared);
        if (!isStoredWithPairs(tensor) && !PlacedSum::of(tensor) && !Scan::of(tensor)) {
          hoistFeatures(tensor);
          hoistFromTerms(tensor);
        }
        hoistRows(tensor);
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

//===- Tabulate.cpp - What distances decide is computed once a distance ---===//
//
//   score[m, n] = sum[d](q[m, d] * k[n, d]) - log(1 + abs(m - n))
//
// becomes
//
//   distance[t] = -log(1 + abs(M - 1 - t)),  t = n - m + M - 1
//   score[m, n] = sum[d](q[m, d] * k[n, d]) + distance[n - m + M - 1]
//
// There are M + N distances, and M · N pairs; neighbouring keys read neighbouring elements.
//
//===----------------------------------------------------------------------===//

#include "Form.h"
#include "Rewrites.h"
#include "Scores.h"
#include "Slice.h"
#include "Statement.h"
#include "attn/Analysis/Cost.h"
#include "attn/Analysis/Distance.h"
#include "attn/Transforms/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/Builders.h"

using namespace mlir;
using namespace attn;

namespace attn {
#define GEN_PASS_DEF_ATTNTABULATE
#include "attn/Transforms/Passes.h.inc"
} // namespace attn

namespace {

/// A formula that is computed for every pair of some query and the key.
struct DistanceFormula {
  DefinitionOpInterface op;
  Block *block;
  BlockArgument key;
  Block::BlockArgListType queries; ///< Indices that may be that of the query.
};

/// Scores, weights, what a backward pass stores for pairs, and what it sums over keys of that.
SmallVector<DistanceFormula> formulasOf(KernelOp kernel) {
  SmallVector<DistanceFormula> formulas;
  for (auto [op, block, key] : pairFormulas(kernel))
    formulas.push_back({cast<DefinitionOpInterface>(op), block, key, block->getArguments().drop_back()});
  for (TensorOp tensor : kernel.getBody().front().getOps<TensorOp>()) {
    Block &block = tensor.getBody().front();
    if (isPairs(tensor.getResult()) && !block.getArguments().empty())
      formulas.push_back({tensor, &block, block.getArguments().back(), block.getArguments().drop_back()});
    if (!readsPairs(tensor))
      continue;
    for (ReduceOp reduce : block.getOps<ReduceOp>())
      for (BlockArgument key : reduce.getBody().getArguments())
        formulas.push_back({tensor, &reduce.getBody().front(), key, block.getArguments()});
  }
  return formulas;
}

struct Tabulate : attn::impl::AttnTabulateBase<Tabulate> {
  void runOnOperation() override {
    for (const DistanceFormula &formula : formulasOf(getOperation()))
      for (BlockArgument query : formula.queries) {
        if (SizeAttr queries = indexSize(query); queries.isConstant() && queries.getValue() <= 1)
          continue; // there are as many distances as pairs
        Distance distance(query, formula.key);
        seen.clear();
        tabulateIn(formula.block->getTerminator()->getOperand(0), formula, query, distance);
        eraseUnused(*formula.block);
      }
  }

  /// Tabulates the largest parts of `value`.
  void tabulateIn(Value value, const DistanceFormula &formula, BlockArgument query, Distance &distance);

  llvm::DenseSet<Operation *> seen; ///< What tabulateIn has looked at.
};

} // namespace

/// An element of a new tensor that has `value`, which is decided by the distance of `query` and the key, for all
/// distances.
static Value tabulate(Value value, const DistanceFormula &formula, BlockArgument query) {
  DefinitionOpInterface op = formula.op;
  Location location = value.getLoc();
  MLIRContext *context = value.getContext();
  SizeAttr queries = indexSize(query), last = SizeAttr::binary(SizeKind::Sub, queries, SizeAttr::constant(context, 1));
  SmallVector<BlockArgument> others = inOrder(dependence(value));
  llvm::erase_if(others, [&](BlockArgument index) { return index == query || index == formula.key; });
  SmallVector<Axis> axes = llvm::map_to_vector(others, axisOf);
  axes.push_back({"distance", SizeAttr::binary(SizeKind::Add, queries, indexSize(formula.key))});
  Statement statement{(op.getName() + "_distance").str(), axes, {}, value.getType(), nullptr};
  statement.term = [&](OpBuilder &builder, Indices indices) {
    // The last query, and a key that may be beyond the last one: only their distance counts.
    IRMapping mapping;
    for (auto [other, index] : llvm::zip_equal(others, indices.drop_back()))
      mapping.map(other, index);
    mapping.map(query, SizeOp::create(builder, location, last).getResult());
    mapping.map(formula.key, indices.back());
    return cloneSlice(value, mapping, builder);
  };
  OpBuilder builder(op);
  TensorOp table = statement.write(op->getParentOfType<KernelOp>(), builder, location);
  builder.setInsertionPointAfterValue(value);
  Value difference = arith::SubIOp::create(builder, location, formula.key, query);
  SmallVector<Value> subscripts(others.begin(), others.end());
  subscripts.push_back(arith::AddIOp::create(builder, location, difference, SizeOp::create(builder, location, last)));
  noteRewrite(op, "tabulate",
              "a part of '" + op.getName() + "' depends on the distance of '" + indexName(query) + "' and '" +
                  indexName(formula.key) + "' alone; it is computed once for each, as '" + table.getName() + "'");
  return ReadOp::create(builder, location, table.getResult(), subscripts);
}

void Tabulate::tabulateIn(Value value, const DistanceFormula &formula, BlockArgument query, Distance &distance) {
  Operation *op = value.getDefiningOp();
  if (!op || op->getBlock() != formula.block || !seen.insert(op).second)
    return;
  // Arithmetic that brings in further indices would make a larger table of it, and costs no more than reading that.
  auto addsIndices = [&] {
    return !isFunction(op) && !isa<ReduceOp>(op) && llvm::all_of(op->getOperands(), [&](Value operand) {
      return !distance.isCostly(operand) || dependence(operand).size() < dependence(value).size();
    });
  };
  if (isa<FloatType>(value.getType()) && distance.isCostly(value) && distance.decides(value) && !addsIndices()) {
    value.replaceAllUsesWith(tabulate(value, formula, query));
    return;
  }
  for (Value operand : llvm::to_vector(op->getOperands()))
    tabulateIn(operand, formula, query, distance);
}

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
#include "attn/Transforms/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace attn;

namespace attn {
#define GEN_PASS_DEF_ATTNTABULATE
#include "attn/Transforms/Passes.h.inc"
} // namespace attn

namespace {

/// A query and a key index, and which values depend on nothing of them but their distance.
class Distance {
public:
  Distance(BlockArgument query, BlockArgument key) : query(query), key(key) {}

  bool decides(Value value) {
    auto [known, isNew] = decided.try_emplace(value, false);
    if (isNew) {
      bool result = isDecided(value); // which adds to the map
      return decided[value] = result;
    }
    return known->second;
  }

  /// Whether a reduction or a function that changes with the distance computes `value`. Elements of a tensor here and
  /// there, as those of a table of clipped distances, take no longer than neighbours do.
  bool isCostly(Value value) const {
    return anyInSlice(
        value, [&](Operation *op) { return (isFunction(op) || isa<ReduceOp>(op)) && changes(op->getResult(0)); });
  }

private:
  bool changes(Value value) const {
    IndexSet used = dependence(value);
    return used.contains(query) || used.contains(key);
  }

  bool isDecided(Value value) {
    if (!changes(value))
      return true;
    if (std::optional<Place> place = placeOf(value); place && place->query + place->key == 0)
      return true;
    Operation *op = value.getDefiningOp();
    return op && llvm::all_of(op->getOperands(), [&](Value operand) { return decides(operand); }) &&
           llvm::all_of(op->getRegions(), [&](Region &region) { return region.empty() || decides(yielded(region)); });
  }

  /// An integer that is so many times the query, so many times the key, and what depends on neither.
  struct Place {
    int64_t query, key;
  };

  std::optional<Place> placeOf(Value value) const {
    if (!isa<IntegerType>(value.getType()))
      return std::nullopt;
    if (value == query)
      return Place{1, 0};
    if (value == key)
      return Place{0, 1};
    if (!changes(value))
      return Place{0, 0};
    Operation *op = value.getDefiningOp();
    if (!isa_and_nonnull<arith::AddIOp, arith::SubIOp, arith::MulIOp>(op))
      return std::nullopt;
    std::optional<Place> left = placeOf(op->getOperand(0)), right = placeOf(op->getOperand(1));
    if (!left || !right)
      return std::nullopt;
    if (isa<arith::MulIOp>(op)) {
      APInt factor;
      Place place;
      if (!matchPattern(op->getOperand(1), m_ConstantInt(&factor)) ||
          llvm::MulOverflow(left->query, factor.getSExtValue(), place.query) ||
          llvm::MulOverflow(left->key, factor.getSExtValue(), place.key))
        return std::nullopt;
      return place;
    }
    int sign = isa<arith::AddIOp>(op) ? 1 : -1;
    return Place{left->query + sign * right->query, left->key + sign * right->key};
  }

  BlockArgument query, key;
  llvm::DenseMap<Value, bool> decided;
};

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

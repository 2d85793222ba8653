//===- Split.cpp - The split plan: what is computed ------------------------===//

#include "Fetch.h"
#include "Hints.h"
#include "Mathematics.h"
#include "SplitRegions.h"
#include "attn/Analysis/Fusion.h"

using Halide::Expr;
using Halide::Func;
using Halide::RDom;
using Halide::select;
using Halide::Var;

namespace attn::lowering {

Split::Split(StepLowering &kernel, WeightedSumOp op, bool hasLogSumExp)
    : func(kernel.uniqueName(op.getName())), kernel(kernel), plan(kernel.plan.split), op(op), read(softmaxWeight(op)),
      softmax(softmaxOf(op)), lanes(kernel.plan.lanes), hasLogSumExp(hasLogSumExp) {
  vars = loopsAlong(op.getIndices());
  pairsWeights = plan.bf16Pairs && canPairWeights(kernel, op);
  e = vars.front();
  keyCount = extent(kernel, op.getKeySize());
}

//===----------------------------------------------------------------------===//
// Variables
//===----------------------------------------------------------------------===//

std::vector<Expr> Split::stateAt(Expr part, Expr ofSpan) const {
  Expr ofRow = 0, rowsBefore = 1, ofTask = 0, tasksBefore = 1;
  for (const Shared &index : shared) {
    ofRow += index.withinOf(index.index) * rowsBefore;
    rowsBefore *= index.rows;
    ofTask += index.groupOf(index.index) * tasksBefore;
    tasksBefore *= index.groups;
  }
  for (const Own &index : own) {
    ofTask += index.index * tasksBefore;
    tasksBefore *= index.size;
  }
  return {part, ofRow, ofTask + ofSpan * tasksBefore};
}

/// `key` counts within the chunk.
IndexBinding Split::keyBinding(Expr key, bool isThere) const {
  key = chunkKeys[0] + key;
  if (isThere)
    return {Halide::unsafe_promise_clamped(key, 0, Halide::max(keyCount, 1) - 1), {k}, false, {}};
  return {key, {k}, true, {}};
}

/// A processor foresees keys that are read in order: what is fetched would be in its way.
Expr Split::atKey(const TileKey &key, llvm::function_ref<Expr(const TileKey &)> formula) const {
  Expr value = formula(key);
  if (!plan.ahead || readsInOrder(key.rows))
    return value;
  return fetchingAhead(value, formula(later(key, plan.ahead)));
}

/// But it foresees them within a page of memory only: a number of each half of a tile is enough to have the next pages.
Expr Split::beforeNextPages(Expr value, const TileKey &first, int keys,
                            llvm::function_ref<Expr(const TileKey &)> formula) const {
  if (!plan.ahead || !readsInOrder(first.rows))
    return value;
  for (int half : {0, keys / 2})
    if (Expr read = formula(later(first, half + 2 * plan.ahead)); read.defined())
      value = fetchingAhead(value, read);
  return value;
}

Environment Split::bindResult(mlir::Region &region, IndexBinding key) {
  Environment environment;
  unsigned rank = vars.size();
  for (unsigned position = 0; position < rank; ++position)
    environment.bind(region.getArgument(position), vars[rank - 1 - position]);
  environment.indices[region.getArguments().back()] = key;
  return environment;
}

Environment Split::bind(mlir::Region &region, IndexBinding key) {
  Environment environment = bindResult(region, key);
  for (const Own &index : own)
    environment.rebind(index.index, {index.kept, {task}, false, {}});
  Expr rest = row;
  for (const Shared &index : shared) {
    bool isLast = &index == &shared.back();
    environment.rebind(index.index, {index.at(isLast ? rest : rest % index.rows), {row, index.index}, false, {}});
    rest = rest / index.rows;
  }
  return environment;
}

/// A tile's rows follow one another, from a multiple of their number on.
Expr Split::blockOfTile(int rows) const {
  return rowsOfKey.defined() ? Halide::clamp(firstOfTile(rows) / rowsOfKey, 0, keyBlocks - 1) : Expr(0);
}

Environment Split::ofBlock(const Environment &environment, Expr block) const {
  Environment first = environment;
  for (const Shared &index : shared) {
    Expr within = 0;
    if (index.rowsOfBlock.defined()) {
      bool isLast = &index == &shared.back();
      within = (isLast ? block : block % index.blocks) * index.rowsOfBlock;
      block = block / index.blocks;
    }
    first.rebind(index.index, {index.at(within), {row, index.index}, false, {}});
  }
  return first;
}

/// Binds the arguments of score, mask and sink to what the weight is read at.
void Split::bindScore(Environment &environment) {
  for (mlir::Value tensor : {softmax.getScore(), softmax.getMask(), softmax.getSink()})
    if (tensor)
      for (auto [argument, subscript] : llvm::zip(bodyOf(tensor).getArguments(), read.getSubscripts())) {
        IndexBinding binding = environment.indices[subscript];
        environment.indices[argument] = binding;
      }
}

RDom Split::tiles(int size, llvm::ArrayRef<Expr> inner, const RowTile *ofRows) const {
  Halide::Region ranges;
  for (const Expr &extent : inner)
    ranges.push_back({0, extent});
  Expr count = plan.chunk / size;
  if (ofRows) {
    ranges.push_back({ofRows->first, ofRows->count});
    count = Halide::min(ofRows->count, 1) * count;
  }
  ranges.push_back({0, count});
  RDom domain(ranges);
  Expr first = domain[domain.dimensions() - 1] * size;
  domain.where(first < chunkKeys[1]);
  if (lower.defined())
    domain.where(first + size > chunkKeys[2]);
  return domain;
}

RDom Split::vectors(bool areWhole, llvm::ArrayRef<Expr> inner) const {
  RDom domain = tiles(lanes, inner);
  Expr isWhole = chunkKeys[0] + domain[domain.dimensions() - 1] * lanes + lanes <= keyCount;
  domain.where(areWhole ? isWhole : !isWhole);
  return domain;
}

/// Whether the formula reads something at keys, beside its reductions. Null: there is no formula.
static bool readsAtKey(mlir::Value value) {
  if (!value)
    return false;
  mlir::BlockArgument key = value.getParentRegion()->getArguments().back();
  bool found = false;
  walkFormula(value, [&](mlir::Operation *inner) {
    found |= mlir::isa<ReadOp>(inner) && dependence(inner->getResult(0)).contains(key);
    return !mlir::isa<ReduceOp>(inner);
  });
  return found;
}

llvm::SmallVector<RDom, 2> Split::overVectors(llvm::ArrayRef<mlir::Value> values,
                                              llvm::function_ref<void(Expr key, bool areWhole)> define) {
  llvm::SmallVector<RDom, 2> domains;
  if (llvm::none_of(values, readsAtKey)) {
    domains = {tiles(lanes, Expr(lanes))};
    define(keyOf(domains.front()), /*areWhole=*/false);
    return domains;
  }
  for (bool areWhole : {true, false}) {
    domains.push_back(vectors(areWhole, Expr(lanes)));
    define(keyOf(domains.back()), areWhole);
  }
  return domains;
}

//===----------------------------------------------------------------------===//
// Weights
//===----------------------------------------------------------------------===//

void Split::defineWeights() {
  Halide::Type type = computeType(op.getResult().getType().getElementType());
  auto joined = [&](ReduceKind kind, const Func &partial) {
    std::vector<Expr> values;
    for (int index = 0; index < lanes; ++index)
      values.push_back(partial(index, row));
    return combineTree(kind, values);
  };
  if (softmax) {
    maximumKeys = tiles(lanes);
    maximumLanes = Func(kernel.uniqueName(func.name() + "_maximum_lanes"));
    maximumLanes(lane, row) = lowest(type);
    maximumLanes(lane, row) = larger(maximumLanes(lane, row), score(maximumKeys[0] * lanes + lane, row));
    maximum = Func(kernel.uniqueName(func.name() + "_maximum"));
    maximum(row) = joined(ReduceKind::Max, maximumLanes);

    exponentialKeys = tiles(lanes, Expr(lanes));
    exponential = Func(kernel.uniqueName(func.name() + "_exponential"));
    exponential(k, row) = Halide::undef(type);
    Expr key = keyOf(exponentialKeys);
    exponential(key, row) = exp2OfNonPositive(score(key, row) - maximum(row));

    sumKeys = tiles(lanes);
    sumLanes = Func(kernel.uniqueName(func.name() + "_sum_lanes"));
    sumLanes(lane, row) = constant(type, 0);
    sumLanes(lane, row) += exponential(sumKeys[0] * lanes + lane, row);
    sum = Func(kernel.uniqueName(func.name() + "_sum"));
    sum(row) = joined(ReduceKind::Sum, sumLanes);
    weights = exponential;
    if (hasPlainWeights(op))
      return;
  }
  // The weight's other factors, and the sum's own condition.
  weights = Func(kernel.uniqueName(func.name() + "_weight"));
  weights(k, row) = Halide::undef(type);
  mlir::Value formula = yielded(op.getBody(), 0),
              condition = op.getWhere().empty() ? mlir::Value() : yielded(op.getWhere());
  weightKeys = overVectors({formula, condition}, [&](Expr key, bool areWhole) {
    Environment environment = bind(op.getBody(), keyBinding(key, areWhole));
    if (softmax)
      environment.replace(read.getResult(), exponential(key, row));
    SplitRegion lowering(*this, environment, key);
    Expr value = lowering.expression(formula);
    Expr kept = areWhole ? Halide::Internal::const_true() : keyBinding(key).expr < keyCount;
    if (condition) {
      Environment inside = bind(op.getWhere(), keyBinding(key, areWhole));
      PlainRegion conditions(kernel, inside);
      kept = kept && conditions.expression(condition);
    }
    weights(key, row) = unconditional(select(kept, value, constant(type, 0)));
  });
}

void Split::define() {
  findShared();
  defineRange();
  if (softmax)
    defineScore();
  defineWeights();
  if (pairsWeights)
    defineWeightPairs();
  defineOutput();
  defineState();
  defineMerged();
  defineResult();
}

} // namespace attn::lowering

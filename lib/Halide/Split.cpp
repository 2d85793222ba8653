//===- Split.cpp - The split plan: what is computed ------------------------===//

#include "Split.h"
#include "Fetch.h"
#include "Mathematics.h"
#include "attn/Analysis/Fusion.h"

using Halide::Expr;
using Halide::Func;
using Halide::RDom;
using Halide::select;
using Halide::Var;

namespace attn::lowering {

Split::Split(StepLowering &kernel, WeightedSumOp op)
    : func(kernel.uniqueName(op.getName())), kernel(kernel), plan(kernel.plan.split), op(op),
      read(proportionalTo(yielded(op.getBody(), 0))), lanes(kernel.plan.lanes) {
  if (read)
    softmax = read.getTensor().getDefiningOp<SoftmaxOp>();
  for (mlir::Attribute index : llvm::reverse(op.getIndices()))
    vars.push_back(Var(mlir::cast<mlir::StringAttr>(index).str()));
  pairsWeights = canPairWeights();
  e = vars.front();
  keyCount = extent(kernel, op.getKeySize());
}

//===----------------------------------------------------------------------===//
// Variables
//===----------------------------------------------------------------------===//

std::vector<Var> Split::stageVars(std::vector<Var> first) const {
  first.insert(first.end(), {row, chunk, task});
  return first;
}

std::vector<Expr> Split::at(std::vector<Expr> first) const { return at(std::move(first), row); }

std::vector<Expr> Split::at(std::vector<Expr> first, Expr ofRow, Expr ofChunk) const {
  first.insert(first.end(), {ofRow, ofChunk.defined() ? ofChunk : Expr(chunk), Expr(task)});
  return first;
}

std::vector<Expr> Split::stateAt(Expr column, Expr ofSpan) const {
  Expr ofRow = 0, rowsBefore = 1, ofTask = 0, tasksBefore = 1;
  for (const Shared &index : shared) {
    ofRow += index.withinOf(index.index) * rowsBefore;
    rowsBefore *= index.rows;
    ofTask += index.groupOf(index.index) * tasksBefore;
    tasksBefore *= index.groups();
  }
  for (const Own &index : own) {
    ofTask += index.index * tasksBefore;
    tasksBefore *= index.size;
  }
  return {column, ofRow, ofTask + ofSpan * tasksBefore};
}

/// `key` counts within the chunk.
IndexBinding Split::keyBinding(Expr key) const { return {start(chunk, task) + key, {k}, true, {}}; }

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

Environment Split::ofFirstRow(const Environment &environment) const {
  Environment first = environment;
  for (const Shared &index : shared)
    first.rebind(index.index, {index.at(0), {row, index.index}, false, {}});
  return first;
}

/// Binds the arguments of score, mask and sink to what the weight is read at.
void Split::bindScore(Environment &environment) {
  for (mlir::Value tensor : {softmax.getScore(), softmax.getMask(), softmax.getSink()})
    if (tensor)
      for (auto [argument, subscript] : llvm::zip(definition(tensor).getArguments(), read.getSubscripts())) {
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
  // Tiles of all sizes cover the same keys: what one stage reads, another has written.
  int largest = std::max({pairsWeights ? 2 * lanes : lanes, plan.keyTile, plan.scoreKeys, size});
  Expr origin = keyBinding(0).expr, first = domain[domain.dimensions() - 1] * size;
  domain.where(first < (end - origin + largest - 1) / largest * largest);
  if (lower.defined())
    domain.where(first + size > (lower - origin) / largest * largest);
  return domain;
}

//===----------------------------------------------------------------------===//
// Weights, state, output
//===----------------------------------------------------------------------===//

void Split::defineWeights() {
  Halide::Type type = computeType(op.getResult().getType().getElementType());
  std::vector<Var> elementVars = stageVars({k}), laneVars = stageVars({lane}), rowVars = stageVars({});
  auto joined = [&](ReduceKind kind, const Func &partial) {
    std::vector<Expr> values;
    for (int index = 0; index < lanes; ++index)
      values.push_back(partial(at({index})));
    return combineTree(kind, values);
  };
  if (softmax) {
    maximumKeys = tiles(lanes);
    maximumLanes = Func(kernel.uniqueName(func.name() + "_maximum_lanes"));
    maximumLanes(laneVars) = lowest(type);
    maximumLanes(at({lane})) = larger(maximumLanes(at({lane})), score(at({maximumKeys[0] * lanes + lane})));
    maximum = Func(kernel.uniqueName(func.name() + "_maximum"));
    maximum(rowVars) = joined(ReduceKind::Max, maximumLanes);

    exponentialKeys = tiles(lanes, Expr(lanes));
    exponential = Func(kernel.uniqueName(func.name() + "_exponential"));
    exponential(elementVars) = Halide::undef(type);
    Expr key = keyOf(exponentialKeys);
    exponential(at({key})) = exp2OfNonPositive(score(at({key})) - maximum(at({})));

    sumKeys = tiles(lanes);
    sumLanes = Func(kernel.uniqueName(func.name() + "_sum_lanes"));
    sumLanes(laneVars) = constant(type, 0);
    sumLanes(at({lane})) += exponential(at({sumKeys[0] * lanes + lane}));
    sum = Func(kernel.uniqueName(func.name() + "_sum"));
    sum(rowVars) = joined(ReduceKind::Sum, sumLanes);
    weights = exponential;
    if (yielded(op.getBody(), 0) == read.getResult() && op.getWhere().empty())
      return;
  }
  // The weight's other factors, and the sum's own condition.
  weights = Func(kernel.uniqueName(func.name() + "_weight"));
  weightKeys = tiles(lanes, Expr(lanes));
  Expr key = keyOf(weightKeys);
  Environment environment = bind(op.getBody(), keyBinding(key));
  if (softmax)
    environment.replace(read.getResult(), exponential(at({key})));
  SplitRegion lowering(*this, environment, key);
  Expr value = lowering.expression(yielded(op.getBody(), 0));
  Expr kept = keyBinding(key).expr < keyCount;
  if (!op.getWhere().empty()) {
    Environment inside = bind(op.getWhere(), keyBinding(key));
    PlainRegion conditions(kernel, inside);
    kept = kept && conditions.expression(yielded(op.getWhere()));
  }
  weights(elementVars) = Halide::undef(type);
  weights(at({key})) = select(kept, value, constant(type, 0));
}

Expr Split::plusKey(Expr sum, Expr column, Expr key) {
  auto value = [&](Expr key) {
    Environment environment = bind(op.getBody(), keyBinding(key));
    environment.indices[op.getBody().getArgument(vars.size() - 1)].expr = column;
    Environment first = ofFirstRow(environment);
    keepSubscripts(yielded(op.getBody(), 1), first, key);
    return PlainRegion(kernel, first).expression(yielded(op.getBody(), 1));
  };
  Expr added = value(key);
  if (plan.ahead)
    added = fetchingAhead(added, value(laterKey(key)));
  return plusWeighted(op, sum, weights(at({key})), added);
}

/// `count` tiles of `vectors` vectors of columns, from `first` on, for `rows`.
void Split::addColumnTile(int vectors, Expr first, Expr count, const RowTile &rowTile) {
  int keysOfTile = pairsWeights ? plan.keyTile / 2 : plan.keyTile;
  ColumnTile tile{vectors, rowTile.rows, {}, {}, {}, {}};
  tile.keys = RDom(0, keysOfTile);
  tile.sums = Func(kernel.uniqueName(func.name() + "_tile"));
  std::vector<Expr> element = at({e, keyTile});
  tile.sums(stageVars({e, keyTile})) = constant(computeType(op.getResult().getType().getElementType()), 0);
  if (pairsWeights)
    tile.sums(element) += productOfKeys(tile, keyTile);
  else
    tile.sums(element) = plusKey(tile.sums(element), e, keyTile * plan.keyTile + tile.keys.x);

  tile.tiles = tiles(plan.keyTile, {Expr(lanes), Expr(vectors), Expr(rowTile.rows), count}, &rowTile);
  const RDom &all = tile.tiles;
  Expr column = first + (all[3] * vectors + all[1]) * lanes + all[0];
  Expr ofRow = all[4] * rowTile.rows + all[2];
  output(at({column, blockOf(all[5])}, ofRow)) += tile.sums(at({column, all[5]}, ofRow));
  columnTiles.push_back(tile);
}

void Split::defineState() {
  Halide::Type type = computeType(op.getResult().getType().getElementType());
  Expr zero = constant(type, 0);
  output = Func(kernel.uniqueName(func.name() + "_output"));
  output(stageVars({e, block})) = zero;
  // Register tiles, and what is left of the columns.
  Expr columns = extent(kernel, op.getResult().getType().getShape().back());
  llvm::SmallVector<RowTile, 2> ofRows = rowTiles();
  Expr wholeTiles = Halide::Internal::simplify(columns / (lanes * plan.valueVectors));
  Expr whole = 0;
  if (ofRows.size() > 1)
    addColumnTile(plan.valueVectors, 0, wholeTiles, ofRows.front());
  for (int vectors = plan.valueVectors; vectors > 1; vectors /= 2) {
    Expr count = Halide::Internal::simplify((columns - whole) / (lanes * vectors));
    if (Halide::Internal::is_const_zero(count))
      continue;
    // The tiles of several rows have left the others.
    addColumnTile(vectors, whole, count, vectors == plan.valueVectors ? ofRows.back() : RowTile{1, 0, rowCount});
    whole = Halide::Internal::simplify(columns / (lanes * vectors) * (lanes * vectors));
  }
  restKeys = tiles(plan.keyTile, {columns - whole, Expr(plan.keyTile)});
  std::vector<Expr> rest = at({whole + restKeys[0], blockOf(restKeys[2])});
  output(rest) = plusKey(output(rest), whole + restKeys[0], restKeys[2] * plan.keyTile + restKeys[1]);

  chunks = RDom(0, mostChunks);
  chunks.where(chunks.x < chunksOfSpan);
  state = Func(kernel.uniqueName(func.name() + "_state"));
  std::vector<Var> stateVars = {e, row, task};
  std::vector<Expr> element(stateVars.begin(), stateVars.end());
  auto ofChunk = [&](const Func &stage, std::vector<Expr> first) {
    return Expr(stage(at(std::move(first), row, chunks.x)));
  };
  std::vector<Expr> blocks; // that are made apart, so that no chain of additions is long
  for (int index = 0; index < plan.chunk / plan.block; ++index)
    blocks.push_back(ofChunk(output, {e, index}));
  Expr chunkOutput = combineTree(ReduceKind::Sum, blocks);
  if (!softmax) {
    state(stateVars) = zero;
    state(element) += chunkOutput;
    return;
  }
  state(stateVars) = Halide::Tuple(lowest(type), zero, zero);
  Halide::FuncRef old = state(element);
  Expr oldMaximum = old[0], chunkMaximum = ofChunk(maximum, {});
  Expr newMaximum = larger(oldMaximum, chunkMaximum);
  Expr oldScale = exp2OfNonPositive(oldMaximum - newMaximum), newScale = exp2OfNonPositive(chunkMaximum - newMaximum);
  state(element) = Halide::Tuple(newMaximum, old[1] * oldScale + ofChunk(sum, {}) * newScale,
                                 old[2] * oldScale + chunkOutput * newScale);
}

/// What the spans have found, and the sink, together.
void Split::defineMerged() {
  Halide::Type type = computeType(op.getResult().getType().getElementType());
  Expr zero = constant(type, 0);
  allSpans = RDom(0, spans);
  std::vector<Expr> element(vars.begin(), vars.end()), rowOf(vars.begin() + 1, vars.end());
  std::vector<Expr> of = stateAt(e, allSpans.x), first = stateAt(0, allSpans.x);
  std::vector<Var> rowVars(vars.begin() + 1, vars.end());
  merged = Func(kernel.uniqueName(func.name() + "_merged"));
  if (!softmax) {
    merged(vars) = zero;
    merged(element) += state(of);
    return;
  }
  Expr start = lowest(type);
  total = Func(kernel.uniqueName(func.name() + "_total"));
  Expr sink;
  if (softmax.getSink()) {
    Environment environment = bindResult(op.getBody(), {Expr(0), {}, false, {}});
    bindScore(environment);
    SplitRegion lowering(*this, environment);
    sink = lowering.expression(yielded(definition(softmax.getSink()))) * log2e(type);
    start = larger(start, sink);
  }
  total(rowVars) = start;
  total(rowOf) = larger(total(rowOf), state(first)[0]);
  Expr scale = exp2OfNonPositive(state(of)[0] - total(rowOf));
  merged(vars) = Halide::Tuple(sink.defined() ? exp2OfNonPositive(sink - total(rowOf)) : zero, zero);
  merged(element) = Halide::Tuple(merged(element)[0] + state(of)[1] * scale, merged(element)[1] + state(of)[2] * scale);
}

void Split::defineResult() {
  std::vector<Expr> element(vars.begin(), vars.end());
  Expr result;
  if (softmax) {
    Expr sum = merged(element)[0], weighted = merged(element)[1];
    result = select(sum == 0.0f, constant(weighted.type(), 0), weighted / sum);
  } else {
    result = merged(element);
  }
  func(vars) = convert(result, kernel.typeInMemory(op.getResult()));
}

void Split::define() {
  findShared();
  defineRange();
  if (softmax)
    defineScore();
  defineWeights();
  if (pairsWeights)
    defineWeightPairs();
  defineState();
  defineMerged();
  defineResult();
}

} // namespace attn::lowering

//===- SplitState.cpp - The split plan: outputs, and what spans add up to ---===//

#include "Lanes.h"
#include "Mathematics.h"
#include "Split.h"

using Halide::Expr;
using Halide::Func;
using Halide::RDom;
using Halide::select;
using Halide::Var;

namespace attn::lowering {

//===----------------------------------------------------------------------===//
// The output of a chunk
//===----------------------------------------------------------------------===//

Expr ColumnRegion::stored(mlir::Value value) {
  if (!isThere.defined() || !value.getDefiningOp<ReadOp>() || !environment.changesWith(value, split.e))
    return {};
  return readWhere(isThere, lowerOperation(value.getDefiningOp()).expr);
}

Expr Split::valueAt(Expr column, const TileKey &key, Expr isThere) {
  Environment environment = bind(op.getBody(), keyBinding(key.key, key.isThere));
  environment.indices[op.getBody().getArgument(vars.size() - 1)].expr = column;
  Environment first = ofBlock(environment, blockOfTile(key.rows));
  keepSubscripts(yielded(op.getBody(), 1), first, key.kept, firstOfTile(key.rows));
  return ColumnRegion(*this, first, isThere).expression(yielded(op.getBody(), 1));
}

Expr Split::plusKey(Expr sum, Expr column, const TileKey &key, bool mayBeSurplus) {
  Expr columns = extent(kernel, op.getResult().getType().getShape().back());
  Expr isThere = mayBeSurplus ? column < columns : Expr();
  if (mayBeSurplus)
    column = Halide::unsafe_promise_clamped(column, 0, columns - 1);
  Expr added = atKey(key, [&](const TileKey &key) { return valueAt(column, key, isThere); });
  return plusWeighted(op, sum, weights(at({key.key})), added);
}

/// `count` tiles of `vectors` vectors of columns, from `first` on, for the rows of `rowTile`. A loop over keys ends with
/// the last one. A single vector is the last and may have more lanes than there are columns.
void Split::addColumnTile(int vectors, Expr first, Expr count, const RowTile &rowTile) {
  ColumnTile tile{vectors, rowTile.rows, {}, {}, {}, pairsWeights && vectors > 1};
  int each = tile.ofPairs ? 2 : 1;
  tile.sums = Func(kernel.uniqueName(func.name() + "_tile"));
  tile.sums(stageVars({e, keyTile})) = constant(computeType(op.getResult().getType().getElementType()), 0);
  tile.keys = RDom(0, plan.keyTile / each);
  Expr key = keyTile * plan.keyTile + tile.keys.x * each;
  tile.keys.where(keyBinding(key).expr < keyCount);
  Expr sum = tile.sums(at({e, keyTile}));
  tile.sums(at({e, keyTile})) = tile.ofPairs ? sum + productOfPair(e, thatIsThere(key, tile.rows))
                                             : plusKey(sum, e, thatIsThere(key, tile.rows), vectors == 1);

  tile.tiles = tiles(plan.keyTile, {Expr(lanes), Expr(vectors), Expr(rowTile.rows), count}, &rowTile);
  const RDom &all = tile.tiles;
  Expr firstColumn = first + all[3] * vectors * lanes, column = firstColumn + all[1] * lanes + all[0];
  Expr ofRow = all[4] * rowTile.rows + all[2];
  Expr added = beforeNextPages(
      tile.sums(at({column, all[5]}, ofRow)), thatMayBeSurplus(all[5] * plan.keyTile, tile.rows), plan.keyTile,
      [&](const TileKey &key) { return Halide::Internal::substitute(row.name(), ofRow, valueAt(firstColumn, key)); });
  output(at({column, blockOf(all[5])}, ofRow)) += added;
  columnTiles.push_back(tile);
}

void Split::defineOutput() {
  Expr zero = constant(computeType(op.getResult().getType().getElementType()), 0);
  output = Func(kernel.uniqueName(func.name() + "_output"));
  output(stageVars({e, block})) = zero;
  // Register tiles, and what is left of the columns.
  Expr columns = extent(kernel, op.getResult().getType().getShape().back()), whole;
  for (const RowTile &rowTile : rowTiles(plan.valueRows)) {
    whole = 0;
    bool isOneRow = rowTile.rows == 1;
    for (int vectors = isOneRow ? plan.valueVectors / (pairsWeights ? 2 : 1) : 2; vectors > 1; vectors /= 2) {
      Expr count = kernel.derivedSize("column_tiles", (columns - whole) / (lanes * vectors), 0);
      if (!Halide::Internal::is_const_zero(count))
        addColumnTile(vectors, whole, count, rowTile);
      whole = Halide::Internal::simplify(columns / (lanes * vectors) * (lanes * vectors));
    }
  }
  Expr count = kernel.derivedSize("column_tiles", ceilDivide(columns - whole, lanes), 0);
  if (!Halide::Internal::is_const_zero(count))
    addColumnTile(1, whole, count, RowTile{1, 0, rowCount});
}

//===----------------------------------------------------------------------===//
// The state of a span, and of all
//===----------------------------------------------------------------------===//

/// A row's state is a vector of its own, and its outputs. The vector has the maximum, the sum, and what the last chunk has
/// scaled the outputs before it and its own by: the vectors of outputs, which follow, find these there.
void Split::defineState() {
  Halide::Type type = computeType(op.getResult().getType().getElementType());
  Expr zero = constant(type, 0), vectors = ceilDivide(extent(kernel, op.getResult().getType().getShape().back()), lanes);
  enum { Maximum, Sum, OldScale, NewScale };
  int before = softmax ? 1 : 0; // vectors that are no outputs
  parts = RDom({{0, lanes}, {0, before + vectors}, {0, mostChunks}});
  parts.where(parts.z < chunksOfSpan);
  state = Func(kernel.uniqueName(func.name() + "_state"));
  auto ofChunk = [&](const Func &stage, std::vector<Expr> first) {
    return Expr(stage(at(std::move(first), row, parts.z)));
  };
  auto old = [&](Expr part) { return Expr(state(part, row, task)); };
  Expr part = parts.y * lanes + parts.x, column = Halide::max(parts.y - before, 0) * lanes + parts.x;
  std::vector<Expr> blocks; // that are made apart, so that no chain of additions is long
  for (int index = 0; index < plan.chunk / plan.block(); ++index)
    blocks.push_back(ofChunk(output, {column, index}));
  Expr chunkOutput = combineTree(ReduceKind::Sum, blocks);
  if (!softmax) {
    state(e, row, task) = zero;
    state(part, row, task) += chunkOutput;
    return;
  }
  state(e, row, task) = select(e == Maximum, lowest(type), zero);
  Expr chunkMaximum = ofChunk(maximum, {}), newMaximum = larger(old(Maximum), chunkMaximum);
  Expr oldScale = exp2OfNonPositive(old(Maximum) - newMaximum), newScale = exp2OfNonPositive(chunkMaximum - newMaximum);
  Expr newSum = old(Sum) * oldScale + ofChunk(sum, {}) * newScale;
  Expr ofRow = select(parts.x == Maximum, newMaximum, parts.x == Sum, newSum, parts.x == OldScale, oldScale, newScale);
  Expr ofColumn = old(part) * old(OldScale) + chunkOutput * old(NewScale);
  state(part, row, task) = select(parts.y > 0, Halide::likely(ofColumn), ofRow);
}

/// What the spans have found, and the sink, together.
void Split::defineMerged() {
  Halide::Type type = computeType(op.getResult().getType().getElementType());
  Expr zero = constant(type, 0);
  allSpans = RDom(0, spans);
  std::vector<Expr> element(vars.begin(), vars.end()), rowOf(vars.begin() + 1, vars.end());
  auto found = [&](Expr part) { return Expr(state(stateAt(std::move(part), allSpans.x))); };
  std::vector<Var> rowVars(vars.begin() + 1, vars.end());
  merged = Func(kernel.uniqueName(func.name() + "_merged"));
  if (!softmax) {
    merged(vars) = zero;
    merged(element) += found(e);
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
  total(rowOf) = larger(total(rowOf), found(0));
  Expr scale = exp2OfNonPositive(found(0) - total(rowOf));
  merged(vars) = Halide::Tuple(sink.defined() ? exp2OfNonPositive(sink - total(rowOf)) : zero, zero);
  merged(element) =
      Halide::Tuple(merged(element)[0] + found(1) * scale, merged(element)[1] + found(lanes + e) * scale);
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

} // namespace attn::lowering

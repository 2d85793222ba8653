//===- SplitState.cpp - The split plan: outputs, and what spans add up to ---===//

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

Expr Split::valueAt(Expr column, const TileKey &key) {
  Environment environment = bind(op.getBody(), keyBinding(key.key, key.isThere));
  environment.indices[op.getBody().getArgument(vars.size() - 1)].expr = column;
  Environment first = ofBlock(environment, blockOfTile(key.rows));
  keepSubscripts(yielded(op.getBody(), 1), first, key.kept, firstOfTile(key.rows));
  return PlainRegion(kernel, first).expression(yielded(op.getBody(), 1));
}

Expr Split::plusKey(Expr sum, Expr column, const TileKey &key) {
  Expr added = atKey(key, [&](const TileKey &key) { return valueAt(column, key); });
  return plusWeighted(op, sum, weights(at({key.key})), added);
}

/// `count` tiles of `vectors` vectors of columns, from `first` on, for the rows of `rowTile`.
void Split::addColumnTile(int vectors, Expr first, Expr count, const RowTile &rowTile) {
  int keysOfTile = pairsWeights ? plan.keyTile / 2 : plan.keyTile;
  ColumnTile tile{vectors, rowTile.rows, {}, {}, {}};
  tile.keys = RDom(0, keysOfTile);
  tile.sums = Func(kernel.uniqueName(func.name() + "_tile"));
  std::vector<Expr> element = at({e, keyTile});
  tile.sums(stageVars({e, keyTile})) = constant(computeType(op.getResult().getType().getElementType()), 0);
  if (pairsWeights) {
    tile.sums(element) += productOfKeys(tile);
  } else {
    Expr key = keyTile * plan.keyTile + tile.keys.x;
    tile.keys.where(keyBinding(key).expr < keyCount);
    tile.sums(element) = plusKey(tile.sums(element), e, thatIsThere(key, tile.rows));
  }

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
  restKeys = tiles(plan.keyTile, {columns - whole, Expr(plan.keyTile)});
  std::vector<Expr> rest = at({whole + restKeys[0], blockOf(restKeys[2])});
  output(rest) =
      plusKey(output(rest), whole + restKeys[0], thatMayBeSurplus(restKeys[2] * plan.keyTile + restKeys[1], 1));
}

//===----------------------------------------------------------------------===//
// The state of a span, and of all
//===----------------------------------------------------------------------===//

void Split::defineState() {
  Halide::Type type = computeType(op.getResult().getType().getElementType());
  Expr zero = constant(type, 0);
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

} // namespace attn::lowering

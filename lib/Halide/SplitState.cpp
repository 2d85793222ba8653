//===- SplitState.cpp - The split plan: outputs, and what spans add up to ---===//

#include "Lanes.h"
#include "Mathematics.h"
#include "Pairs.h"
#include "SplitRegions.h"

using Halide::Expr;
using Halide::Func;
using Halide::RDom;
using Halide::select;
using Halide::Var;

namespace attn::lowering {

//===----------------------------------------------------------------------===//
// The output of a chunk
//===----------------------------------------------------------------------===//

Expr Split::valueAt(const Column &column, const TileKey &key) {
  Environment environment = bind(op.getBody(), keyBinding(key.key, key.isThere));
  mlir::Value index = op.getBody().getArgument(vars.size() - 1);
  environment.indices[index].expr = column.index;
  Environment first = ofBlock(environment, blockOfTile(key.rows));
  keepSubscripts(yielded(op.getBody(), 1), first, key.kept, firstOfTile(key.rows));
  return MaskedRegion(kernel, first, {{index}, column.isThere}).expression(yielded(op.getBody(), 1));
}

/// A weight times its value in a column is added to `sum`, for `key`, or for it and the one after it.
Expr Split::plusKeys(Expr sum, const Column &column, const TileKey &key) {
  Expr values = atKey(key, [&](const TileKey &key) {
    Expr value = valueAt(column, key);
    return pairsWeights ? pairOf(value, valueAt(column, secondOf(key))) : value;
  });
  return pairsWeights ? sum + productOfPairs(weightPairs(key.key / 2, row), values)
                      : plusWeighted(op, sum, weights(key.key, row), values);
}

/// `count` tiles of `vectors` vectors of columns, from `first` on, for the rows of `rowTile`. A loop over keys ends
/// with the last one.
void Split::addColumnTile(int vectors, Expr first, Expr count, const RowTile &rowTile, bool isLast) {
  ColumnTile tile{vectors, rowTile.rows, {}, {}, {}};
  tile.sums = Func(kernel.uniqueName(func.name() + "_tile"));
  tile.sums(e, keyTile, row) = constant(computeType(op.getResult().getType().getElementType()), 0);
  int each = pairsWeights ? 2 : 1;
  tile.keys = RDom(0, plan.keyTile / each);
  Expr key = keyTile * plan.keyTile + tile.keys.x * each, columns = columnCount();
  tile.keys.where(keyBinding(key).expr < keyCount);
  Column column{e, {}};
  if (isLast)
    column.isThere = e < columns;
  tile.sums(e, keyTile, row) = plusKeys(tile.sums(e, keyTile, row), column, thatIsThere(key, tile.rows));

  tile.tiles = tiles(plan.keyTile, {Expr(lanes), Expr(vectors), Expr(rowTile.rows), count}, &rowTile);
  const RDom &all = tile.tiles;
  Expr ofRow = all[4] * rowTile.rows + all[2];
  Expr firstColumn = first + all[3] * vectors * lanes;
  Column readAhead{firstColumn, {}};
  Expr columnOfOutput = firstColumn + all[1] * lanes + all[0];
  Expr added = beforeNextPages(
      tile.sums(columnOfOutput, all[5], ofRow), thatMayBeSurplus(all[5] * plan.keyTile, tile.rows), plan.keyTile,
      [&](const TileKey &key) { return Halide::Internal::substitute(row.name(), ofRow, valueAt(readAhead, key)); });
  output(columnOfOutput, blockOf(all[5]), ofRow) += added;
  columnTiles.push_back(tile);
}

void Split::defineOutput() {
  Expr zero = constant(computeType(op.getResult().getType().getElementType()), 0), columns = columnCount();
  output = Func(kernel.uniqueName(func.name() + "_output"));
  output(e, block, row) = zero;
  for (const RowTile &rows : rowTiles(plan.valueRows)) {
    int vectors = rows.rows > 1 ? plan.valueVectorsOfSeveral : plan.valueVectors;
    int last = plan.masksLanes ? std::max(vectors / 2, 2) : 1;
    Expr done = 0; // of the columns
    for (vectors = std::max(vectors, last); vectors >= last; vectors /= 2) {
      bool isLast = vectors == last;
      Expr left = columns - done + (isLast ? lanes * vectors - 1 : 0);
      Expr count = kernel.derivedSize("column_tiles", left / (lanes * vectors), 0);
      if (!Halide::Internal::is_const_zero(count))
        addColumnTile(vectors, done, count, rows, isLast);
      done = Halide::Internal::simplify(columns / (lanes * vectors) * (lanes * vectors));
    }
  }
}

//===----------------------------------------------------------------------===//
// The state of a span, and of all
//===----------------------------------------------------------------------===//

namespace {
/// What a row's state has before its outputs. The scales are what the last chunk has scaled the outputs before it and
/// its own by: the vectors of outputs, which follow, find them there. They come first, for the maximum and the sum that
/// they are made from may be another vector.
enum RowPart { ScaleBefore, ScaleOfChunk, Maximum, Sum, rowParts };
} // namespace

void Split::defineState() {
  Halide::Type type = computeType(op.getResult().getType().getElementType());
  Expr zero = constant(type, 0), vectors = ceilDivide(columnCount(), lanes);
  firstOutput = softmax ? (rowParts + lanes - 1) / lanes : 0;
  parts = RDom({{0, lanes}, {0, firstOutput + vectors}, {0, mostChunks}});
  parts.where(parts.z < chunksOfSpan);
  state = Func(kernel.uniqueName(func.name() + "_state"));
  auto old = [&](Expr part) { return Expr(state(part, row, task)); };
  auto ofPass = [&](const Expr &value) { return taskNumbers.before({task}, chunkKeys.before({parts.z, task}, value)); };
  Expr part = parts.y * lanes + parts.x, column = Halide::max(parts.y - firstOutput, 0) * lanes + parts.x;
  std::vector<Expr> blocks; // that are made apart, so that no chain of additions is long
  for (int index = 0; index < plan.chunk / plan.block(); ++index)
    blocks.push_back(output(column, index, row));
  Expr chunkOutput = combineTree(ReduceKind::Sum, blocks);
  if (!softmax) {
    state(e, row, task) = zero;
    state(part, row, task) = ofPass(old(part) + chunkOutput);
    return;
  }
  state(e, row, task) = select(e == Maximum, lowest(type), zero);
  Expr chunkMaximum = maximum(row), newMaximum = larger(old(Maximum), chunkMaximum);
  Expr scaleBefore = exp2OfNonPositive(old(Maximum) - newMaximum),
       scaleOfChunk = exp2OfNonPositive(chunkMaximum - newMaximum);
  Expr newSum = old(Sum) * scaleBefore + sum(row) * scaleOfChunk;
  Expr ofRow =
      select(part == ScaleBefore, scaleBefore, part == ScaleOfChunk, scaleOfChunk, part == Maximum, newMaximum, newSum);
  Expr ofColumn = old(part) * old(ScaleBefore) + chunkOutput * old(ScaleOfChunk);
  state(part, row, task) = ofPass(select(parts.y >= firstOutput, Halide::likely(ofColumn), ofRow));
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
    sink = lowering.expression(yielded(bodyOf(softmax.getSink()))) * log2e(type);
    start = larger(start, sink);
  }
  total(rowVars) = start;
  total(rowOf) = larger(total(rowOf), found(Maximum));
  Expr scale = exp2OfNonPositive(found(Maximum) - total(rowOf));
  merged(vars) = Halide::Tuple(sink.defined() ? exp2OfNonPositive(sink - total(rowOf)) : zero, zero);
  merged(element) = Halide::Tuple(merged(element)[0] + found(Sum) * scale,
                                  merged(element)[1] + found(firstOutput * lanes + e) * scale);
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
  result = convert(result, kernel.typeInMemory(op.getResult()));
  if (!hasLogSumExp) {
    func(vars) = result;
    return;
  }
  std::vector<Var> rowVars(vars.begin() + 1, vars.end());
  std::vector<Expr> ofRow(rowVars.begin(), rowVars.end()), first = ofRow;
  first.insert(first.begin(), 0);
  logSumExp = Func(kernel.uniqueName(func.name() + "_logsumexp"));
  logSumExp(rowVars) =
      convert(lowering::logSumExp(total(ofRow), merged(first)[0]), kernel.typeInMemory(softmax.getLogsumexp()));
  func(vars) = Halide::Tuple(result, logSumExp(ofRow));
}

} // namespace attn::lowering

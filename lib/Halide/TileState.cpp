//===- TileState.cpp - The tiled plan: what chunks add up to ----------------===//
//
// The state of a query is its row of the output so far, relative to the largest score so far. Where there is a softmax,
// four numbers of the row itself stand before the columns (`RowPart`): with each chunk they are brought up to date
// first, so that the columns are only scaled and added. (As values of a tuple they would be computed, and stored, with
// each column anew.)
//
//===----------------------------------------------------------------------===//

#include "Mathematics.h"
#include "Tile.h"

using Halide::cast;
using Halide::Expr;
using Halide::Func;
using Halide::RDom;
using Halide::select;
using Halide::Var;

namespace attn::lowering {

namespace {
/// What the state has of a row, in place of a column.
enum RowPart {
  ScaleBefore = -4, ///< What the chunks before are multiplied with at the last one, 2^(maximum before - maximum).
  ScaleOfChunk,     ///< What the last chunk is multiplied with, 2^(its maximum - maximum).
  Maximum,          ///< The largest score in powers of two, or the lowest float.
  Sum               ///< Of the weights.
};
} // namespace

void Tile::defineState() {
  int size = plan.chunk;
  // Without keys there is one chunk, empty; so that no bound is negative.
  Expr count = (Halide::max(keyCount, 1) + size - 1) / size;
  Expr columns = extent(kernel, op.getResult().getType().getShape().back());
  chunks = softmax ? RDom(ScaleBefore, columns - ScaleBefore, 0, count) : RDom(0, count);
  Expr last = chunkLoop();
  if (ranged) {
    chunks.where(last * size < upper);
    chunks.where(last * size + size > lower);
  }
  if (search)
    chunks.where(visitedLower < visitedUpper);
  state = Func(kernel.uniqueName(func.name() + "_state"));
  softmax ? defineSoftmaxState() : defineSumState();
}

Halide::RVar Tile::chunkLoop() const { return chunks[chunks.dimensions() - 1]; }

Expr Tile::stateAt(Expr query, Expr part, int value) const {
  Halide::FuncRef all = state(query, part);
  return state.outputs() == 1 ? Expr(all) : all[value];
}

void Tile::defineSumState() {
  Expr zero = constant(computeType(op.getResult().getType().getElementType()), 0);
  state(q, e) = counted(zero, 0, 0);
  state(q, e) = countedAfter(chunkNumbers.before({chunkLoop()}, stateAt(q, e) + output(q, e)), e);
}

void Tile::defineSoftmaxState() {
  Halide::Type type = computeType(op.getResult().getType().getElementType());
  Expr start = lowest(type), startSum = constant(type, 0);
  if (softmax.getSink()) {
    Environment environment = bind(op.getBody(), keyBinding(k));
    bindScore(softmax, environment);
    TileRegion lowering(*this, environment, true);
    Expr sink = lowering.expression(yielded(bodyOf(softmax.getSink()))) * log2e(type);
    start = select(sink > start, sink, start);
    startSum = exp2OfNonPositive(sink - start);
  }
  Var any("part$");
  state(q, any) = counted(select(any == Maximum, start, any == Sum, startSum, constant(type, 0)), 0, 0);

  Expr part = chunks.x;
  auto before = [&](Expr part) { return stateAt(q, part); };
  Expr chunkMaximum = maximum(q), oldMaximum = before(Maximum);
  Expr newMaximum = select(chunkMaximum > oldMaximum, chunkMaximum, oldMaximum);
  auto scaled = [&](Expr ofLast) { return before(part) * before(ScaleBefore) + ofLast * before(ScaleOfChunk); };
  // Halide makes one loop of the parts before the columns, and one of the columns, which decides nothing.
  Expr column = scaled(output(q, Halide::max(part, 0)));
  Expr ofRow = select(part == ScaleBefore, exp2OfNonPositive(oldMaximum - newMaximum), part == ScaleOfChunk,
                      exp2OfNonPositive(chunkMaximum - newMaximum), part == Maximum, newMaximum, scaled(sum(q)));
  Expr after = chunkNumbers.before({chunkLoop()}, select(part >= 0, Halide::likely(column), ofRow));
  state(q, part) = countedAfter(after, part);
}

void Tile::defineResult() {
  unsigned rank = vars.size();
  Var query = vars[rank - 1 - op.getQuery()];
  int queries = plan.queries;
  rows = Func(kernel.uniqueName(func.name() + "_rows"));
  rows(e, q) = stateAt(q, e);

  Expr within = query % queries, taskOfRow = query / queries, tasksBefore = tiles;
  for (const Own &other : others) {
    taskOfRow += other.index * tasksBefore;
    tasksBefore *= other.size;
  }
  Expr result = rows(e, within);
  if (softmax) {
    Expr total = stateAt(within, Sum);
    result = select(total == 0.0f, constant(result.type(), 0), result / total);
  }
  result = taskNumbers.before({taskOfRow}, convert(result, kernel.typeInMemory(op.getResult())));
  if (hasLogSumExp) {
    logSumExp = Func(kernel.uniqueName(func.name() + "_logsumexp"));
    logSumExp(q) =
        convert(lowering::logSumExp(stateAt(q, Maximum), stateAt(q, Sum)), kernel.typeInMemory(softmax.getLogsumexp()));
    func(vars) = Halide::Tuple(result, logSumExp(within));
  } else if (kernel.plan.countChunks) {
    func(vars) = Halide::Tuple(result, stateAt(within, e, 1), stateAt(within, e, 2));
  } else {
    func(vars) = result;
  }
}

} // namespace attn::lowering

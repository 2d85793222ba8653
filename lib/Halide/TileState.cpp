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
  state = Func(kernel.uniqueName(func.name() + "_state"));
  softmax ? defineSoftmaxState() : defineSumState();
}

Halide::RVar Tile::chunkLoop() const { return chunks[chunks.dimensions() - 1]; }

std::vector<Expr> Tile::ofChunk(std::vector<Expr> first) const {
  first.insert(first.end(), {chunkLoop(), task});
  return first;
}

Expr Tile::stateAt(Expr query, Expr part, Expr whichTask, int value) const {
  Halide::FuncRef all = state(query, part, whichTask);
  return state.outputs() == 1 ? Expr(all) : all[value];
}

void Tile::defineSumState() {
  Expr zero = constant(computeType(op.getResult().getType().getElementType()), 0);
  state(taskVars({q, e})) = counted(zero, 0, 0);
  state(q, e, task) = countedAfter(stateAt(q, e, task) + output(ofChunk({q, e})), e);
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
  state(taskVars({q, any})) = counted(select(any == Maximum, start, any == Sum, startSum, constant(type, 0)), 0, 0);

  Expr part = chunks.x;
  auto before = [&](Expr part) { return stateAt(q, part, task); };
  Expr chunkMaximum = maximum(ofChunk({q})), oldMaximum = before(Maximum);
  Expr newMaximum = select(chunkMaximum > oldMaximum, chunkMaximum, oldMaximum);
  auto scaled = [&](Expr ofLast) { return before(part) * before(ScaleBefore) + ofLast * before(ScaleOfChunk); };
  // Halide makes one loop of the parts before the columns, and one of the columns, which decides nothing.
  Expr column = scaled(output(ofChunk({q, Halide::max(part, 0)})));
  Expr ofRow =
      select(part == ScaleBefore, exp2OfNonPositive(oldMaximum - newMaximum), part == ScaleOfChunk,
             exp2OfNonPositive(chunkMaximum - newMaximum), part == Maximum, newMaximum, scaled(sum(ofChunk({q}))));
  state(q, part, task) = countedAfter(select(part >= 0, Halide::likely(column), ofRow), part);
}

void Tile::defineResult() {
  unsigned rank = vars.size();
  Var query = vars[rank - 1 - op.getQuery()];
  int queries = plan.queries;
  rows = Func(kernel.uniqueName(func.name() + "_rows"));
  rows(taskVars({e, q})) = stateAt(q, e, task);

  Expr within = query % queries, taskOfRow = query / queries, tasksBefore = tiles;
  for (const Own &other : others) {
    taskOfRow += other.index * tasksBefore;
    tasksBefore *= other.size;
  }
  Expr result = rows(e, within, taskOfRow);
  if (softmax) {
    Expr total = stateAt(within, Sum, taskOfRow);
    result = select(total == 0.0f, constant(result.type(), 0), result / total);
  }
  result = convert(result, kernel.typeInMemory(op.getResult()));
  if (hasLogSumExp) {
    logSumExp = Func(kernel.uniqueName(func.name() + "_logsumexp"));
    logSumExp(taskVars({q})) = convert(lowering::logSumExp(stateAt(q, Maximum, task), stateAt(q, Sum, task)),
                                       kernel.typeInMemory(softmax.getLogsumexp()));
    func(vars) = Halide::Tuple(result, logSumExp(within, taskOfRow));
  } else if (kernel.plan.countChunks) {
    func(vars) = Halide::Tuple(result, stateAt(within, e, taskOfRow, 1), stateAt(within, e, taskOfRow, 2));
  } else {
    func(vars) = result;
  }
}

} // namespace attn::lowering

//===- TileSchedule.cpp - The tiled plan: how it is computed ---------------===//

#include "Parts.h"
#include "Tile.h"

using Halide::Func;
using Halide::RDom;
using Halide::RVar;
using Halide::TailStrategy;
using Halide::Var;
using Halide::VarOrRVar;

namespace attn::lowering {

/// The reduction variables of a stage over keys: those within a key first, then keys of a register tile, then tiles.
static std::vector<RVar> variables(const RDom &domain) {
  std::vector<RVar> result;
  for (int dimension = 0; dimension < domain.dimensions(); ++dimension)
    result.push_back(domain[dimension]);
  return result;
}

/// Computes `stage` for one tile of queries in each task of the sum.
void Tile::computeInTask(Func stage) { stage.compute_at(func, tasks).bound(q, 0, static_cast<int>(plan.queries)); }

/// Computes `stage` for one chunk of the keys of a tile.
void Tile::computeInChunk(Func stage) {
  stage.compute_at(state, chunkLoop()).bound(q, 0, static_cast<int>(plan.queries));
}

void Tile::schedule() {
  int lanes = plan.lanes, queries = plan.queries, valueUnroll = plan.valueUnroll, chunkSize = plan.chunk;
  unsigned rank = vars.size();
  Var query = vars[rank - 1 - op.getQuery()], within("within$"), tileOfQueries("tile$");

  // Tiles × other indices are the parallel tasks; of a tile, rows and then columns.
  std::vector<VarOrRVar> order = {e, within, tileOfQueries};
  for (const Own &other : others)
    order.push_back(other.index);
  func.compute_root().split(query, tileOfQueries, within, queries, TailStrategy::GuardWithIf).reorder(order);
  tasks = tileOfQueries;
  for (auto [position, other] : llvm::enumerate(others)) {
    if (position >= 2) { // of more that are one loop, Halide does not see that a task has one value of each
      func.parallel(other.index);
      continue;
    }
    Var fused(tasks.name() + "$" + other.index.name());
    func.fuse(tasks, other.index, fused);
    tasks = fused;
  }
  func.parallel(tasks).vectorize(e, lanes, TailStrategy::GuardWithIf);

  taskNumbers.computeAt(Halide::LoopLevel(func, tasks));
  chunkNumbers.computeAt(Halide::LoopLevel(state, chunkLoop()));
  for (Func &bound : rangeFuncs)
    bound.compute_at(func, tasks);
  for (auto &[read, row] : madeRows) {
    computeInTask(row);
    vectorizeParts(row, lanes);
  }
  for (Func &pack : packs) {
    computeInTask(pack);
    pack.vectorize(q, lanes);
  }
  if (logSumExp.defined()) {
    computeInTask(logSumExp);
    logSumExp.vectorize(q, lanes);
  }
  for (auto &[reduction, row] : rowReductions) {
    computeInTask(row);
    row.vectorize(q, lanes);
    row.update().vectorize(q, lanes);
  }

  computeInTask(state);
  state.vectorize(q, lanes);
  std::vector<VarOrRVar> stateLoops = {q, softmax ? VarOrRVar(chunks.x) : VarOrRVar(e), chunkLoop()};
  state.update().reorder(stateLoops).vectorize(q, lanes).unroll(q);
  if (softmax)
    state.update().partition(chunks.x, Halide::Partition::Always);
  // Rows of as many columns as queries: a block that is turned in registers (Transposition.h).
  computeInTask(rows);
  rows.vectorize(e, lanes, TailStrategy::RoundUp);

  if (search)
    search->computeAt(Halide::LoopLevel(state, chunkLoop()), Halide::LoopLevel(func, tasks), lanes);
  for (Func &row : bandRows)
    row.compute_at(state, chunkLoop());
  scheduleDistances();
  // Stages over the keys of a chunk: queries innermost and unrolled, accumulators in registers where there are any.
  for (Product &product : products) {
    computeInChunk(product.func);
    product.func.bound(k, 0, product.band ? bandSize() : chunkSize)
        .update()
        .reorder(q, product.keys[0], product.keys[1]);
    product.func.update().vectorize(q, lanes).unroll(q);
    // A register tile shares its loads among multiply-adds; where functions are evaluated, loads do not matter and
    // copies of the body only cost compile time.
    int keysAtOnce = product.dear ? 1 : plan.keyUnroll;
    if (!product.dear)
      product.func.update().unroll(product.keys[0]);
    product.sums.compute_at(product.func, product.keys[product.dear ? 0 : 1])
        .bound(q, 0, queries)
        .bound_extent(k, keysAtOnce)
        .bound_extent(keyTile, 1)
        .vectorize(q, lanes)
        .unroll(q)
        .unroll(k);
    auto addUp = [&](int update, const RDom &domain) {
      std::vector<VarOrRVar> loops = {q, k};
      llvm::append_range(loops, variables(domain));
      product.sums.update(update).reorder(loops).vectorize(q, lanes).unroll(q).unroll(k);
    };
    addUp(0, product.domain);
    if (product.rest.defined())
      addUp(1, product.rest);
  }
  for (Widened &each : widened) {
    each.func.compute_at(state, chunkLoop()).bound(k, 0, chunkSize);
    std::vector<RVar> loops = variables(each.domain);
    each.func.update()
        .reorder(std::vector<VarOrRVar>(loops.begin(), loops.end()))
        .allow_race_conditions()
        .vectorize(loops.front(), lanes, TailStrategy::GuardWithIf);
  }
  for (Transposed &read : transposed) {
    computeInChunk(read.func);
    read.func.bound(k, 0, chunkSize).update().reorder(q, read.keys[0], read.keys[1]).vectorize(q, lanes);
  }
  auto overKeys = [&](Func stage, llvm::ArrayRef<RDom> domains) {
    computeInChunk(stage);
    stage.bound(k, 0, chunkSize);
    for (auto [update, domain] : llvm::enumerate(domains))
      stage.update(update).reorder(q, domain[0], domain[1]).vectorize(q, lanes);
  };
  if (softmax) {
    if (storeScore)
      overKeys(score, scoreKeys);
    computeInChunk(maximum);
    maximum.vectorize(q, lanes);
    for (auto [update, domain] : llvm::enumerate(maximumKeys))
      maximum.update(update).reorder(q, domain[0], domain[1]).vectorize(q, lanes).unroll(q);
    overKeys(exponential, exponentialKeys);
    computeInChunk(sum);
    sum.vectorize(q, lanes);
    sum.update().reorder(q, sumBlocks.x).vectorize(q, lanes).unroll(q);
    sumBlock.compute_at(sum, sumBlocks.x).bound(q, 0, queries).vectorize(q, lanes).unroll(q);
    sumBlock.update().reorder(q, sumKeys.x, sumKeys.y).vectorize(q, lanes).unroll(q);
  }
  if (!softmax || weights.name() != exponential.name())
    overKeys(weights, weightKeys);
  if (weightPairs.defined())
    schedulePairs();
  // A register tile of the output begins anew with each block of keys, and is added to what lies in memory.
  Var columns("columns$"), column("column$");
  computeInChunk(output);
  output.align_bounds(e, valueUnroll).vectorize(q, lanes);
  output.update()
      .split(e, columns, column, valueUnroll, TailStrategy::RoundUp)
      .reorder(q, column, columns, outputBlocks.x)
      .vectorize(q, lanes)
      .unroll(q)
      .unroll(column);
  outputBlock.compute_at(output, columns)
      .bound(q, 0, queries)
      .bound_extent(e, valueUnroll)
      .bound_extent(block, 1)
      .vectorize(q, lanes)
      .unroll(q)
      .unroll(e);
  std::vector<VarOrRVar> loops = {q, e};
  llvm::append_range(loops, variables(outputKeys));
  outputBlock.update().reorder(loops).vectorize(q, lanes).unroll(q).unroll(e);
}

} // namespace attn::lowering

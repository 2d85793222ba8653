//===- SplitSchedule.cpp - The split plan: how it is computed --------------===//

#include "Split.h"

using Halide::Func;
using Halide::LoopLevel;
using Halide::RDom;
using Halide::Stage;
using Halide::TailStrategy;
using Halide::Var;
using Halide::VarOrRVar;

namespace attn::lowering {

/// The first `count` variables of `domain`.
static std::vector<VarOrRVar> variables(const RDom &domain, int count) {
  std::vector<VarOrRVar> result;
  for (int dimension = 0; dimension < count; ++dimension)
    result.push_back(domain[dimension]);
  return result;
}

/// Computes a stage for one chunk of one span at a time, for all rows of the task. That there is one is not seen from
/// stages that ask for it in several ways.
void Split::computeRowsInChunk(Func &stage) {
  stage.compute_at(state, parts.z);
  if (shared.empty())
    stage.bound(row, 0, 1);
}

void Split::scheduleMerged() {
  func.compute_root().vectorize(e, lanes, TailStrategy::GuardWithIf);
  std::vector<Var> rowVars(vars.begin() + 1, vars.end());
  if (!rowVars.empty())
    func.parallel(rowVars.back());
  LoopLevel ofRow = rowVars.empty() ? LoopLevel::root() : LoopLevel(func, rowVars.front());
  merged.compute_at(ofRow).align_bounds(e, lanes).vectorize(e, lanes);
  merged.update().reorder(e, allSpans.x).vectorize(e, lanes, TailStrategy::RoundUp);
  if (softmax)
    total.compute_at(ofRow);
  if (hasLogSumExp)
    logSumExp.compute_at(ofRow);
}

void Split::scheduleState() {
  for (Func &bound : rangeFuncs)
    bound.compute_root();
  if (search) {
    std::vector<Var> group = groupVars();
    if (!group.empty())
      seenKeys.parallel(group.back());
    LoopLevel ofGroup = group.empty() ? LoopLevel::root() : LoopLevel(seenKeys, group.front());
    search->computeAt(ofGroup, ofGroup, lanes);
  }
  taskNumbers.computeAt(LoopLevel(state, task));
  for (auto &[op, reduction] : rowReductions)
    reduction.compute_at(state, task);
  for (Pack &pack : packs) {
    pack.func.compute_at(state, task);
    // Pairs are whole vectors of them: Split::addScoreTile.
    pack.func.vectorize(pack.func.args()[0], lanes, pack.ofPairs ? TailStrategy::RoundUp : TailStrategy::GuardWithIf);
  }
  state.compute_root().align_bounds(e, lanes).vectorize(e, lanes);
  state.update()
      .reorder(parts.x, parts.y, row, parts.z, task)
      .allow_race_conditions()
      .vectorize(parts.x)
      .parallel(task);
  if (softmax)
    state.update().partition(parts.y, Halide::Partition::Always);
}

void Split::scheduleProduct(Product &product) {
  computeRowsInChunk(product.func);
  product.func.bound(k, 0, plan.chunk);
  int terms = product.op.getSizes().size();
  if (product.tiles.empty()) {
    product.func.update(0)
        .reorder(product.keys[0], product.keys[1], row)
        .allow_race_conditions()
        .vectorize(product.keys[0]);
    for (auto [number, domain] : llvm::enumerate(product.alongKeys)) {
      std::vector<VarOrRVar> loops = variables(domain, terms + 2);
      loops.push_back(row);
      product.func.update(number + 1).reorder(loops).allow_race_conditions().vectorize(domain[0]);
    }
    return;
  }
  // A tile of keys is used for all rows before the next.
  for (auto [update, tile] : llvm::enumerate(product.tiles)) {
    const RDom &all = tile.keys;
    product.func.update(update)
        .reorder(all[0], all[1], all[2], all[3])
        .allow_race_conditions()
        .vectorize(all[0])
        .unroll(all[1]);
    // One row's keys follow one another, as memory is read in order; each of several rows has two sums at a time.
    scheduleKeyTensors(product, tile.rows, /*isOfRest=*/false, all[3]);
    Func &partial = tile.partial;
    Var keys("keys$"), key("key$");
    partial.compute_at(product.func, all[2]);
    partial.bound(k, 0, tile.keyCount).bound_extent(keyTile, 1).bound_extent(row, tile.rows);
    partial.vectorize(lane).unroll(k).unroll(row);
    for (auto [stage, domain] : llvm::enumerate(tile.terms)) {
      if (tile.rows == 1) {
        std::vector<VarOrRVar> loops = {lane};
        llvm::append_range(loops, variables(domain, terms + 1));
        partial.update(stage).reorder(loops).vectorize(lane);
        continue;
      }
      std::vector<VarOrRVar> loops = {lane, row, key};
      llvm::append_range(loops, variables(domain, terms));
      loops.push_back(keys);
      partial.update(stage)
          .split(k, keys, key, 2, TailStrategy::RoundUp)
          .reorder(loops)
          .vectorize(lane)
          .unroll(row)
          .unroll(key)
          .unroll(keys);
    }
  }
  if (!product.rest.defined())
    return;
  std::vector<VarOrRVar> loops = variables(product.rest, terms);
  llvm::append_range(loops, std::vector<VarOrRVar>{row, product.rest[terms]});
  product.func.update(product.tiles.size()).reorder(loops);
  scheduleKeyTensors(product, /*rows=*/1, /*isOfRest=*/true, product.rest[terms]);
}

/// What a tile of keys adds to a register tile of the output.
void Split::scheduleTile(ColumnTile &tile, unsigned update) {
  const RDom &all = tile.tiles;
  output.update(update)
      .reorder(variables(all, 6))
      .allow_race_conditions()
      .vectorize(all[0])
      .unroll(all[1])
      .unroll(all[2]);
  tile.sums.compute_at(output, all[3]);
  tile.sums.bound_extent(e, tile.vectors * lanes).bound_extent(keyTile, 1).bound_extent(row, tile.rows);
  Var vectors("vectors$"), column("column$");
  int width = pairsWeights ? 2 * lanes : lanes; // of a load
  tile.sums.split(e, vectors, column, width).vectorize(column).unroll(vectors).unroll(row);
  tile.sums.update()
      .split(e, vectors, column, width, TailStrategy::RoundUp)
      .reorder(column, vectors, row, tile.keys.x)
      .vectorize(column)
      .unroll(vectors)
      .unroll(row);
}

void Split::schedulePairs() {
  computeRowsInChunk(weightPairs);
  weightPairs.bound(k, 0, plan.chunk / 2)
      .update()
      .reorder(weightPairKeys[0], weightPairKeys[1], row)
      .allow_race_conditions()
      .vectorize(weightPairKeys[0]);
}

void Split::schedule() {
  scheduleMerged();
  scheduleState();
  for (Product &product : products)
    scheduleProduct(product);
  LoopLevel inChunk(state, parts.z);
  chunkKeys.computeAt(inChunk);
  auto overKeys = [&](Func stage, llvm::ArrayRef<RDom> domains) {
    computeRowsInChunk(stage);
    stage.bound(k, 0, plan.chunk);
    for (auto [update, domain] : llvm::enumerate(domains))
      stage.update(update).reorder(domain[0], domain[1], row).allow_race_conditions().vectorize(domain[0]);
  };
  auto overLanes = [&](Func partial, Func joined, const RDom &domain) {
    computeRowsInChunk(joined);
    computeRowsInChunk(partial);
    partial.vectorize(lane);
    partial.update().reorder(lane, domain[0], row).vectorize(lane);
  };
  for (Subscript &kept : subscripts) {
    if (!kept.keys.defined()) {
      kept.func.compute_at(state, task);
      continue;
    }
    kept.func.compute_at(inChunk);
    kept.func.bound(k, 0, plan.chunk);
    kept.func.update().reorder(kept.keys[0], kept.keys[1]).allow_race_conditions().vectorize(kept.keys[0]);
  }
  if (softmax) {
    overKeys(score, scoreKeys);
    overLanes(maximumLanes, maximum, maximumKeys);
    overKeys(exponential, exponentialKeys);
    overLanes(sumLanes, sum, sumKeys);
  }
  if (!softmax || weights.name() != exponential.name())
    overKeys(weights, weightKeys);
  computeRowsInChunk(output);
  output.bound(block, 0, plan.chunk / plan.block()).align_bounds(e, lanes).vectorize(e, lanes);
  for (auto [update, tile] : llvm::enumerate(columnTiles))
    scheduleTile(tile, update);
  if (pairsWeights)
    schedulePairs();
}

} // namespace attn::lowering

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

/// The loops of a stage from the innermost out: `first`, rows, `last`.
static std::vector<VarOrRVar> order(std::vector<VarOrRVar> first, const std::vector<Var> &rows,
                                    const std::vector<VarOrRVar> &last = {}) {
  first.insert(first.end(), rows.begin(), rows.end());
  first.insert(first.end(), last.begin(), last.end());
  return first;
}

/// The first `count` variables of `domain`.
static std::vector<VarOrRVar> variables(const RDom &domain, int count) {
  std::vector<VarOrRVar> result;
  for (int dimension = 0; dimension < count; ++dimension)
    result.push_back(domain[dimension]);
  return result;
}

/// Computes a stage for one chunk of one span at a time.
void Split::computeInChunk(Func &stage, const LoopLevel &level) {
  stage.compute_at(level).bound_extent(chunk, 1).bound_extent(span, 1);
}

void Split::scheduleMerged() {
  func.compute_root().vectorize(e, lanes, TailStrategy::GuardWithIf);
  if (!rows.empty())
    func.parallel(rows.back());
  LoopLevel row = rows.empty() ? LoopLevel::root() : LoopLevel(func, rows.front());
  merged.compute_at(row).align_bounds(e, lanes).vectorize(e, lanes);
  merged.update().reorder(order({e, allSpans.x}, rows)).vectorize(e, lanes, TailStrategy::RoundUp);
  if (softmax)
    total.compute_at(row);
}

void Split::scheduleState() {
  for (Func &bound : rangeFuncs)
    bound.compute_root();
  for (Func &reduction : rowReductions)
    reduction.compute_root();
  state.compute_root().align_bounds(e, lanes).vectorize(e, lanes);
  Stage update = state.update();
  std::vector<VarOrRVar> inner = {e}, outer;
  for (const Var &row : rows) {
    const Shared *found = sharing(row);
    if (!found) {
      outer.push_back(row);
      continue;
    }
    Var groups(row.name() + "_group$"), within(row.name() + "_within$");
    update.split(row, groups, within, found->group, TailStrategy::GuardWithIf);
    inner.push_back(within);
    outer.push_back(groups);
  }
  outer.push_back(span);
  inner.push_back(chunks.x);
  inner.insert(inner.end(), outer.begin(), outer.end());
  update.reorder(inner).vectorize(e, lanes, TailStrategy::RoundUp);
  Var task = outer.front().var;
  for (const VarOrRVar &other : llvm::ArrayRef(outer).drop_front()) {
    Var fused(task.name() + "_" + other.name());
    update.fuse(task, other.var, fused);
    task = fused;
  }
  update.parallel(task);
}

void Split::scheduleProduct(Product &product) {
  LoopLevel inChunk(state, chunks.x);
  computeInChunk(product.func, inChunk);
  product.func.bound(k, 0, plan.chunk);
  int terms = product.rest.dimensions() - 1;
  if (!product.partial.defined()) {
    product.func.update(0)
        .reorder(order(variables(product.keys, 2), rows))
        .allow_race_conditions()
        .vectorize(product.keys[0]);
    product.func.update(1)
        .reorder(order(variables(product.rest, terms + 1), rows))
        .allow_race_conditions()
        .vectorize(product.rest[0]);
    return;
  }
  // A tile of keys is used for all rows before the next.
  product.func.update(0)
      .reorder(order({product.keys[0]}, rows, {product.keys[1]}))
      .allow_race_conditions()
      .vectorize(product.keys[0]);
  product.func.update(1).reorder(order(variables(product.rest, terms), rows, {product.rest[terms]}));
  LoopLevel row = rows.empty() ? LoopLevel(product.func, product.keys[1]) : LoopLevel(product.func, rows.front());
  computeInChunk(product.partial, row);
  std::vector<VarOrRVar> loops = variables(product.vectors, terms);
  // Key by key: memory is read in order, as prefetchers like it.
  loops.insert(loops.begin(), lane);
  loops.push_back(k);
  product.partial.bound_extent(k, plan.scoreKeys).vectorize(lane).unroll(k);
  product.partial.update().reorder(order(loops, rows)).vectorize(lane).unroll(k);
}

void Split::schedulePairs() {
  LoopLevel inChunk(state, chunks.x);
  computeInChunk(weightPairs, inChunk);
  weightPairs.bound(k, 0, plan.chunk / 2)
      .update()
      .reorder(order({weightPairKeys[0], weightPairKeys[1]}, rows))
      .allow_race_conditions()
      .vectorize(weightPairKeys[0]);
  for (ColumnTile &tile : columnTiles) {
    computeInChunk(tile.valuePairs, LoopLevel(output, tile.keys[4]));
    tile.valuePairs.hoist_storage(inChunk)
        .bound_extent(k, plan.keyTile / 2)
        .align_bounds(e, lanes)
        .vectorize(e, lanes)
        .unroll(k);
  }
}

void Split::schedule() {
  scheduleMerged();
  scheduleState();
  for (Product &product : products)
    scheduleProduct(product);
  LoopLevel inChunk(state, chunks.x);
  computeInChunk(start, inChunk);
  auto overKeys = [&](Func stage, const RDom &domain) {
    computeInChunk(stage, inChunk);
    stage.bound(k, 0, plan.chunk);
    stage.update().reorder(order(variables(domain, 2), rows)).allow_race_conditions().vectorize(domain[0]);
  };
  auto overLanes = [&](Func partial, Func joined, const RDom &domain) {
    computeInChunk(joined, inChunk);
    computeInChunk(partial, inChunk);
    partial.vectorize(lane);
    partial.update().reorder(order({lane, domain[0]}, rows)).vectorize(lane);
  };
  for (Subscript &kept : subscripts) {
    computeInChunk(kept.func, inChunk);
    kept.func.bound(k, 0, plan.chunk);
    kept.func.update()
        .reorder(order(variables(kept.keys, 2), kept.rows))
        .allow_race_conditions()
        .vectorize(kept.keys[0]);
  }
  if (softmax) {
    overKeys(score, scoreKeys);
    overLanes(maximumLanes, maximum, maximumKeys);
    overKeys(exponential, exponentialKeys);
    overLanes(sumLanes, sum, sumKeys);
  }
  if (!softmax || weights.name() != exponential.name())
    overKeys(weights, weightKeys);
  computeInChunk(output, inChunk);
  output.bound(block, 0, plan.chunk / plan.block).align_bounds(e, lanes).vectorize(e, lanes);
  // Lanes, vectors and keys of a register tile, tiles of columns; rows; tiles of keys.
  for (auto [update, tile] : llvm::enumerate(columnTiles))
    output.update(update)
        .reorder(order(variables(tile.keys, 4), rows, {tile.keys[4]}))
        .allow_race_conditions()
        .vectorize(tile.keys[0])
        .unroll(tile.keys[1]);
  if (pairsWeights)
    schedulePairs();
  output.update(columnTiles.size())
      .reorder(order(variables(restKeys, 2), rows, {restKeys[2]}))
      .allow_race_conditions()
      .vectorize(restKeys[0], lanes, TailStrategy::GuardWithIf);
}

} // namespace attn::lowering

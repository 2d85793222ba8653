//===- GpuTileSchedule.cpp - The tiled plan on a GPU: how it is computed ----===//

#include "GpuTile.h"

using Halide::Func;
using Halide::LoopLevel;
using Halide::MemoryType;
using Halide::RVar;
using Halide::TailStrategy;
using Halide::Var;

namespace attn::lowering {

/// Queries × keys of a chunk in shared memory: a thread has a tile of both, whose sums are in its registers.
void GpuTile::schedulePairs(Pairs &stage) {
  Var queries("queries$"), keys("keys$"), withinQueries("within_queries$"), withinKeys("within_keys$");
  stage.func.compute_at(state, chunks.x)
      .store_in(MemoryType::GPUShared)
      .bound_extent(q, plan.queries)
      .bound_extent(k, plan.chunk)
      .split(q, queries, withinQueries, plan.queries / plan.threads, TailStrategy::RoundUp)
      .split(k, keys, withinKeys, plan.chunk / plan.threads, TailStrategy::RoundUp)
      .reorder(withinQueries, withinKeys, keys, queries, chunk, block)
      .unroll(withinQueries)
      .unroll(withinKeys)
      .gpu_threads(keys, queries);
  for (auto &[sums, vars] : stage.sums) {
    sums.compute_at(stage.func, keys).store_in(MemoryType::Register);
    std::vector<Halide::VarOrRVar> order;
    for (const Var &var : {q, k})
      if (llvm::any_of(vars, [&](const Var &own) { return own.same_as(var); }))
        order.push_back(var);
    size_t tile = order.size();
    for (const Halide::Internal::ReductionVariable &loop : sums.update().get_schedule().rvars())
      order.push_back(RVar(loop.var));
    for (const Var &var : {chunk, block})
      if (llvm::any_of(vars, [&](const Var &own) { return own.same_as(var); }))
        order.push_back(var);
    sums.update().reorder(order);
    for (size_t position = 0; position < tile; ++position) {
      const Var &var = order[position].var;
      int extent = (var.same_as(q) ? plan.queries : plan.chunk) / plan.threads;
      sums.bound_extent(var, extent).unroll(var).update().unroll(var);
    }
  }
}

/// A number for each query of the tile, found by a thread.
void GpuTile::scheduleRows(Func rows) {
  Var outer("rows$"), inner("within_rows$");
  rows.compute_at(state, chunks.x)
      .store_in(MemoryType::GPUShared)
      .bound_extent(q, plan.queries)
      .split(q, outer, inner, plan.threads, TailStrategy::RoundUp)
      .gpu_threads(inner, outer);
  RVar key(rows.update().get_schedule().rvars()[0].var);
  rows.update()
      .split(q, outer, inner, plan.threads, TailStrategy::RoundUp)
      .reorder(key, inner, outer)
      .gpu_threads(inner, outer);
}

void GpuTile::schedule() {
  int queriesEach = plan.queries / plan.threads, columnsEach = plan.columns / plan.threads;
  func.compute_root();
  RVar blockLoop = elements[4];
  func.update()
      .allow_race_conditions() // no two elements are in one place
      .unroll(elements[0])
      .unroll(elements[1])
      .gpu_threads(elements[2], elements[3])
      .gpu_blocks(blockLoop);
  for (Func &bound : bounds)
    bound.compute_at(func, blockLoop).store_in(MemoryType::GPUShared);

  Var stateQueries("queries$"), stateColumns("columns$"), q_("within_queries$"), e_("within_columns$");
  state.compute_at(func, blockLoop)
      .store_in(MemoryType::GPUShared)
      .bound_extent(q, plan.queries)
      .bound_extent(e, plan.columns)
      .split(q, stateQueries, q_, queriesEach, TailStrategy::RoundUp)
      .split(e, stateColumns, e_, columnsEach, TailStrategy::RoundUp)
      .reorder(q_, e_, stateColumns, stateQueries, block)
      .unroll(q_)
      .unroll(e_)
      .gpu_threads(stateColumns, stateQueries);
  state.update()
      .split(q, stateQueries, q_, queriesEach, TailStrategy::RoundUp)
      .split(e, stateColumns, e_, columnsEach, TailStrategy::RoundUp)
      .reorder({q_, e_, stateColumns, stateQueries, chunks.x, block})
      .unroll(q_)
      .unroll(e_)
      .gpu_threads(stateColumns, stateQueries);
  for (Pairs &stage : pairs)
    schedulePairs(stage);
  if (softmax) {
    scheduleRows(maximum);
    scheduleRows(sum);
  }
  output.compute_at(state, stateColumns)
      .store_in(MemoryType::Register)
      .bound_extent(q, queriesEach)
      .bound_extent(e, columnsEach)
      .unroll(q)
      .unroll(e);
  output.update().reorder({q, e, outputKeys.x}).unroll(q).unroll(e);
}

} // namespace attn::lowering

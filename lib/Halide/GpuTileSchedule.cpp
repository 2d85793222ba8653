//===- GpuTileSchedule.cpp - A weighted sum on a GPU: how it is computed ----===//

#include "GpuTile.h"

using Halide::Func;
using Halide::LoopLevel;
using Halide::MemoryType;
using Halide::RVar;
using Halide::TailStrategy;
using Halide::Var;
using Halide::VarOrRVar;

namespace attn::lowering {

static constexpr int columnThreads = GpuTilePlan::columnThreads;

/// The first reduction variable of a Func's update.
static RVar loopOf(Func &func) { return RVar(func.update().get_schedule().rvars()[0].var); }

namespace {
/// Loops over a tile of rows × keys: a thread has a tile of both.
struct ThreadTiles {
  Var rows{"rows$"}, keys{"keys$"}, ownRows{"own_rows$"}, ownKeys{"own_keys$"};

  template <typename Stage> void schedule(Stage &&stage, const Var &q, const Var &k, const GpuTilePlan &plan) const {
    stage.split(q, rows, ownRows, plan.rowsEach(), TailStrategy::RoundUp)
        .split(k, keys, ownKeys, plan.keysEach(), TailStrategy::RoundUp)
        .unroll(ownRows)
        .unroll(ownKeys)
        .gpu_threads(keys, rows);
  }
  std::vector<VarOrRVar> order(llvm::ArrayRef<VarOrRVar> outer) const {
    std::vector<VarOrRVar> result = {ownRows, ownKeys, keys, rows};
    result.insert(result.end(), outer.begin(), outer.end());
    return result;
  }
};
} // namespace

/// A warp reads whole sectors where terms lie together in memory, and writes to different banks.
void GpuTile::scheduleFactors(const Product &product, Factors &factors) {
  constexpr int terms = 8, each = columnThreads / terms;
  Var own = factors.isOfKeys ? k : q;
  int count = factors.isOfKeys ? plan.chunk : plan.rows;
  int threads = std::min(plan.rowThreads, count / each);
  Var termBlocks("term_blocks$"), terms_("terms$"), pairs("pairs$"), pair("pair$"), rest("rest$"), x("x$"), y("y$");
  std::vector<VarOrRVar> order = {termBlocks, rest, x, y, slice};
  if (factors.isOfKeys)
    order.push_back(chunk);
  order.insert(order.end(), outer.begin(), outer.end());
  factors.func.compute_at(product.func, product.slices.x)
      .store_in(MemoryType::GPUShared)
      .bound_extent(own, count)
      .bound_extent(term, plan.slice)
      .align_storage(own, plan.padded(count))
      .split(term, termBlocks, terms_, terms, TailStrategy::RoundUp)
      .split(own, pairs, pair, each, TailStrategy::RoundUp)
      .split(pairs, rest, y, threads, TailStrategy::RoundUp)
      .fuse(terms_, pair, x)
      .reorder(order)
      .unroll(termBlocks)
      .unroll(rest)
      .gpu_threads(x, y);
}

void GpuTile::scheduleProduct(Product &product) {
  ThreadTiles tiles;
  std::vector<VarOrRVar> loops = {chunk};
  loops.insert(loops.end(), outer.begin(), outer.end());
  product.func.compute_at(state, chunks.x)
      .store_in(MemoryType::GPUShared)
      .bound_extent(q, plan.rows)
      .bound_extent(k, plan.chunk);
  tiles.schedule(product.func, q, k, plan);
  product.func.reorder(tiles.order(loops));
  loops.insert(loops.begin(), product.slices.x);
  tiles.schedule(product.func.update(), q, k, plan);
  product.func.update().reorder(tiles.order(loops));
  product.ofSlice.compute_at(product.func, tiles.keys)
      .store_in(MemoryType::Register)
      .bound_extent(q, plan.rowsEach())
      .bound_extent(k, plan.keysEach())
      .unroll(q)
      .unroll(k);
  product.ofSlice.update().reorder(q, k, loopOf(product.ofSlice)).unroll(q).unroll(k);
  for (Factors &factors : product.factors)
    scheduleFactors(product, factors);
}

/// Rows × keys of a chunk in shared memory; sums that depend on fewer, or have more indices, in a thread's registers.
void GpuTile::schedulePairs(Pairs &stage) {
  ThreadTiles tiles;
  std::vector<VarOrRVar> loops = {chunk};
  loops.insert(loops.end(), outer.begin(), outer.end());
  stage.func.compute_at(state, chunks.x)
      .store_in(MemoryType::GPUShared)
      .bound_extent(q, plan.rows)
      .bound_extent(k, plan.chunk);
  tiles.schedule(stage.func, q, k, plan);
  stage.func.reorder(tiles.order(loops));
  for (Product &product : stage.products)
    scheduleProduct(product);
  for (auto &[sums, vars] : stage.sums) {
    auto changesWith = [&](const Var &var) {
      return llvm::any_of(vars, [&](const Var &own) { return own.same_as(var); });
    };
    sums.compute_at(stage.func, tiles.keys).store_in(MemoryType::Register);
    std::vector<VarOrRVar> order;
    for (const Halide::Internal::ReductionVariable &loop : sums.update().get_schedule().rvars())
      order.push_back(RVar(loop.var));
    for (const Var &var : withOuter({chunk}))
      if (changesWith(var))
        order.push_back(var);
    for (const auto &[var, extent] : {std::pair(k, plan.keysEach()), std::pair(q, plan.rowsEach())}) {
      if (!changesWith(var))
        continue;
      order.insert(order.begin(), var);
      sums.bound_extent(var, extent).unroll(var).update().unroll(var);
    }
    sums.update().reorder(order);
  }
}

void GpuTile::scheduleRow(RowNumber &row) {
  int across = std::min(columnThreads, plan.rows);
  int down = std::min(plan.rowThreads, plan.rows / across * GpuTilePlan::rowParts);
  Var rowBlocks("row_blocks$"), x("x$"), all("all$"), rest("rest$"), y("y$");
  auto ofPart = [&](auto &&stage) {
    stage.split(q, rowBlocks, x, across, TailStrategy::RoundUp)
        .fuse(k, rowBlocks, all)
        .split(all, rest, y, down, TailStrategy::RoundUp)
        .gpu_threads(x, y);
  };
  row.ofPart.compute_at(state, chunks.x)
      .store_in(MemoryType::GPUShared)
      .bound_extent(q, plan.rows)
      .bound_extent(k, GpuTilePlan::rowParts);
  ofPart(row.ofPart);
  row.ofPart.reorder(rest, x, y);
  ofPart(row.ofPart.update());
  row.ofPart.update().reorder(loopOf(row.ofPart), rest, x, y);

  row.func.compute_at(state, chunks.x)
      .store_in(MemoryType::GPUShared)
      .bound_extent(q, plan.rows)
      .split(q, y, x, across, TailStrategy::RoundUp)
      .gpu_threads(x, y);
  row.func.update().split(q, y, x, across, TailStrategy::RoundUp).reorder(loopOf(row.func), x, y).gpu_threads(x, y);
}

void GpuTile::scheduleOutput() {
  Var blocks("column_blocks$"), x("x$"), rest("rest$"), y("y$");
  values.compute_at(state, chunks.x)
      .store_in(MemoryType::GPUShared)
      .bound_extent(e, plan.columns)
      .bound_extent(k, plan.chunk)
      .split(e, blocks, x, columnThreads, TailStrategy::RoundUp)
      .split(k, rest, y, plan.rowThreads, TailStrategy::RoundUp)
      .reorder(blocks, rest, x, y, chunk)
      .unroll(blocks)
      .unroll(rest, 2)
      .gpu_threads(x, y);
  output.compute_at(state, columns)
      .store_in(MemoryType::Register)
      .bound_extent(q, plan.rowsEach())
      .bound_extent(e, plan.columnsEach())
      .unroll(q)
      .unroll(e);
  output.update().reorder(q, e, loopOf(output)).unroll(q).unroll(e);
}

void GpuTile::scheduleState(const LoopLevel &level) {
  Var threadRows("thread_rows$"), own("own_rows$");
  auto inThreads = [&](auto &&stage) {
    stage.split(q, threadRows, own, plan.rowsEach(), TailStrategy::RoundUp)
        .unroll(own)
        .gpu_threads(columns, threadRows);
  };
  // What lies behind the bounds begins at a multiple of 16 bytes: neighbours can be read in one load.
  for (Func &bound : bounds)
    bound.compute_at(level).store_in(MemoryType::GPUShared).align_storage(block, 4);
  state.compute_at(level)
      .store_in(MemoryType::GPUShared)
      .bound_extent(q, plan.rows)
      .bound_extent(columns, columnThreads);
  std::vector<VarOrRVar> order = {own, columns, threadRows};
  order.insert(order.end(), outer.begin(), outer.end());
  inThreads(state);
  state.reorder(order);
  inThreads(state.update());
  order.insert(order.begin() + 3, chunks.x);
  state.update().reorder(order);
}

/// The states of the parts; a thread merges what it writes.
void GpuTile::scheduleParts() {
  Var threadRows("thread_rows$"), own("own_rows$");
  int numbers = plan.columnsEach() + (softmax ? 2 : 0);
  stored.compute_root()
      .bound_extent(e, numbers)
      .bound_extent(columns, columnThreads)
      .bound_extent(q, plan.rows)
      .split(q, threadRows, own, plan.rowsEach(), TailStrategy::RoundUp)
      .reorder(e, own, columns, threadRows, block, part)
      .reorder_storage(columns, q, e, part, block)
      .unroll(e)
      .unroll(own)
      .gpu_threads(columns, threadRows)
      .gpu_blocks(block, part);
  merged.compute_at(func, elements[2]).store_in(MemoryType::Register).bound_extent(q, plan.rowsEach()).unroll(q);
  merged.update().reorder(q, allParts.x).unroll(q);
}

void GpuTile::schedule() {
  func.compute_root();
  func.update()
      .allow_race_conditions() // no two elements are in one place
      .unroll(elements[0])
      .unroll(elements[1])
      .gpu_threads(elements[2], elements[3])
      .gpu_blocks(elements[4]);
  if (isSplit)
    scheduleParts();
  scheduleState(isSplit ? LoopLevel(stored, block) : LoopLevel(func, elements[4]));
  for (Pairs &stage : pairs)
    schedulePairs(stage);
  for (RowNumber &row : rowNumbers)
    scheduleRow(row);
  scheduleOutput();
}

} // namespace attn::lowering

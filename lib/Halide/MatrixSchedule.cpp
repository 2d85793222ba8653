//===- MatrixSchedule.cpp - The matrix plan: how it is computed ------------===//

#include "Matrix.h"

using Halide::Func;
using Halide::RVar;
using Halide::TailStrategy;
using Halide::Var;
using Halide::VarOrRVar;

namespace attn::lowering {

void Matrix::schedule(Func func, Halide::Stage stage) {
  int lanes = plan.lanes, rows = plan.rows;
  Var panel("panel$"), inPanel("in_panel$"), vector("vector$"), lane("lane$");
  Var tile("tile$"), inTile("in_tile$"), group("group$"), inGroup("in_group$");
  stage.split(column, panel, inPanel, columns(), TailStrategy::GuardWithIf)
      .split(inPanel, vector, lane, lanes)
      .split(row, tile, inTile, rows, TailStrategy::GuardWithIf)
      .split(tile, group, inGroup, static_cast<int>(plan.tiles), TailStrategy::GuardWithIf);
  std::vector<VarOrRVar> order = {lane, vector, inTile, inGroup, panel, group};
  order.insert(order.end(), others.begin(), others.end());
  stage.reorder(order).vectorize(lane);
  Var task = panel;
  auto fuse = [&](const Var &outer) {
    Var fused(task.name() + "_" + outer.name());
    stage.fuse(task, outer, fused);
    task = fused;
  };
  fuse(group);
  for (const Var &other : others)
    fuse(other);
  stage.parallel(task).never_partition(task, inGroup, inTile, vector);

  for (Func &pack : packs)
    pack.compute_at(func, task).bound_extent(column, columns()).update().vectorize(column, lanes).unroll(column);
  auto tiled = [&](auto &&definition) { definition.vectorize(column, lanes).unroll(column).unroll(row); };
  auto compute = [&](Func sum, Halide::LoopLevel where, const Halide::RDom &loops) {
    sum.compute_at(where).bound_extent(column, columns()).bound_extent(row, rows);
    tiled(sum);
    std::vector<VarOrRVar> order = {column, row};
    for (int dimension = 0; dimension < loops.dimensions(); ++dimension)
      order.push_back(loops[dimension]);
    tiled(sum.update().reorder(order));
    for (int dimension = 0; dimension < loops.dimensions(); ++dimension)
      sum.update().never_partition(loops[dimension]);
  };
  for (Sum &sum : sums) {
    Halide::LoopLevel where(func, inGroup);
    if (!oneBlock) {
      compute(sum.total, where, sum.blocks);
      where = Halide::LoopLevel(sum.total, sum.blocks[0]);
    }
    compute(sum.block, where, sum.groups);
    compute(sum.chain, Halide::LoopLevel(sum.block, sum.groups[0]), sum.terms);
  }
}

} // namespace attn::lowering

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
  // Whole tiles alone: the last ones overlap those before.
  Var panel("panel$"), inPanel("in_panel$"), vector("vector$"), lane("lane$");
  Var tile("tile$"), inTile("in_tile$"), group("group$"), inGroup("in_group$");
  stage.split(column, panel, inPanel, columns(), TailStrategy::ShiftInwards)
      .split(inPanel, vector, lane, lanes)
      .split(row, tile, inTile, rows, TailStrategy::ShiftInwards)
      .split(tile, group, inGroup, static_cast<int>(plan.tiles), TailStrategy::GuardWithIf);
  std::vector<VarOrRVar> order = {lane, vector, inTile, inGroup, panel, group};
  order.insert(order.end(), others.begin(), others.end());
  stage.reorder(order).vectorize(lane).unroll(vector).unroll(inTile);
  Var task = panel;
  auto fuse = [&](const Var &outer) {
    Var fused(task.name() + "_" + outer.name());
    stage.fuse(task, outer, fused);
    task = fused;
  };
  fuse(group);
  for (const Var &other : others)
    fuse(other);
  stage.parallel(task);

  for (Pack &pack : packs)
    pack.func.compute_at(func, task).bound_extent(column, columns()).vectorize(column, lanes).unroll(column);
  for (Sum &sum : sums) {
    auto tiled = [&](auto &&definition) { definition.vectorize(column, lanes).unroll(column).unroll(row); };
    sum.total.compute_at(func, inGroup).bound_extent(column, columns()).bound_extent(row, rows);
    tiled(sum.total);
    sum.part.compute_at(sum.total, (*sum.blocks)[0]).bound_extent(column, columns()).bound_extent(row, rows);
    tiled(sum.part);
    std::vector<VarOrRVar> blockLoops = {column, row};
    for (int dimension = 0; dimension < sum.blocks->dimensions(); ++dimension)
      blockLoops.push_back((*sum.blocks)[dimension]);
    tiled(sum.total.update().reorder(blockLoops));
    tiled(sum.part.update().reorder(column, row, sum.terms->x));
  }
}

} // namespace attn::lowering

//===- MatrixSchedule.cpp - The matrix plan: how it is computed ------------===//

#include "Matrix.h"

using Halide::Func;
using Halide::RVar;
using Halide::TailStrategy;
using Halide::Var;
using Halide::VarOrRVar;

namespace attn::lowering {

void Matrix::schedule() {
  int lanes = plan.lanes, rows = plan.rows;
  Var panel("panel$"), inPanel("in_panel$"), vector("vector$"), lane("lane$");
  Var tile("tile$"), inTile("in_tile$"), group("group$"), inGroup("in_group$");
  func.compute_root();
  Halide::Stage tiles = placed ? func.update() : Halide::Stage(func);
  tiles.split(column, panel, inPanel, columns(), TailStrategy::GuardWithIf)
      .split(inPanel, vector, lane, lanes)
      .split(row, tile, inTile, rows, TailStrategy::GuardWithIf)
      .split(tile, group, inGroup, static_cast<int>(plan.tiles), TailStrategy::GuardWithIf);
  std::vector<VarOrRVar> order = {lane, vector, inTile, inGroup};
  for (unsigned dimension = 0; dimension < deciding.size(); ++dimension)
    order.push_back(decidingLoops[dimension]);
  order.insert(order.end(), {panel, group});
  order.insert(order.end(), others.begin(), others.end());
  tiles.reorder(order).vectorize(lane);
  // Not fused: what an index of a fused loop can be is a quotient, whose bounds Halide knows only where sizes are
  // positive.
  tiles.parallel(panel).parallel(group);
  for (const Var &other : others)
    tiles.parallel(other);

  Halide::LoopLevel whole = placed ? Halide::LoopLevel(func, decidingLoops[0]) : Halide::LoopLevel(func, panel);
  for (Func &pack : packs)
    pack.compute_at(whole).bound_extent(column, columns()).update().vectorize(column, lanes).unroll(column);
  auto tiled = [&](auto &&definition) { definition.vectorize(column, lanes).unroll(column).unroll(row); };
  auto compute = [&](Func sum, Halide::LoopLevel where, const Halide::RDom &loops) {
    sum.compute_at(where).bound_extent(column, columns()).bound_extent(row, rows);
    tiled(sum);
    std::vector<VarOrRVar> order = {column, row};
    for (int dimension = 0; dimension < loops.dimensions(); ++dimension)
      order.push_back(loops[dimension]);
    tiled(sum.update().reorder(order));
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

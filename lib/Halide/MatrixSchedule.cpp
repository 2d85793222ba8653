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
  func.compute_root()
      .split(column, panel, inPanel, columns(), TailStrategy::GuardWithIf)
      .split(inPanel, vector, lane, lanes)
      .split(row, tile, inTile, rows, TailStrategy::GuardWithIf)
      .split(tile, group, inGroup, static_cast<int>(plan.tiles), TailStrategy::GuardWithIf);
  std::vector<VarOrRVar> order = {lane, vector, inTile, inGroup, panel, group};
  order.insert(order.end(), others.begin(), others.end());
  func.reorder(order).vectorize(lane);
  // Not fused: what an index of a fused loop can be is a quotient, whose bounds Halide knows only where sizes are
  // positive.
  func.parallel(panel).parallel(group);
  for (const Var &other : others)
    func.parallel(other);

  for (Func &pack : packs)
    pack.compute_at(func, panel).bound_extent(column, columns()).update().vectorize(column, lanes).unroll(column);
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

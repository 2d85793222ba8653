//===- MatrixSchedule.cpp - The matrix plan: how it is computed ------------===//

#include "Matrix.h"

using Halide::Func;
using Halide::RVar;
using Halide::TailStrategy;
using Halide::Var;
using Halide::VarOrRVar;

namespace attn::lowering {

void Matrix::schedule() {
  int lanes = plan.lanes, rows = plan.rows, secondRows = plan.secondRows;
  Var panel("panel$"), inPanel("in_panel$"), vector("vector$"), lane("lane$");
  Var tile("tile$"), inTile("in_tile$"), group("group$"), inGroup("in_group$");
  func.compute_root();
  Halide::Stage tiles = placed ? func.update() : Halide::Stage(func);
  tiles.split(column, panel, inPanel, columns(), TailStrategy::GuardWithIf)
      .split(inPanel, vector, lane, lanes)
      .split(row, tile, inTile, rows, TailStrategy::GuardWithIf)
      .split(tile, group, inGroup, groupTiles, TailStrategy::GuardWithIf);
  Var secondTile("second_tile$"), inSecond("in_second$");
  std::vector<VarOrRVar> order = {lane, vector};
  if (second) {
    tiles.split(*second, secondTile, inSecond, secondRows, TailStrategy::GuardWithIf);
    order.insert(order.end(), {inSecond, inTile, inGroup, secondTile});
  } else {
    order.insert(order.end(), {inTile, inGroup});
  }
  for (unsigned dimension = 0; dimension < deciding.size(); ++dimension)
    order.push_back(decidingLoops[dimension]);
  order.insert(order.end(), {panel, group});
  order.insert(order.end(), others.begin(), others.end());
  tiles.reorder(order).vectorize(lane).unroll(vector);
  // Not fused: what an index of a fused loop can be is a quotient, whose bounds Halide knows only where sizes are
  // positive.
  if (second)
    tiles.parallel(secondTile);
  tiles.parallel(panel).parallel(group);
  for (const Var &other : others)
    tiles.parallel(other);

  Halide::LoopLevel whole = placed ? Halide::LoopLevel(func, decidingLoops[0]) : Halide::LoopLevel(func, panel);
  for (Pack &pack : packs) {
    pack.func.compute_at(pack.ofTile ? Halide::LoopLevel(func, secondTile) : whole).bound_extent(column, columns());
    if (pack.ofTile) { // the numbers of a term lie together
      std::vector<Var> storage = pack.func.args();
      std::stable_partition(storage.begin(), storage.end(),
                            [&](const Var &var) { return var.same_as(column) || var.same_as(*second); });
      pack.func.bound_extent(*second, secondRows).reorder_storage(storage);
    }
    pack.func.update().vectorize(column, lanes).unroll(column);
  }
  for (RowPack &pack : rowPacks) {
    // Eight terms of one tile after the other: so many lines are read side by side, and lines are written whole.
    std::vector<Var> arguments = pack.func.args();
    Var term = arguments[1], terms("terms$"), inTerms("in_terms$");
    std::vector<VarOrRVar> loops = {pack.inTile, inTerms, pack.tile, terms};
    for (const Var &argument : llvm::drop_begin(arguments, 2))
      if (!argument.same_as(pack.tile))
        loops.push_back(argument);
    pack.func.compute_at(func, group).bound_extent(pack.inTile, rows);
    pack.func.update()
        .split(term, terms, inTerms, 8, TailStrategy::GuardWithIf)
        .reorder(loops)
        .vectorize(pack.inTile, rows);
  }
  auto tiled = [&](auto &&definition) {
    definition.vectorize(column, lanes).unroll(column).unroll(row);
    if (second)
      definition.unroll(*second);
  };
  auto compute = [&](Func sum, Halide::LoopLevel where, const Halide::RDom &loops) {
    sum.compute_at(where).bound_extent(column, columns()).bound_extent(row, rows);
    std::vector<VarOrRVar> order = {column, row};
    if (second) {
      sum.bound_extent(*second, secondRows);
      order.push_back(*second);
    }
    tiled(sum);
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

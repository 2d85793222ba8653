//===- TileCounts.cpp - The tiled plan: the chunks that a kernel visits -----===//
//
// A plan that counts carries two more values through the state of every element of the output: the chunks that its tile
// has visited, and those on which it evaluated the mask.
//
//===----------------------------------------------------------------------===//

#include "Tile.h"

using Halide::cast;
using Halide::Expr;
using Halide::Func;
using Halide::RDom;
using Halide::select;
using Halide::Var;

namespace attn::lowering {

Halide::Tuple Tile::counted(Expr value, Expr visited, Expr masked) const {
  return kernel.plan.countChunks ? Halide::Tuple(value, visited, masked) : Halide::Tuple(std::vector<Expr>{value});
}

Halide::Tuple Tile::countedAfter(Expr value, Expr part) {
  if (!kernel.plan.countChunks)
    return counted(value, {}, {});
  // Of the chunk that the loop is at; a sum's own condition is evaluated everywhere.
  int size = plan.chunk;
  Expr masked = softmax && op.getWhere().empty() ? !isWhole(chunkLoop() * size, size) : Expr(!op.getWhere().empty());
  return counted(value, stateAt(q, part, 1) + 1, stateAt(q, part, 2) + cast<int32_t>(masked));
}

Func Tile::result() {
  if (!kernel.plan.countChunks)
    return func;
  Func result(kernel.uniqueName(func.name() + "_value"));
  result(vars) = func(std::vector<Expr>(vars.begin(), vars.end()))[0];
  return result.compute_root();
}

Func Tile::chunkCounts() {
  // Every element of a tile has its tile's counts; the first of each is read.
  llvm::ArrayRef<SizeAttr> shape = op.getResult().getType().getShape();
  int queries = plan.queries, size = plan.chunk;
  unsigned rank = vars.size();
  llvm::SmallVector<Expr> counted;
  std::vector<Expr> element;
  for (unsigned position = rank; position-- > 0;) {
    Expr count = extent(kernel, shape[position]);
    if (position == op.getQuery())
      count = (count + queries - 1) / queries;
    else if (position == rank - 1)
      count = Halide::min(count, 1);
    counted.push_back(count);
  }
  RDom tiles = loopOver(counted);
  Expr chunksOfTile = (keyCount + size - 1) / size;
  for (unsigned dimension = 0; dimension < rank; ++dimension) {
    bool isQuery = rank - 1 - dimension == op.getQuery();
    element.push_back(isQuery ? Expr(tiles[dimension] * queries) : Expr(tiles[dimension]));
  }
  Func counts(kernel.uniqueName(func.name() + "_chunks"));
  Var which("which$");
  counts(which) = cast<int64_t>(Expr(0));
  counts(0) += cast<int64_t>(func(element)[1]);
  counts(1) += cast<int64_t>(func(element)[2]);
  counts(2) += select(func(element)[1] >= 0, cast<int64_t>(chunksOfTile), cast<int64_t>(Expr(0)));
  return counts.compute_root();
}

} // namespace attn::lowering

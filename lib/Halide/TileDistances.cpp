//===- TileDistances.cpp - The tiled plan: rows of a table ------------------===//
//
//   position[m, n] = sum[d](k[n, d] * r[n - m + M - 1, d])
//
// reads the row of a table that the distance of a query and a key decides, and multiplies it with what is the key's
// own: no product of the queries with rows (TileBand.cpp). But the pairs of a tile and a chunk have few distances. The
// rows of all of them are kept with distances side by side, so that the lanes of a vector, queries that follow one
// another, are a vector there as well:
//
//   rows[t, d]     = r[row of the distance t, d]              t = m - n + (keys of a chunk) - 1, counted within both
//   position[m, n] = sum[d](k[n, d] * rows[m - n + …, d])
//
// So are the rows that values are added to, or multiplied with: weight[m, n] * (v[n, e] + r[n - m + M - 1, e]).
//
//===----------------------------------------------------------------------===//

#include "Tile.h"
#include "attn/Analysis/Distance.h"

using Halide::Expr;
using Halide::Func;
using Halide::Var;

namespace attn::lowering {

bool Tile::isOfDistance(ReadOp read, const Environment &environment) const {
  if (!mlir::isa<mlir::FloatType>(read.getType()))
    return false;
  unsigned ofPairs = 0;
  for (mlir::Value subscript : read.getSubscripts()) {
    bool ofQuery = environment.changesWith(subscript, q), ofKey = environment.changesWith(subscript, k);
    if (!ofQuery && !ofKey)
      continue;
    llvm::SmallVector<mlir::BlockArgument> pair = indicesOfPair(subscript, environment);
    bool isOfBand = environment.subscripts.contains(subscript);
    if (isOfBand || pair.size() != 2 || !ofQuery || !ofKey || !Distance(pair[0], pair[1]).decides(subscript))
      return false;
    ++ofPairs;
  }
  return ofPairs == 1;
}

/// The indices that `value` depends on and that change with the query or the key.
llvm::SmallVector<mlir::BlockArgument> Tile::indicesOfPair(mlir::Value value, const Environment &environment) const {
  llvm::SmallVector<mlir::BlockArgument> found;
  for (mlir::BlockArgument index : dependence(value)) {
    const IndexBinding &binding = environment.indices.find(index)->second;
    if (binding.has(q) || binding.has(k))
      found.push_back(index);
  }
  return found;
}

Expr Tile::addDistances(ReadOp read, const Environment &environment) {
  int last = plan.chunk - 1;
  Var distance(kernel.uniqueName("distance$"));
  // Some query and some key that are as far from each other.
  Environment inner;
  inner.indices = environment.indices;
  for (auto &[index, binding] : inner.indices) {
    if (binding.has(q))
      binding = {firstQuery + Halide::max(distance - last, 0), {distance}, true, {}};
    else if (binding.has(k))
      binding = {firstKey + Halide::max(last - distance, 0), {distance}, true, {}};
  }
  PackedFormula formula = packedFormula(kernel, read.getResult(), inner, rowsMade());
  std::vector<Var> arguments = {distance};
  std::vector<Expr> call = {q - keyInChunk(environment) + last};
  llvm::append_range(arguments, formula.variables);
  llvm::append_range(call, formula.at);
  if (environment.changesWith(read.getResult(), e)) {
    arguments.push_back(e);
    call.push_back(e);
  }
  Func rows(kernel.uniqueName(func.name() + "_distances"));
  rows(arguments) = formula.value;
  distances.push_back(rows);
  return rows(call);
}

void Tile::scheduleDistances() {
  int lanes = plan.lanes, all = plan.queries + plan.chunk;
  for (Func &rows : distances) {
    std::vector<Var> arguments = rows.args();
    Var vectors("vector$"), lane("lane$");
    std::vector<Halide::VarOrRVar> order = {lane};
    order.insert(order.end(), arguments.begin() + 1, arguments.end());
    order.push_back(vectors);
    rows.compute_at(state, chunkLoop())
        .bound(arguments.front(), 0, all)
        .split(arguments.front(), vectors, lane, lanes)
        .reorder(order)
        .vectorize(lane);
  }
}

} // namespace attn::lowering

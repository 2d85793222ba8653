//===- GpuTile.h - The tiled plan of a weighted sum on a GPU ----*- C++ -*-===//
//
// GpuTile.cpp says what is computed, GpuTileSchedule.cpp how:
//
//   for tiles of queries × tiles of columns × the other indices: a block of threads
//     lower, upper = keys that the mask lets through for some query of the tile
//     state = (−∞, 0, 0)                              maximum, sum, output of (query, column): shared memory
//     for chunks of keys that meet [lower, upper):
//       score   = formula of queries and keys         shared memory; a thread has a register tile of its sums
//       maximum of the chunk, a thread a query        shared memory
//       weights = 2^(score − maximum)                 shared memory
//       sum of the chunk, a thread a query            shared memory
//       output of the chunk                           registers
//       merge them into the state, rescaled to the larger maximum
//     output / sum
//
// Nothing of the size of queries × keys is stored.
//
//===----------------------------------------------------------------------===//

#ifndef ATTN_LIB_HALIDE_GPUTILE_H
#define ATTN_LIB_HALIDE_GPUTILE_H

#include "Reduction.h"
#include "StepLowering.h"

namespace attn::lowering {

class GpuTile {
public:
  GpuTile(StepLowering &kernel, WeightedSumOp op);
  void define();
  void schedule();

  Halide::Func func;

private:
  friend class GpuTileRegion;

  /// A Func of queries × keys of a chunk, with the sums inside its formula: Funcs of (q, k, chunk, block), or some.
  struct Pairs {
    Halide::Func func;
    std::vector<std::pair<Halide::Func, std::vector<Halide::Var>>> sums;
  };

  /// Binds the arguments of the sum's regions, and of score, mask and sink to what the weight is read at.
  Environment bind(const Halide::Expr &key);
  /// The keys of a chunk.
  Halide::Expr keyAt(const Halide::Expr &key) const { return chunk * plan.chunk + key; }
  /// Defines the Func of `pairs` as what `value` makes of the environment at (q, k).
  void definePairs(Pairs &pairs, const std::string &name,
                   llvm::function_ref<Halide::Expr(RegionLowering &, Environment &)> value);
  Halide::Expr addSum(Pairs &pairs, ReduceOp op, Environment &environment);
  void defineRange(mlir::Region *mask);
  /// Sum over the keys of the chunk of `term`; keys from the number of keys on have weight 0.
  void defineRows(Halide::Func func, Halide::Expr start, Halide::RDom &keys,
                  llvm::function_ref<Halide::Expr(Halide::Expr before, Halide::Expr key)> after);
  void defineState(Halide::Expr start, Halide::Expr startSum);
  void place();
  void schedulePairs(Pairs &pairs);
  void scheduleRows(Halide::Func rows);

  StepLowering &kernel;
  const GpuPlan &plan;
  WeightedSumOp op;
  SoftmaxOp softmax; ///< Null where the weights have none.
  ReadOp read;       ///< Of the softmax's weight.
  Halide::Type type;
  Halide::Expr keyCount;

  Halide::Var q{"query$"}, k{"key$"}, e{"column$"}, chunk{"chunk$"}, block{"block_number$"};
  llvm::SmallVector<Halide::Expr> indices; ///< Of the sum, at (q, e, block); the last tiles repeat the last ones.
  Halide::Expr blocks, query, column;      ///< How many blocks; the query and the column, which may be beyond the last.

  Halide::Expr lower, upper; ///< The keys that the mask can let through for some query of the tile.
  std::vector<Halide::Func> bounds;
  std::vector<Pairs> pairs;                  ///< In the order in which they are computed.
  Halide::Func score, maximum, weights, sum; ///< The first two and the last are undefined where there is no softmax.
  Halide::Func factors;                      ///< The weights with their other factors.
  Halide::Func output, state;
  Halide::RDom outputKeys, chunks, elements;
};

/// A formula of queries and keys: reductions become sums of its Pairs.
class GpuTileRegion : public RegionLowering {
public:
  GpuTileRegion(GpuTile &tile, Environment &environment, GpuTile::Pairs &pairs)
      : RegionLowering(tile.kernel, environment), tile(tile), pairs(pairs) {}

protected:
  Halide::Expr reduce(ReduceOp op) override { return tile.addSum(pairs, op, environment); }

private:
  GpuTile &tile;
  GpuTile::Pairs &pairs;
};

} // namespace attn::lowering

#endif // ATTN_LIB_HALIDE_GPUTILE_H

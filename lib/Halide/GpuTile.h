//===- GpuTile.h - A weighted sum on a GPU, in tiles ------------*- C++ -*-===//
//
// GpuRange.cpp, GpuTile.cpp, GpuProduct.cpp and GpuState.cpp say what is computed, GpuTileSchedule.cpp how:
//
//   for parts of the keys × tiles of rows × tiles of columns × the other indices: a block of threads
//     first, end = its chunks of the keys that the mask lets through for some row of the tile
//     state = (−∞, 0, 0)                              maximum, sum, output of (row, columns): shared memory
//     for chunks of keys from first to end:
//       for slices of each sum's index:
//         its factors of rows, its factors of keys    shared memory
//         product += sum of the slice                 shared memory; a thread adds up a tile of it in registers
//       score   = formula of products                 shared memory
//       maximum of the chunk                          shared memory; in two steps
//       weights = 2^(score − maximum)                 shared memory
//       sum of the chunk                              shared memory; in two steps
//       values of the chunk                           shared memory
//       output of the chunk                           registers
//       merge them into the state, rescaled to the larger maximum
//   where there are parts: store the states; for rows × columns, a thread each: merge them
//   output / sum
//
// Rows are those that read the same keys. In the tiled plan they are the queries, and there is one part; in the split
// plan they are all rows that share keys, such as the heads of a group. Nothing of the size of queries × keys is
// stored.
//
//===----------------------------------------------------------------------===//

#ifndef ATTN_LIB_HALIDE_GPUTILE_H
#define ATTN_LIB_HALIDE_GPUTILE_H

#include "Reduction.h"
#include "StepLowering.h"
#include "attn/Analysis/SharedKeys.h"

namespace attn::lowering {

class GpuTile {
public:
  /// `kind` is Tiles or Split.
  GpuTile(StepLowering &kernel, WeightedSumOp op, PlanKind kind);
  void define();
  void schedule();

  Halide::Func func;

private:
  friend class GpuTileRegion;

  /// An index of the sum whose values are rows of a tile: from `base` on, where the number of a row says.
  struct RowIndex {
    SharedKeys shared;
    Halide::Expr count;  ///< Rows of this index that share keys.
    Halide::Expr base;   ///< Their first one, at `block`.
    Halide::Expr offset; ///< At (q, block): how far from it; beyond the count in rows that are none.
  };
  /// Factors of a sum in shared memory, for a slice of its index.
  struct Factors {
    Halide::Func func; ///< (q or k, term, slice, [chunk,] …)
    bool isOfKeys;
  };
  /// A sum over products of rows and keys.
  struct Product {
    Halide::Func func;    ///< (q, k, chunk, …)
    Halide::Func ofSlice; ///< (q, k, slice, chunk, …)
    Halide::RDom slices;
    std::vector<Factors> factors;
  };
  /// A Func of rows × keys of a chunk, with the sums inside its formula: of some of (q, k, chunk, …) in the loops of a
  /// thread, and those whose factors are in shared memory.
  struct Pairs {
    Halide::Func func;
    std::vector<std::pair<Halide::Func, std::vector<Halide::Var>>> sums;
    std::vector<Product> products;
  };
  /// A number for each row: first of parts of the chunk, then of all of it.
  struct RowNumber {
    Halide::Func ofPart; ///< (q, part of the chunk, chunk, …)
    Halide::Func func;   ///< (q, chunk, …)
  };

  /// `first`, and the block's number after the part's, where there are parts.
  std::vector<Halide::Var> withOuter(std::vector<Halide::Var> first) const;
  std::vector<Halide::Expr> atOuter(std::vector<Halide::Expr> first) const;

  void findRows(llvm::ArrayRef<SharedKeys> shared);
  /// Binds the arguments of the sum's regions, and of score, mask and sink to what the weight is read at. Where no key
  /// is given, or it is to be for all rows, nothing may be lowered that changes with it, or from row to row.
  Environment bind(const Halide::Expr &key, bool forAllRows = false);
  /// The keys of a chunk.
  Halide::Expr keyAt(const Halide::Expr &key) const;
  /// `value` as it is in shared memory, where all numbers have the bits of `type`: Halide 21 takes an access to an
  /// allocation that numbers of several sizes share for one beyond its end, and drops the kernel.
  Halide::Expr inSharedMemory(const Halide::Expr &value) const;
  void defineRange(mlir::Region *mask);
  void defineChunks();

  /// Defines the Func of `pairs` as what `value` makes of the environment at (q, k).
  void definePairs(Pairs &pairs, const std::string &name,
                   llvm::function_ref<Halide::Expr(RegionLowering &, Environment &)> value);
  Halide::Expr addSum(Pairs &pairs, ReduceOp op, Environment &environment);
  bool canStage(ReduceOp op, const Environment &environment) const;
  Halide::Expr addProduct(Pairs &pairs, ReduceOp op, const Environment &environment);
  bool changesWithRows(mlir::Value value) const;

  Halide::Func defineRow(const char *name, Halide::Expr start, const Halide::Func &ofPairs,
                         llvm::function_ref<Halide::Expr(Halide::Expr before, Halide::Expr next)> after);
  void defineWeights(mlir::Region *mask, mlir::Region *condition);
  /// The column of a tile that is the thread's own-th.
  Halide::Expr columnOf(const Halide::Expr &own, const Halide::Expr &thread) const;
  void defineOutput();
  llvm::SmallVector<Halide::Expr> startOfState(Halide::Expr sink) const;
  Halide::Tuple mergeStates(llvm::ArrayRef<Halide::Expr> state, llvm::ArrayRef<Halide::Expr> added) const;
  void defineState(Halide::Expr sink);
  void defineMerged(Halide::Expr sink);
  void place();

  void scheduleFactors(const Product &product, Factors &factors);
  void scheduleProduct(Product &product);
  void schedulePairs(Pairs &pairs);
  void scheduleRow(RowNumber &row);
  void scheduleOutput();
  void scheduleState(const Halide::LoopLevel &level);
  void scheduleParts();

  StepLowering &kernel;
  const bool isSplit;
  const GpuTilePlan &plan;
  WeightedSumOp op;
  ReadOp read;       ///< Of the softmax's weight.
  SoftmaxOp softmax; ///< Null where the weights have none.
  Halide::Type type; ///< Of the sum as it is computed.
  Halide::Expr keyCount;

  /// `columns` is a thread's number along the columns; `e` is a column of the tile, or counts those of a thread.
  Halide::Var q{"row$"}, k{"key$"}, e{"column$"}, columns{"columns$"}, term{"term$"}, slice{"slice$"}, chunk{"chunk$"},
      part{"part$"}, block{"block_number$"};
  std::vector<Halide::Var> outer;              ///< Of all Funcs of a block.
  std::vector<RowIndex> rows;                  ///< The first changes slowest from row to row.
  llvm::DenseMap<mlir::Value, unsigned> isRow; ///< Arguments of regions that stand for one of them.
  llvm::SmallVector<Halide::Expr> indices;     ///< Of the sum, at (q, e, block), clamped.
  Halide::Expr column;                         ///< At (e, block); it may be beyond the last.
  llvm::SmallVector<Halide::Expr> exists;      ///< Whether there are such a row and column.
  Halide::Expr blocks, parts;                  ///< How many.

  Halide::Expr lower, upper;        ///< The keys that the mask can let through for some row of the tile.
  Halide::Func range;               ///< (part, block): the first chunk of a part, and the one after its last.
  std::vector<Halide::Func> bounds; ///< In shared memory, found by a thread.
  std::vector<Pairs> pairs;         ///< In the order in which they are computed.
  unsigned staged = 0;              ///< Products of all of them.
  std::vector<RowNumber> rowNumbers;
  Halide::Func maximum, sum; ///< Of a chunk, by row.
  Halide::Func weights;      ///< Of a chunk, with all factors.
  Halide::Func values, output, state;
  Halide::Func stored, merged; ///< The states of all parts, in the device's memory, and what they are together.
  Halide::RDom outputKeys, chunks, allParts, elements;
};

/// A formula of rows and keys: reductions become sums of its Pairs.
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

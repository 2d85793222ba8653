//===- Split.h - The split plan of a weighted sum ---------------*- C++ -*-===//
//
// Few queries and many keys, such as a step of decoding: what counts is that keys and values are read once, as fast as
// memory gives them. Split.cpp, SplitRange.cpp, SplitScore.cpp, SplitPairs.cpp and SplitSubscripts.cpp say what is
// computed, SplitSchedule.cpp how:
//
//   for spans of keys × groups of rows that read the same keys × the other indices, in parallel:
//     state = (−∞, 0, 0)                              maximum, sum, output of each row
//     for chunks of keys of the span:
//       score   = products of rows and keys           lanes along the reduction, a few keys at a time
//       maximum of the chunk                          lanes along keys
//       weights = 2^(score − maximum)                 lanes along keys
//       sum, output of the chunk                      lanes along the value index
//       merge them into the state, rescaled to the larger maximum
//   for rows:
//     merge the spans' states; output / sum
//
// A key is used for every row of its group while it is in the first cache. The number of spans depends on the sizes,
// not on the number of threads: results do not either.
//
//===----------------------------------------------------------------------===//

#ifndef ATTN_LIB_HALIDE_SPLIT_H
#define ATTN_LIB_HALIDE_SPLIT_H

#include "Reduction.h"
#include "StepLowering.h"

namespace attn::lowering {

class Split {
public:
  Split(StepLowering &kernel, WeightedSumOp op);
  void define();
  void schedule();

  Halide::Func func; ///< The sum.

private:
  friend class SplitRegion;

  /// A reduction over a dimension of rows and keys, such as q·k.
  struct Product {
    ReduceOp op;
    Halide::Func func;
    Halide::Func partial; ///< (lane, key, …) results of lanes that lie along the reduction, where they do.
    Halide::RDom vectors; ///< Of `partial`.
    Halide::RDom keys;    ///< Of the first update of `func`: what there is without `rest`.
    Halide::RDom rest;    ///< Of the second: what is left of the reduction.
  };
  /// A subscript that is dear (divided, or read from a tensor) and the same for all terms of a key.
  struct Subscript {
    mlir::Value value;
    Halide::Func func; ///< (key, rows that it changes with, chunk, span)
    Halide::RDom keys;
    IntegerRange range;
    std::vector<Halide::Var> rows;
  };
  /// An index whose rows read the same keys: all of them or, where `sharers` is defined, as many as it says. At most
  /// `group` of them are rows of one task.
  struct Shared {
    Halide::Var index;
    Halide::Expr sharers, group;
  };
  /// Columns of the output that are computed in register tiles of one width.
  struct ColumnTile {
    Halide::RDom keys;       ///< Lanes, vectors, keys or pairs of them, tiles, tiles of keys.
    Halide::Func valuePairs; ///< (column, pair of keys, rows or groups of them, chunk, span), where there are pairs.
  };

  Environment bind(mlir::Region &region, IndexBinding key);
  void bindScore(Environment &environment);
  IndexBinding keyBinding(Halide::Expr key) const;
  /// The key of the chunk that is fetched when `key` is used.
  Halide::Expr laterKey(Halide::Expr key) const { return Halide::min(key + plan.ahead, plan.chunk - 1); }
  /// `first`, the other indices, chunk and span.
  std::vector<Halide::Var> stageVars(std::vector<Halide::Var> first) const;
  std::vector<Halide::Expr> at(std::vector<Halide::Expr> first) const;
  /// Tiles of `size` keys of the chunk that are in range, after `inner` dimensions.
  Halide::RDom tiles(int size, llvm::ArrayRef<Halide::Expr> inner = {}) const;
  /// The key of the chunk, of tiles with one inner dimension.
  Halide::Expr keyOf(const Halide::RDom &domain) const { return domain[1] * lanes + domain[0]; }

  void findShared();
  /// How rows of this index share keys; null if each has its own.
  const Shared *sharing(const Halide::Var &row) const;
  void defineRange();
  void defineScore();
  void defineWeights();
  bool canPairWeights();
  void defineWeightPairs();
  /// The block of `output` that a tile of keys is added to.
  Halide::Expr blockOf(Halide::Expr tile) const { return tile / (plan.block / plan.keyTile); }
  void addKeys(Halide::Expr column, Halide::Expr tile, Halide::Expr keyOfTile);
  void addPairs(ColumnTile &tile, Halide::Expr column);
  void addColumnTile(int vectors, Halide::Expr first, Halide::Expr count);
  void defineState();
  void defineMerged();
  void defineResult();
  /// `key` counts within the chunk.
  Halide::Expr addProduct(ReduceOp op, const Environment &environment, Halide::Expr key);
  Environment bindTerm(const Environment &environment, ReduceOp op, const Halide::RDom &domain, Halide::Expr last,
                       Halide::Expr key);
  Halide::Expr term(const Environment &environment, ReduceOp op, const Halide::RDom &domain, Halide::Expr last,
                    Halide::Expr key);
  bool isPaired(ReduceOp op, const Environment &environment) const;
  Halide::Expr pairedTerm(const Environment &environment, const Product &product, Halide::Expr position,
                          Halide::Expr key);
  void addContiguousProduct(const Environment &environment, Product &product);
  void addProductAlongKeys(const Environment &environment, Product &product);
  void computeInChunk(Halide::Func &stage, const Halide::LoopLevel &level);
  void scheduleMerged();
  void scheduleState();
  void scheduleProduct(Product &product);
  void schedulePairs();
  Halide::Expr addRowReduction(ReduceOp op, const Environment &environment);
  /// Lets `environment` take the dear subscripts that `value` is made of from where they are kept, at `key`.
  void keepSubscripts(mlir::Value value, Environment &environment, Halide::Expr key);
  Subscript &subscript(mlir::Value value, const Environment &environment);

  StepLowering &kernel;
  const SplitPlan &plan;
  WeightedSumOp op;
  ReadOp read;       ///< Of the softmax's weight.
  SoftmaxOp softmax; ///< Null where the weights have none.
  int lanes;
  bool pairsWeights; ///< The sum is one of products of pairs: see SplitPairs.cpp.

  Halide::Var e, k{"key$"}, lane{"lane$"}, block{"block$"}, chunk{"chunk$"}, span{"span$"};
  std::vector<Halide::Var> vars;  ///< Of `func`: the last index first.
  std::vector<Halide::Var> rows;  ///< All of `vars` but `e`.
  std::vector<Halide::Var> tasks; ///< The rows' indices that do not share keys.
  std::vector<Shared> shared;
  Halide::Expr keyCount, spans;
  Halide::Expr lower, upper;             ///< The keys that the mask can let through for some row of a group.
  Halide::Expr end;                      ///< Of the keys of a span.
  Halide::Expr chunksOfSpan, mostChunks; ///< Of those keys; the most of any span.
  Halide::Func start;                    ///< (chunk, span, tasks…): the first key.
  std::vector<Halide::Func> rangeFuncs, rowReductions;
  std::vector<Product> products;
  Halide::Func score, maximumLanes, maximum, exponential, sumLanes, sum, weights, weightPairs, output, state, total,
      merged;
  Halide::RDom scoreKeys, maximumKeys, exponentialKeys, sumKeys, weightKeys, weightPairKeys, restKeys, chunks, allSpans;
  std::vector<ColumnTile> columnTiles;
  std::vector<Subscript> subscripts;
};

/// Score, mask and weight factors, in a stage over keys or rows. `key` counts within the chunk.
class SplitRegion : public RegionLowering {
public:
  SplitRegion(Split &split, Environment &environment, Halide::Expr key = {})
      : RegionLowering(split.kernel, environment), split(split), key(key) {}

protected:
  Halide::Expr reduce(ReduceOp op) override;

private:
  Split &split;
  Halide::Expr key;
};

} // namespace attn::lowering

#endif // ATTN_LIB_HALIDE_SPLIT_H

//===- Tile.h - The tiled plan of a weighted sum ----------------*- C++ -*-===//
//
// Many queries at a time, with queries in the lanes of vectors. Tile.cpp, TileRange.cpp, TileScore.cpp, TileRows.cpp,
// TilePairs.cpp and TileState.cpp say what is computed, TileSchedule.cpp how:
//
//   for tasks, which are tiles of queries × the other indices, in parallel:
//     lower, upper = keys that the mask lets through for some query of the tile
//     pack what depends on the query alone            (transposed: queries innermost)
//     state = (−∞, 0, 0)                              maximum, sum, output: (query[, column])
//     for chunks of keys that meet [lower, upper):
//       widen keys and values of less than 32 bits
//       score   = products of queries and keys        register tiles of queries × keys
//       maximum of the chunk
//       weights = 2^(score − maximum)
//       sum, output of the chunk                      register tiles of queries × columns, blocks of keys
//       merge them into the state, rescaled to the larger maximum
//     output / sum
//
// Nothing larger than a tile times a chunk is stored.
//
//===----------------------------------------------------------------------===//

#ifndef ATTN_LIB_HALIDE_TILE_H
#define ATTN_LIB_HALIDE_TILE_H

#include "KeySearch.h"
#include "PassNumbers.h"
#include "Reduction.h"
#include "StepLowering.h"
#include "attn/Analysis/Fusion.h"

namespace attn::lowering {

class Tile {
public:
  /// `hasLogSumExp`: of the softmax, whose rows are those of the sum.
  Tile(StepLowering &kernel, WeightedSumOp op, const TilePlan &plan, bool hasLogSumExp);
  void define();
  void schedule();

  /// The sum itself, and at each element its row's log-sum-exp, if it has that.
  Halide::Func result();
  /// Of a plan that counts: (3) chunks visited, chunks on which the mask was evaluated, and all there are.
  Halide::Func chunkCounts();

private:
  friend class TileRegion;
  friend class ProductRegion;

  /// The rows of a table that a product reads, a row for each pair (TileBand.cpp): those from `first` to `last` for the
  /// pairs of a tile and a chunk.
  struct Band {
    mlir::Value row; ///< The subscript, which `read` has in this dimension.
    ReadOp read;
    unsigned dimension;
    bool growsWithQuery, growsWithKey;
    Halide::Expr first, last;
  };
  /// A reduction over a dimension of queries and keys, such as q·k.
  struct Product {
    mlir::Value reduction;
    std::optional<Band> band; ///< In place of keys.
    Halide::Func func;        ///< Of the chunk, (q, k, …), on `keys`.
    Halide::Func sums;        ///< Of the keys of a register tile, (q, k, keyTile, …).
    Halide::RDom keys;
    Halide::RDom domain; ///< The reduction's.
    Halide::RDom rest;   ///< What pairs along the last index leave of it, if it may leave something.
    bool dear;           ///< More than multiply-adds: bound by arithmetic, not by loads.
  };
  /// The factors of a product of bf16 tensors.
  struct PairFactors {
    mlir::Value query, key;
  };

  /// Divides tasks into tiles and the values of the other indices.
  void findOthers();
  /// An environment in which the region's arguments stand for `key` and the tile's variables.
  Environment bind(mlir::Region &region, IndexBinding key);
  void bindScore(SoftmaxOp softmax, Environment &environment);
  IndexBinding keyBinding(Halide::Expr key) const;
  /// The keys of the chunk that are in range, those of a register tile after `inner` dimensions, then register tiles.
  Halide::RDom keys(llvm::ArrayRef<Halide::Expr> inner = {}) const;
  /// The same of tiles of `size` keys, each of which has `points`.
  Halide::RDom keyTiles(int size, int points, llvm::ArrayRef<Halide::Expr> inner = {}) const;
  /// Those register tiles alone on which the mask is true for every query, if `whole`, or the others.
  Halide::RDom keysOfForm(bool whole) const;
  /// The blocks of `size` keys of the chunk that are in range.
  Halide::RDom blocksOfChunk(int size) const;
  /// The keys of such a `block` that are in range, those of a register tile as `points` after `inner` dimensions, then
  /// register tiles. keyOf counts them within the block.
  Halide::RDom keysOfBlock(int size, int points, llvm::ArrayRef<Halide::Expr> inner = {}) const;
  /// Of the output: where two keys are one addition, twice as many.
  int outputBlockSize() const;
  /// Lets `domain` visit those of its points alone whose `size` keys from `key` of the chunk on are in range.
  void visitRange(Halide::RDom &domain, Halide::Expr key, int size) const;
  /// Whether the mask is true on `size` keys from `first` on for every query of the tile.
  Halide::Expr isWhole(Halide::Expr first, int size) const;
  /// The score at a key of the chunk, in powers of two and without `largest`; −inf where the key is masked, unless none
  /// is (`whole`). Product and difference are one instruction or two, but the same with a mask and without: equal
  /// scores have equal weights.
  Halide::Expr scoreAt(Halide::Expr key, bool whole, Halide::Expr largest = {});
  Halide::Expr keyOf(const Halide::RDom &domain) const;
  Halide::Expr keyInChunk(const Environment &environment) const;

  void defineRange(mlir::Region *mask, Environment environment);
  /// Finds the keys of the chunk that `mask` lets through for some query of the tile.
  void searchChunk(mlir::Region &mask, const Environment &environment, int inVector);
  void defineScore();
  void defineWeights();
  void keepInChunk(mlir::Value value, Environment &environment);
  void defineOutput();
  void defineState();
  void defineSumState();
  void defineSoftmaxState();
  void defineResult();
  /// A value of the state, with the chunks visited and masked so far where they are counted.
  Halide::Tuple counted(Halide::Expr value, Halide::Expr visited, Halide::Expr masked) const;
  /// The same after the chunk that the loop is at; `part` is where in the state.
  Halide::Tuple countedAfter(Halide::Expr value, Halide::Expr part);
  /// The state of a query of a tile at a column or, where there is a softmax, at a part of the row.
  Halide::Expr stateAt(Halide::Expr query, Halide::Expr part, int value = 0) const;
  Halide::RVar chunkLoop() const;
  /// A reduction at the query, and at the key that `environment` has if it changes with that.
  Halide::Expr reductionAt(ReduceOp op, Environment &environment);
  void addProduct(ReduceOp op, Environment &environment);
  /// The element of a product that is of the query, and of the key that `environment` has.
  Halide::Expr productAt(Product &product, Environment &environment);
  Halide::Expr addQueryReduction(ReduceOp op, Environment &environment);
  /// A read that is contiguous along keys and not along queries.
  bool isAcross(ReadOp read, const Environment &environment) const;
  Halide::Expr addTransposed(ReadOp read, const Environment &environment);
  /// Whether a term of a product, or a column of the output, has `index`.
  bool isOfTerm(mlir::Value index, const Environment &environment) const;
  /// Whether `value` is made of narrow numbers that keys have for all queries.
  bool isNarrow(mlir::Value value, const Environment &environment) const;
  Halide::Expr addWidened(mlir::Value value, const Environment &environment);

  // Rows of tables.
  std::optional<Band> bandOf(ReduceOp op, const Environment &environment) const;
  /// Whether a product of `region` has a band.
  bool hasBand(mlir::Region &region, const Environment &environment) const;
  /// The rows that there are at most.
  int bandSize() const;
  Halide::Expr endOfBand(Band &band, const Environment &environment, bool largest);
  Environment::Subscript rowsOfTile(Band &band) const;
  Halide::RDom keysOfBand(const Band &band) const;

  // Rows of tables beside what keys have.
  /// Whether the distance of the query and the key decides one subscript of `read`, and neither changes another one.
  bool isOfDistance(ReadOp read, const Environment &environment) const;
  llvm::SmallVector<mlir::BlockArgument> indicesOfPair(mlir::Value value, const Environment &environment) const;
  Halide::Expr addDistances(ReadOp read, const Environment &environment);
  void scheduleDistances();

  // Pairs of bf16 numbers.
  std::optional<PairFactors> pairFactors(ReduceOp op, const Environment &environment) const;
  Halide::Expr pairedTerm(const Product &product, ReduceOp op, const PairFactors &factors,
                          const Environment &environment);
  void definePairedOutput();
  void schedulePairs();
  void computeInTask(Halide::Func stage);
  void computeInChunk(Halide::Func stage);
  /// An element of the row at a query of a tensor that is made there; undefined where the tensor is stored.
  Halide::Expr rowAt(ReadOp read, const Environment &environment);
  RowsMade rowsMade() {
    return [this](ReadOp read, const Environment &environment) { return rowAt(read, environment); };
  }
  /// What terms read for a query is computed once a tile. Returns it where a term finds it.
  Halide::Expr addPack(const std::string &suffix, const PackedFormula &formula);

  Halide::Func func; ///< The sum, and of each element the chunks visited and masked where they are counted.

  StepLowering &kernel;
  const TilePlan &plan;
  bool hasLogSumExp;
  WeightedSumOp op;
  ReadOp read;       ///< Of the softmax's weight.
  SoftmaxOp softmax; ///< Null where the weights have none.
  bool pairsWeights; ///< The output is one of products of pairs: see TilePairs.cpp.
  mlir::Value queryArgument, keyArgument, valueArgument;

  Halide::Var q{"query$"}, k{"key$"}, keyTile{"key_tile$"}, block{"block$"}, chunk{"chunk$"}, task{"task$"}, tasks, e;
  /// An index of which a task has one value.
  struct Own {
    unsigned position;   ///< In the output.
    Halide::Var index;   ///< Of `func`.
    Halide::Expr size;   ///< At least 1.
    Halide::Expr ofTask; ///< Its value.
  };
  std::vector<Own> others;  ///< The remaining indices, the last first.
  Halide::Expr tiles;       ///< How many there are of queries.
  PassNumbers taskNumbers;  ///< (task): its tile of queries, and the values of `others`.
  PassNumbers chunkNumbers; ///< (chunk): its number.
  Halide::Expr firstQuery, firstKey;
  std::vector<Halide::Var> vars; ///< Of `func`.
  Halide::Expr keyCount;

  bool ranged = false, storeScore = false;
  std::optional<KeySearch> search; ///< Of each chunk, where the mask's text does not say all.
  Halide::Expr lower, upper;           ///< The keys that the mask can let through for some query of the tile.
  Halide::Expr wholeLower, wholeUpper; ///< The keys that it lets through for every query.
  std::vector<Halide::Func> rangeFuncs;
  Halide::Expr visitedLower, visitedUpper; ///< The same as `lower` and `upper`, or of the chunk where it is searched.
  /// sumBlock and outputBlock: of a block of keys, (q, block, …) and (q, e, block, …).
  Halide::Func score, maximum, exponential, sumBlock, sum, weights, outputBlock, output;
  Halide::Func state, rows; ///< (q, part of the row or column); its columns, (e, q).
  Halide::Func logSumExp;   ///< (q), if the sum has it.
  Halide::RDom sumKeys, sumBlocks, weightKeys, outputKeys, outputBlocks;
  Halide::RDom chunks; ///< Parts of a row, if there is a softmax, and chunks.
  /// Of neighbouring keys, where the output is made of such pairs: of a block, (q or e, pair, block, …).
  Halide::Func weightPairs, valuePairs;
  Halide::RDom weightPairKeys, valuePairKeys;
  /// Of keys that the mask may cut, and of the others where the stage applies the mask.
  llvm::SmallVector<Halide::RDom, 2> maximumKeys, exponentialKeys, scoreKeys;
  std::vector<Product> products;
  std::vector<Halide::Func> bandRows; ///< The first and last rows of bands.
  std::vector<Halide::Func> distances; ///< (distance, …): rows of tables.
  /// Reductions of queries alone that are Funcs.
  std::vector<std::pair<mlir::Value, Halide::Func>> rowReductions;
  std::vector<Halide::Func> packs;
  /// Reads across: what is read, where it is laid out for queries in lanes, and the keys.
  struct Transposed {
    mlir::Value value;
    Halide::Func func;
    Halide::RDom keys;
  };
  std::vector<Transposed> transposed;
  /// What is made of narrow numbers of keys, once a chunk, and where.
  struct Widened {
    Halide::Func func;
    Halide::RDom domain;
  };
  std::vector<Widened> widened;
  /// Rows of tensors that are not stored, (last index, q), and who reads them.
  std::vector<std::pair<ReadOp, Halide::Func>> madeRows;
};

/// Score, mask and weight factors: reductions become products of the tile. Not `keyed`: there is no key.
class TileRegion : public RegionLowering {
public:
  TileRegion(Tile &tile, Environment &environment, bool keyed)
      : RegionLowering(tile.kernel, environment), tile(tile), keyed(keyed) {}

protected:
  Halide::Expr reduce(ReduceOp op) override;
  Halide::Expr stored(mlir::Value value) override;

private:
  Tile &tile;
  bool keyed;
};

/// Defines `func` at `element` alone, on the keys in range.
void defineOnKeys(Halide::Func func, const std::vector<Halide::Var> &vars, const std::vector<Halide::Expr> &element,
                  Halide::Expr value);

} // namespace attn::lowering

#endif // ATTN_LIB_HALIDE_TILE_H

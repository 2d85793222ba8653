//===- Split.h - The split plan of a weighted sum ---------------*- C++ -*-===//
//
// Few queries and many keys, such as a step of decoding: what counts is that keys and values are read once, as fast as
// memory gives them. Split.cpp, SplitRange.cpp, SplitBounds.cpp, SplitScore.cpp, SplitPairs.cpp, SplitSubscripts.cpp,
// SplitKeys.cpp and SplitState.cpp say what is computed, SplitSchedule.cpp how:
//
//   for spans of keys × groups of rows that read the same keys × the other indices, in parallel:
//     state = maximum −∞, sum 0, outputs 0            of each row
//     for chunks of keys of the span:
//       score   = products of rows and keys           lanes along the reduction, register tiles of rows × keys;
//                                                     keys that a statement makes are made before each
//       maximum of the chunk                          lanes along keys
//       weights = 2^(score − maximum)                 lanes along keys
//       sum of the chunk                              lanes along keys
//       output of the chunk                           lanes along the value index, register tiles of rows × columns
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

#include "KeySearch.h"
#include "PassNumbers.h"
#include "Reduction.h"
#include "StepLowering.h"
#include "attn/Analysis/KeyRange.h"

namespace attn::lowering {

class Split {
public:
  /// `hasLogSumExp`: of the softmax, whose rows are those of the sum.
  Split(StepLowering &kernel, WeightedSumOp op, bool hasLogSumExp);
  void define();
  void schedule();

  Halide::Func func; ///< The sum, and the log-sum-exp if it has that.

private:
  friend class SplitRegion;
  friend class KeyRegion;

  /// `count` register tiles of as many rows of a task at once, from tile `first` on.
  struct RowTile {
    int rows;
    Halide::Expr first, count;
  };
  /// A key of the chunk, as register tiles of `rows` read it.
  struct TileKey {
    Halide::Expr key;
    Halide::Expr kept; ///< The key at which its dear subscripts are found.
    int rows;
    bool isThere;          ///< For certain, or nobody minds: its address is computed without a clamp.
    bool isOfRest = false; ///< It is read for the terms that fill no vector, which are added in a loop of their own.
  };
  /// `key`, which a loop has that ends with the last key, or which may be one of the surplus keys of a tile.
  static TileKey thatIsThere(Halide::Expr key, int rows) { return {key, key, rows, true}; }
  static TileKey thatMayBeSurplus(Halide::Expr key, int rows) { return {key, key, rows, false}; }
  static TileKey ofRest(Halide::Expr key) { return {key, key, 1, false, true}; }
  /// The key `steps` on, to be fetched. What is kept, is kept for the chunk; there may be a second key of a pair.
  TileKey later(const TileKey &key, int steps) const {
    return {key.key + steps, Halide::min(key.key + steps, plan.chunk - 2), key.rows, true};
  }
  /// The one after `key`, of a pair.
  static TileKey secondOf(const TileKey &key) {
    bool isFetched = !key.kept.same_as(key.key);
    return {key.key + 1, key.kept + 1, key.rows, isFetched};
  }
  /// A product's keys and rows that are computed in register tiles of one size.
  struct ScoreTile {
    int rows;
    int keyCount;
    Halide::Func partial; ///< (lane, key of a tile, tile of keys, …) results of lanes.
    /// Of the updates of `partial`, for whole vectors and for what is left: vectors, the other dimensions of the
    /// reduction, then, where tiles have one row, its keys.
    llvm::SmallVector<Halide::RDom, 2> terms;
    Halide::RDom keys; ///< Keys and rows of a tile, tiles of rows, tiles of keys.
  };
  /// A reduction over a dimension of rows and keys, such as q·k.
  struct Product {
    ReduceOp op;
    Halide::Func func;
    llvm::SmallVector<ScoreTile, 2> tiles;        ///< Of lanes along the reduction, where they lie so.
    Halide::RDom keys;                            ///< Where they do not: of the first update, and
    llvm::SmallVector<Halide::RDom, 2> alongKeys; ///< of those for whole vectors of keys, and for the last.
    Halide::RDom rest; ///< Of the last update: what is left of the reduction. Undefined where nothing is.
  };
  /// A subscript that is dear (divided, or read from a tensor) and the same for all terms of a key and a row.
  struct Subscript {
    mlir::Value value;
    Halide::Expr top;  ///< What it is clamped to, as the subscript of a dimension.
    Halide::Func func; ///< (key), or (row) where no key changes it.
    Halide::RDom keys; ///< Defined if keys do.
    IntegerRange range;
  };
  /// A tensor that is made at keys where a term reads it, in loops of their own each: see SplitKeys.cpp.
  struct KeyTensor {
    ReadOp read;
    int rows;          ///< Of the register tiles.
    bool isOfRest;     ///< See TileKey.
    Halide::Func func; ///< (last index, key, block)
  };
  /// An index whose values are rows of a task: `run` of them in a row, or of several passes over as many. They read the
  /// same keys, or those of blocks of rows, which lie together at a key.
  struct Shared {
    Halide::Var index; ///< Of `func`.
    Halide::Expr size, run, passes, rows, groups;
    Halide::Expr rowsOfBlock; ///< Undefined where all read the same keys.
    Halide::Expr blocks;      ///< Of the group, each with keys of its own.
    Halide::Expr group;       ///< Of a task: which run, and which pass over it.
    Halide::Expr first, last; ///< Values of the index that are rows of the task.

    /// The value of the index that is row `within` of the group.
    Halide::Expr at(Halide::Expr within) const;
    /// Which row of which group a value of the index is.
    Halide::Expr withinOf(Halide::Expr value) const, groupOf(Halide::Expr value) const;
  };
  /// An index of which a task has one value.
  struct Own {
    Halide::Var index;        ///< Of `func`.
    Halide::Expr size, value; ///< The value as a formula, and
    Halide::Expr kept;        ///< where stages of a task find it.
  };
  /// Columns of the output, and rows, that are computed in register tiles of one size.
  struct ColumnTile {
    int vectors, rows;
    Halide::Func sums;  ///< (column, tile of keys, …), what a tile of keys adds.
    Halide::RDom keys;  ///< Of `sums`: the keys of a tile, or pairs of them.
    Halide::RDom tiles; ///< Lanes, vectors, rows of a tile, tiles of columns, tiles of rows, tiles of keys.
  };
  /// A column of the values.
  struct Column {
    Halide::Expr index;
    Halide::Expr isThere; ///< Undefined where it is for certain.
  };

  /// For the sum's own indices.
  Environment bindResult(mlir::Region &region, IndexBinding key);
  /// For those of stages: a task's rows in place of indices that share keys.
  Environment bind(mlir::Region &region, IndexBinding key);
  void bindScore(Environment &environment);
  /// The same for the first row of a block: what is read at keys is the same for all of its rows.
  Environment ofBlock(const Environment &environment, Halide::Expr block) const;
  IndexBinding keyBinding(Halide::Expr key, bool isThere = false) const;
  /// Whether register tiles of `rows` read keys in the order in which these lie.
  bool readsInOrder(int rows) const { return rows == 1 && !rowsOfKey.defined(); }
  /// `formula` of `key`, and of those that follow it, if it takes more. Where keys are not read in order, what the
  /// formula reads some keys later is fetched.
  Halide::Expr atKey(const TileKey &key, llvm::function_ref<Halide::Expr(const TileKey &)> formula) const;
  /// `value` of a tile of `keys` keys from `first` on. Where they are read in order, a number of what `formula` reads
  /// pages later is fetched, unless it is undefined.
  Halide::Expr beforeNextPages(Halide::Expr value, const TileKey &first, int keys,
                               llvm::function_ref<Halide::Expr(const TileKey &)> formula) const;
  /// A part of the state at the sum's own indices.
  std::vector<Halide::Expr> stateAt(Halide::Expr part, Halide::Expr ofSpan) const;
  /// Tiles of `size` keys of the chunk that are in range, after `inner` dimensions and tiles of rows, if these are
  /// given.
  Halide::RDom tiles(int size, llvm::ArrayRef<Halide::Expr> inner = {}, const RowTile *ofRows = nullptr) const;
  /// Vectors of keys of the chunk after `inner` dimensions: the whole ones, or the last one if it is not whole. What
  /// whole ones read lies as it does in memory; of the last one each key is clamped by itself.
  Halide::RDom vectors(bool areWhole, llvm::ArrayRef<Halide::Expr> inner) const;
  /// Lets `define` lower `values` at the keys of such vectors, at those of both at once where they read nothing at
  /// keys, and returns what they are.
  llvm::SmallVector<Halide::RDom, 2> overVectors(llvm::ArrayRef<mlir::Value> values,
                                                 llvm::function_ref<void(Halide::Expr key, bool areWhole)> define);
  /// The key of the chunk, of tiles with one inner dimension.
  Halide::Expr keyOf(const Halide::RDom &domain) const { return domain[1] * lanes + domain[0]; }

  void findShared();
  /// Lets stages find what is divided for once a task.
  void keepTaskNumbers();
  /// The rows of a task in tiles of `size`, and those that are left one by one.
  llvm::SmallVector<RowTile, 2> rowTiles(int size);
  void defineRange();
  /// Finds between which keys the rows of a group see some.
  void boundKeys();
  /// A Func of the group.
  Halide::Func boundOverRows(const char *name, const KeyBound &bound, bool largest);
  /// A dimension for each index of which rows share keys.
  Halide::Region allRows();
  Environment bindRows(llvm::ArrayRef<Halide::Expr> row, IndexBinding key);
  std::vector<Halide::Var> groupVars() const;
  void defineScore();
  void defineWeights();
  void defineWeightPairs();
  /// The size of the value index.
  Halide::Expr columnCount() { return extent(kernel, op.getResult().getType().getShape().back()); }
  /// The block of `output` that a tile of keys is added to.
  Halide::Expr blockOf(Halide::Expr tile) const { return tile / (plan.block() / plan.keyTile); }
  /// What is read of a key for the rows of a tile.
  Halide::Expr valueAt(const Column &column, const TileKey &key);
  Halide::Expr plusKeys(Halide::Expr sum, const Column &column, const TileKey &key);
  void addColumnTile(int vectors, Halide::Expr first, Halide::Expr count, const RowTile &rows, bool isLast);
  void defineOutput();
  void defineState();
  void defineMerged();
  void defineResult();
  /// The first row of a tile of `rows`, and its block.
  Halide::Expr firstOfTile(int rows) const { return row / rows * rows; }
  Halide::Expr blockOfTile(int rows) const;
  /// A reduction at a row, and at `key`, counted within the chunk, if it changes with that.
  Halide::Expr reductionAt(ReduceOp op, const Environment &environment, Halide::Expr key);
  void addProduct(ReduceOp op, const Environment &environment);
  Environment bindTerm(const Environment &environment, ReduceOp op, llvm::ArrayRef<IndexBinding> indices,
                       const TileKey &key);
  Environment bindTerm(const Environment &environment, ReduceOp op, const Halide::RDom &domain, Halide::Expr last,
                       const TileKey &key);
  /// The term at `last` of the last index, in lanes where that `isThere`.
  Halide::Expr term(const Environment &environment, ReduceOp op, const Halide::RDom &domain, Halide::Expr last,
                    const TileKey &key, Halide::Expr isThere = {});
  /// What terms of `op` read at `key`, one number of it; undefined where they read nothing there.
  Halide::Expr firstReadOf(const Environment &environment, ReduceOp op, const TileKey &key);
  /// The tensor that `read` reads, if it is made at keys.
  TensorOp keyTensor(ReadOp read) const;
  KeyTensor defineKeyTensor(ReadOp read, const Environment &environment, const TileKey &key);
  /// Whether `read` is of a tensor that is made at queries; and elements of those.
  bool readsQueryTensor(ReadOp read) const;
  RowsMade queryRows() const;
  /// Whether terms of `op` read one.
  bool readsKeyTensor(ReduceOp op) const;
  /// A number of what it is made of, at the key of `environment`; undefined where that reads nothing there.
  Halide::Expr firstReadOfKeyTensor(ReadOp read, const Environment &environment) const;
  /// What is read of it for a row of a tile at `key`, which `environment` has.
  Halide::Expr keyTensorAt(ReadOp read, const Environment &environment, const TileKey &key);
  /// They are computed in `loop` of `product`, over keys.
  void scheduleKeyTensors(const Product &product, int rows, bool isOfRest, const Halide::RVar &loop);
  bool isPaired(ReduceOp op, const Environment &environment) const;
  Halide::Expr pairedTerm(const Environment &environment, ReduceOp op, const Halide::RDom &vectors,
                          Halide::Expr position, const TileKey &key);
  void addContiguousProduct(const Environment &environment, Product &product);
  void addProductAlongKeys(const Environment &environment, Product &product);
  void computeRowsInChunk(Halide::Func &stage);
  void scheduleMerged();
  void scheduleState();
  void scheduleProduct(Product &product);
  void scheduleTile(ColumnTile &tile, unsigned update);
  void schedulePairs();
  Halide::Expr addRowReduction(ReduceOp op, const Environment &environment);
  /// `restVectors`: of single numbers, after the whole ones.
  void addScoreTile(const Environment &environment, Product &product, const RowTile &tile, Halide::Expr restVectors);
  /// An update of `tile` for `count` vectors along the last index.
  void addTerms(Product &product, ScoreTile &tile, Halide::Expr count,
                llvm::function_ref<Halide::Expr(const Halide::RDom &terms, const TileKey &key)> termAt, bool isFetched);
  void addRest(const Environment &environment, Product &product);
  /// What terms read for a row alone, `value` in their region, is packed once a task. Returns it where a term finds it.
  Halide::Expr addPack(mlir::Value value, const PackedFormula &formula);
  /// Lets `environment` take the dear subscripts that `value` is made of from where they are kept, at `key`.
  void keepSubscripts(mlir::Value value, Environment &environment, Halide::Expr key, Halide::Expr ofRow);
  bool isKept(mlir::Value value, const Environment &environment) const;
  Subscript &subscript(mlir::Value value, const Environment &environment, ReadOp read, unsigned position);

  StepLowering &kernel;
  const SplitPlan &plan;
  WeightedSumOp op;
  ReadOp read;       ///< Of the softmax's weight.
  SoftmaxOp softmax; ///< Null where the weights have none.
  int lanes;
  bool hasLogSumExp;
  bool pairsWeights; ///< The sum is one of products of pairs: see SplitPairs.cpp.

  Halide::Var e, k{"key$"}, keyTile{"key_tile$"}, lane{"lane$"}, block{"block$"};
  Halide::Var row{"row$"}; ///< Of a task, counted through all indices that share keys.
  Halide::Var chunk{"chunk$"}, task{"task$"};
  std::vector<Halide::Var> vars; ///< Of `func`: the last index first.
  std::vector<Shared> shared;    ///< Of them, but for `e`, those that are rows of a task.
  std::vector<Own> own;          ///< The others.
  Halide::Expr span;             ///< Of a task.
  Halide::Expr rowCount;         ///< Of a task.
  Halide::Expr rowsOfKey;        ///< Of a block, where blocks of rows read keys of their own.
  Halide::Expr keyBlocks;        ///< How many there are.
  Halide::Expr keyCount, spans;
  Halide::Expr lower, upper;             ///< The keys that the mask can let through for some row of a group.
  Halide::Expr chunksOfSpan, mostChunks; ///< Of those keys; the most of any span.
  PassNumbers taskNumbers;               ///< (task): what indices are, which is divided for.
  /// (chunk, task): the first key, and of the keys from there on, up to where they are looked at, and, where the mask
  /// has a lower bound, from where.
  PassNumbers chunkKeys;
  std::vector<Halide::Func> rangeFuncs;
  std::vector<std::pair<ReduceOp, Halide::Func>> rowReductions;
  std::optional<KeySearch> search;
  Halide::Func seenKeys; ///< What that finds, (group).
  std::vector<Product> products;
  std::vector<KeyTensor> keyTensors;
  Halide::Func score, maximumLanes, maximum, exponential, sumLanes, sum, weights, weightPairs, output, state, total,
      merged, logSumExp;
  Halide::RDom maximumKeys, exponentialKeys, sumKeys, weightPairKeys, allSpans;
  llvm::SmallVector<Halide::RDom, 2> scoreKeys, weightKeys; ///< Of their updates.
  Halide::RDom parts;                                       ///< Of the state: lanes, vectors, chunks.
  int firstOutput;                                          ///< Of those vectors.
  std::vector<ColumnTile> columnTiles;
  std::vector<Subscript> subscripts;
  /// What terms read for a row, or pairs of it: (indices of the reduction…, row).
  struct Pack {
    mlir::Value value;
    Halide::Func func;
    bool ofPairs;
  };
  std::vector<Pack> packs;
};

} // namespace attn::lowering

#endif // ATTN_LIB_HALIDE_SPLIT_H

//===- Plan.h - How a kernel is to be computed ------------------*- C++ -*-===//
//
// Plain, printable data: chosen from the kernel and the machine, read by lib/Halide.
//
//===----------------------------------------------------------------------===//

#ifndef ATTN_PLAN_PLAN_H
#define ATTN_PLAN_PLAN_H

#include "attn/Analysis/CutSizes.h"
#include "attn/Analysis/PairBlocks.h"
#include "attn/IR/Attn.h"
#include "attn/Plan/GpuPlan.h"
#include "attn/Plan/TensorCorePlan.h"

#include "llvm/Support/Error.h"

#include <array>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace attn {

/// What is known of the processor. Plans are made for its instructions; cores and caches are those of the machine this
/// runs on, and 0 where another is compiled for.
struct Machine {
  std::string target;            ///< As Halide names it: x86-64-linux-avx-avx2-fma-…
  unsigned vectorBytes = 16;     ///< Width of a vector register.
  unsigned vectorRegisters = 16; ///< How many of them there are.
  bool bf16Pairs = false;        ///< Multiplies two pairs of bf16 numbers and adds the products to a float.
  bool maskedLoads = false;      ///< Loads some lanes of a vector alone, of any dtype.
  Device device = Device::Cpu;   ///< What runs the kernels.
  /// Whose tensor cores kernels are compiled for, the newest first. None: all kernels are Halide's.
  std::vector<CudaArchitecture> tensorCores;
  bool runsHere = false; ///< This process can run its code, given the device and its driver.

  // What predictions are made from. Nothing is measured: plans for a target are the same wherever they are made.
  double gigahertz = 3;      ///< Clock.
  unsigned multiplyAdds = 2; ///< Vectors of float32 multiply-adds that a core begins in a clock.
  double readGigabytes = 20; ///< 10^9 bytes that a core reads from memory in a second.

  unsigned cores = 0;
  /// A core's first cache of data, its second, and the third that cores share.
  std::array<uint64_t, 3> cacheBytes = {};

  /// The target without its features: x86-64-linux.
  std::string platform() const;
  void print(llvm::raw_ostream &os) const;
};

/// Sizes of the tiled plan: see docs/plans.md for its loop nest.
struct TilePlan {
  unsigned lanes;         ///< Queries in a vector.
  unsigned queries;       ///< Queries in a tile: a multiple of lanes; all of them in registers at once.
  unsigned keyUnroll;     ///< Keys of a register tile of the score product.
  unsigned valueUnroll;   ///< Value columns of a register tile of the weighted sum.
  unsigned chunk = 256;   ///< Keys between two rescalings: a multiple of block.
  unsigned block = 32;    ///< Keys that are added in order, in registers: a multiple of keyUnroll.
  bool bf16Pairs = false; ///< Products of bf16 tensors are computed two at a time, and weights rounded for them.
};

/// Sizes of the split plan: see docs/plans.md for its loop nest.
struct SplitPlan {
  int rows = 16;           ///< The most rows of an index that share keys in one pass over them.
  int rowsWithinKeys = 32; ///< The most of an index that chooses among what lies together at a key.
  int chunk = 1024;        ///< Keys between two rescalings.
  int span = 512;          ///< No span is shorter.
  int rowTile;             ///< Rows that share keys in a register tile of the scores.
  int scoreKeys;           ///< Keys of a register tile of the scores of one row.
  int keyTile = 16;        ///< Keys of the weighted sum that are added for a row before the next row's turn.
  /// Vectors of columns in a register tile of the weighted sum of one row, a power of two. Tiles of the columns that
  /// are left have half as many, and so on.
  int valueVectors;
  int valueRows = 4;      ///< Rows that share values in a register tile of the weighted sum.
  int ahead = 32;         ///< Keys from one that is used to one that is fetched into the second cache; 0: none is.
  int tasks = 32;         ///< Spans are made until there are as many tasks.
  bool bf16Pairs = false; ///< See TilePlan.
  /// Vectors of columns, and of terms of a score, that are not whole are read in some of their lanes alone. The last
  /// tile of columns has as many vectors as the second then. Where that takes an instruction for each lane, it has one,
  /// and terms that fill no vector are added one by one.
  bool masksLanes = false;

  /// Keys of a register tile of the scores of several rows, and vectors of one of their weighted sum.
  int scoreKeysOfSeveral() const { return std::clamp(scoreKeys / 2, 2, 4); }
  static constexpr int valueVectorsOfSeveral = 2;
  /// Keys whose tiles are added in order: a chunk is a multiple of it, and it is one of keyTile.
  int block() const { return std::min(chunk, 256); }
};

/// The loop nests of docs/plans.md.
enum class PlanKind {
  None, ///< Nobody reads the statement.
  Nest,
  Scatter,
  Scan,
  Matrix,
  Split,
  NarrowTiles,
  Tiles
};

/// A way to compute a statement, for calls within a limit or for every call.
struct PlanVariant {
  PlanKind kind = PlanKind::Nest;
  std::optional<SizeLimit> limit = std::nullopt;
};

/// How a weighted sum is computed, together with the softmax that gives its weights.
struct SumPlan {
  mlir::Operation *statement = nullptr; ///< Not printed.
  std::string name;                     ///< Of the sum.
  std::string queryName;                ///< Of the query index, if it has one.
  std::vector<PlanVariant> variants;    ///< The first that suits a call; the last is for every call.
  /// What is made where scores read it, rather than stored before (attn/Analysis/KeyTensors.h): at keys, where these
  /// are split, and at queries.
  llvm::SmallVector<TensorOp> keyTensors = {}, queryTensors = {};

  bool has(PlanKind kind) const;
  /// Whether a variant of this kind makes rows of `tensor`, one of those.
  bool makes(PlanKind kind, TensorOp tensor) const;
  /// `nest` is what the plan that fits everything is called.
  void print(llvm::raw_ostream &os, llvm::StringRef nest) const;
};

/// What the mask of a softmax or of pairs, or the condition of a weighted sum, says of the keys, in the words of the
/// source.
struct KeyRangePlan {
  std::string name;     ///< Of the softmax, the sum, or the tensor of pairs.
  std::string possible; ///< Keys outside are not visited: "0 <= n < valid[b]".
  std::string certain;  ///< Chunks inside evaluate no mask. Empty: it is evaluated everywhere.
  /// Of these keys those are visited, in each chunk or block, from the first to the last that some row sees.
  bool searched = false;
};

struct Plan;

/// The matrix plan of a statement: see docs/plans.md for its loop nest.
struct MatrixPlan {
  mlir::Operation *statement = nullptr; ///< Not printed.
  std::string name;                     ///< Of the statement.
  std::string rowName, columnName;      ///< Indices of the rows and columns.
  std::string secondName;               ///< Of a second index of rows.
  SizeAttr rowSize;                     ///< The rows, where at most `fewRows` have another plan. Null: nowhere.
  std::string inPlaceOf;                ///< Of scores: the weights that take their place. Empty: they have their own.
  unsigned row = 0;                     ///< The position of the index that runs along the rows of a tile.
  /// The position of another one, of which a tile has `secondRows` values: where all factors change with the columns,
  /// rows share some of them along one, some along the other, as in Σ_k a[m, k, c] · b[n, k, c].
  std::optional<unsigned> second = std::nullopt;
  unsigned lanes = 4;      ///< Columns in a vector.
  unsigned rows = 6;       ///< Rows of a register tile.
  unsigned secondRows = 1; ///< Rows of a register tile along `second`.
  unsigned vectors = 2;    ///< Vectors of columns of a register tile.
  unsigned tiles = 64;     ///< Register tiles, one below the other, for which a panel is packed.
  bool packsRows = false;  ///< What rows give to neighbouring terms lies apart in memory, and is packed, too.
  unsigned chain = 24;     ///< Terms that are added in order.
  unsigned block = 192;    ///< Terms whose chains are added in order; blocks are added in f64.

  /// So many rows take less time one by one than a tile does.
  static constexpr int64_t fewRows = 2;

  /// The plan for `op`, if it suits it.
  static std::optional<MatrixPlan> choose(DefinitionOpInterface op, const Machine &machine, const Plan &plan);
};

/// A sum whose terms are visited once each, and added where they belong: see docs/plans.md.
struct ScatterPlan {
  mlir::Operation *statement = nullptr; ///< Not printed.
  std::string name;                     ///< Of the statement.
  std::string terms, places;            ///< The indices of a term, and those that its place has.
};

/// A reduction of the terms up to an index, as a running total: see docs/plans.md.
struct ScanPlan {
  mlir::Operation *statement = nullptr; ///< Not printed.
  std::string name;                     ///< Of the statement.
  std::string end;                      ///< The index that it runs along.
  bool isReversed = false;              ///< From the last one to the first.
};

/// A statement that some calls do not compute: see attn/Analysis/UnreadCalls.h.
struct UnreadPlan {
  mlir::Operation *statement = nullptr; ///< Not printed.
  std::string name;                     ///< Of the statement.
  SizeLimit calls;
};

/// Whether `value`, part of a term of `sum`, changes with the column (the last index of the statement) and the sum's
/// own indices, but not with the row, which is the index at position `row`.
bool isColumnFactor(mlir::Value value, ReduceOp sum, unsigned row);

/// Whether `value`, part of a term of `sum`, changes with the row and with the sum's last index, but not with the
/// column, and is made of rows that lie side by side in memory: those of neighbouring terms do not.
bool isApartRowFactor(mlir::Value value, ReduceOp sum, unsigned row);

/// Whether `op` is made of products of matrices, as the matrix plan wants them, however many rows they have; or of such
/// sums without rows.
bool isProduct(DefinitionOpInterface op);

/// Sizes of plans by name ("tile.chunk": 512), in place of those that are chosen: see attn/Plan/Settings.h.
using PlanSettings = std::map<std::string, int64_t>;

struct PlanOptions {
  bool countChunks = false; ///< See Plan::countChunks.
  PlanSettings settings = {};
};

struct Plan {
  TilePlan tile;
  TilePlan narrow; ///< For calls with fewer queries, of which a tile would be half empty.
  SplitPlan split;
  /// The most queries for which the split plan and narrow tiles are taken. Not set: what is predicted to be quicker.
  std::optional<int64_t> splitQueries, narrowQueries;
  std::vector<SumPlan> sums;
  std::vector<MatrixPlan> matrices;
  std::vector<ScatterPlan> scatters;
  std::vector<ScanPlan> scans;
  std::vector<UnreadPlan> unread; ///< Not on a GPU, which has no buffers for what is not computed.
  std::vector<KeyRangePlan> ranges;
  llvm::SmallVector<PairBlocks> blocks; ///< Statements that are computed for one block of rows after the other.
  llvm::SmallVector<CutSize> cuts;      ///< Sizes along which a call may run as several, if it stores much.
  std::optional<GpuPlan> gpu;           ///< On a GPU, in place of the plans above.
  TensorCorePlan tensorCores;           ///< Of CUDA C++ for tensor cores, before a kernel's widths are known.
  unsigned lanes;                       ///< Elements of a vector in statements that are not tiled.
  unsigned panelTiles = 64;             ///< MatrixPlan::tiles of every statement.
  bool countChunks = false;             ///< Tiled sums count the chunks that they visit (LoweredKernel::countedSums).

  /// The plan of a weighted sum.
  const SumPlan &sum(mlir::Operation *statement) const;
  /// Whether `statement` is one of `scatters`.
  bool isScatter(mlir::Operation *statement) const;
  /// Whether it is one of `scans`.
  bool isScan(mlir::Operation *statement) const;
  /// The matrix plan of `statement`, or null.
  const MatrixPlan *matrix(mlir::Operation *statement) const;
  /// Whether the scores of `softmax` are stored before its weights are: the latter are made from them, row by row.
  bool storesScores(SoftmaxOp softmax) const;
  /// The ways to compute `statement`: a weighted sum is split for few queries and otherwise tiled, a matrix with few
  /// rows is a nest, and one that nobody reads is not computed. A call takes the first that suits it; the last suits
  /// every call.
  std::vector<PlanVariant> variants(mlir::Operation *statement) const;
  /// The names of the sums that count their chunks, in order.
  std::vector<std::string> countedSums() const;

  /// Fails where a setting is unknown, or its value is none that it may have.
  static llvm::Expected<Plan> choose(KernelOp kernel, const Machine &machine, const PlanOptions &options = {});
  void print(llvm::raw_ostream &os) const;

private:
  void chooseForGpu(bool isDouble);
  void chooseCuts(KernelOp kernel);
  void printForGpu(llvm::raw_ostream &os) const;
  /// Whether some call computes `statement`.
  bool isComputed(mlir::Operation *statement) const;
  /// The blocks, and the keys that masks let through.
  void printBlocks(llvm::raw_ostream &os) const;
};

} // namespace attn

#endif // ATTN_PLAN_PLAN_H

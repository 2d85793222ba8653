//===- Nest.h - The loop nest of one stored tensor --------------*- C++ -*-===//
//
// A stored tensor is a Func; every reduction in its formula is a Func of its own, computed
// inside the tensor's loops. Nest.cpp, NestSum.cpp, RowSoftmax.cpp and RowSum.cpp say what is computed,
// NestSchedule.cpp how:
//
//   for rows of the tensor, in parallel:
//     score, maximum, sum and weights of the row   (softmaxes: one row of keys, never more)
//     for vectors along the last dimension:
//       reductions of that vector
//       the formula around them
//
//===----------------------------------------------------------------------===//

#ifndef ATTN_LIB_HALIDE_NEST_H
#define ATTN_LIB_HALIDE_NEST_H

#include "Reduction.h"
#include "StepLowering.h"
#include "attn/Analysis/Fusion.h"

#include <optional>

namespace attn::lowering {

/// A Func inside a nest, with what its schedule needs to know.
struct Stage {
  enum class Kind {
    Row,     ///< Values along keys, vectorised: scores, weights.
    Rows,    ///< One value a row: maximum, sum.
    Lanes,   ///< A reduction whose lanes are elements of its consumer.
    Parts,   ///< A row in parts, each vectorised, and what is left.
    Partial, ///< A reduction along a contiguous dimension: lanes are partial results, joined at the end.
  };
  Kind kind;
  Halide::Func func;
  std::vector<Halide::Var> vars;
  int consumer = -1;                ///< The stage in whose loops this one is computed; −1: the nest's own Func.
  std::optional<Halide::RVar> loop; ///< Inside this reduction loop of the consumer.
  Halide::Func partial;             ///< Of a Partial stage, and of some of Rows: (lane, vars…) partial results.
  bool inVectors = false;           ///< Of Partial: several elements are joined at once, in a vector.
  bool scalar = false;              ///< None of its variables runs along vectors.
  bool lanesOfPartial = false;      ///< Its lanes are the partial results of its consumer.
  bool lanesOfConsumer = false;     ///< Computed for one vector of its consumer at a time: it lies in registers.
};

/// Scores, maximum and sum of the rows of a softmax: weight(n) = 2^(score(n) − maximum) / sum, or e^… where scores are
/// natural. Masked scores are −inf; the maximum is at least the lowest finite float, so that a row with nothing left
/// has sum 0.
struct RowSoftmax {
  Halide::Func score;             ///< (keys…, the last first, rows…)
  Halide::Func maximum;           ///< (rows…)
  Halide::Func sum;               ///< (rows…): Σ 2^(score − maximum)
  bool isNatural = false;         ///< Scores are those of the spec; otherwise they are multiplied by log2(e).
  std::vector<Halide::Expr> rows; ///< The rows, where the softmax is read.

  /// Keys are in the order of the softmax's indices.
  Halide::Expr scoreAt(std::vector<Halide::Expr> keys) const;
  Halide::Expr exponential(std::vector<Halide::Expr> keys) const;
  Halide::Expr exponentialOf(Halide::Expr score) const;
  Halide::Expr inPowersOfTwo(Halide::Expr score) const;
  Halide::Expr weight(std::vector<Halide::Expr> keys) const;
  Halide::Expr logSumExp() const;
};

class Nest {
public:
  /// A nest for a tensor named `name` with these loops, the last index first; nothing is defined yet.
  Nest(StepLowering &kernel, llvm::StringRef name, std::vector<Halide::Var> vars);

  /// Defines the Func; call one of these, once.
  void definePointwise(DefinitionOpInterface op);
  void defineWeight(SoftmaxOp op);
  void defineLogSumExp(SoftmaxOp op);
  void defineWeightedSum(WeightedSumOp op);

  /// Stores the Func at root and schedules its stages.
  void schedule();

  Halide::Func func;
  std::vector<Halide::Var> vars; ///< Arguments of `func`: the last index first.
  /// Of a product of matrices with few rows, or none: columns run in parallel, too.
  bool hasFewRows = false;

private:
  friend class StageLowering;

  /// Defines the Func part by part, if its formula differs between parts of the last index (Parts.h).
  bool defineParts(DefinitionOpInterface op);
  /// A reduction nested in the formula: a Func over the index variables it depends on, called where it stands.
  Halide::Expr addReduction(ReduceOp op, Environment &environment, int consumer);
  /// A reduction of so few terms, known at compile time, that a Func of its own would take longer to begin: they stand
  /// where it does. Undefined for others.
  Halide::Expr termsInFull(ReduceOp op, const Environment &outer, int consumer);
  void addLanes(ReduceOp op, Environment &inner, std::vector<Halide::Var> vars, Stage stage);
  /// Defines `sum` over the variables of `stage` as the sum of `term` (of index values, in the loops of a stage) over
  /// all index values below `counts`, accurate however many there are (NestSum.cpp). With a `start`, which is added,
  /// the last count is a multiple of `blockSize`. `restrict` may add conditions to the loops.
  static constexpr int blockSize = 32;
  void addSum(Halide::Func sum, llvm::ArrayRef<Halide::Expr> counts, Stage stage, Halide::Expr start,
              llvm::function_ref<void(Halide::RDom &)> restrict,
              llvm::function_ref<Halide::Expr(llvm::ArrayRef<IndexBinding>, int)> term);
  bool isForVectors(const Stage &stage);
  void addPartial(ReduceOp op, Environment &inner, std::vector<Halide::Var> vars, Stage stage);
  /// The body of a reduction at these places among the values of its index variables; the identity where its condition
  /// is false.
  Halide::Expr reductionBody(ReduceOp op, const Environment &inner, llvm::ArrayRef<IndexBinding> at, int consumer);

  /// The softmax of `score` over its last `keys.size()` index arguments; its scores are those of `storedScore`, if
  /// there is one.
  RowSoftmax addSoftmax(llvm::StringRef name, mlir::Region &score, mlir::Region *mask, mlir::Value sink,
                        llvm::ArrayRef<SizeAttr> keys, const Environment &rows, mlir::Value storedScore = {});
  /// The same for a graph op, where its rows are read at `rows`.
  RowSoftmax addSoftmax(SoftmaxOp op, llvm::ArrayRef<IndexBinding> rows, mlir::Value storedScore = {});
  /// Maximum and sum of `softmax`, whose score is defined; `sink` is a score, too, or undefined.
  void addMaximumAndSum(RowSoftmax &softmax, const std::string &name, llvm::ArrayRef<Halide::Expr> keyCounts,
                        const std::vector<Halide::Var> &rows, Halide::Expr sink);

  int addStage(Stage stage);
  /// `found` in the order of the arguments of `consumer`, the rest after them.
  std::vector<Halide::Var> ordered(const std::vector<Halide::Var> &found, int consumer);

  void scheduleStage(Stage &stage);
  void schedulePartial(Stage &stage);
  Halide::LoopLevel level(const Stage &stage);
  /// Elements of the last dimension that are computed together.
  int width() const;

  StepLowering &kernel;
  std::string name;
  bool lanes = true; ///< vars[0] is vectorised; otherwise it is one of the rows.
  /// Where rows have few instructions each: how many in a row one task has. Undefined where a row is a task.
  Halide::Expr rowsOfTask;
  std::vector<Stage> stages;
  std::optional<Halide::Var> innermostRow; ///< Of `vars`, if its values follow one another out of turn.
  std::optional<Halide::Var> rowLoop, laneLoop;
};

/// Fuses `loops` of `func`, the innermost first, to one that runs in parallel.
Halide::Var inParallel(Halide::Func &func, llvm::ArrayRef<Halide::Var> loops);

/// Lowers a region in the loops of stage `consumer` of a nest.
class StageLowering : public RegionLowering {
public:
  StageLowering(Nest &nest, Environment &environment, int consumer)
      : RegionLowering(nest.kernel, environment), nest(nest), consumer(consumer) {}

protected:
  Halide::Expr reduce(ReduceOp op) override { return nest.addReduction(op, environment, consumer); }

private:
  Nest &nest;
  int consumer;
};

} // namespace attn::lowering

#endif // ATTN_LIB_HALIDE_NEST_H

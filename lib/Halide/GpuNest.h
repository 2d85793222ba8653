//===- GpuNest.h - The kernels of one stored tensor on a GPU ----*- C++ -*-===//
//
// A thread computes an element. Every reduction in its formula is a loop of the thread; a softmax has two kernels, the
// first of which finds the maximum and the sum of each row. GpuNest.cpp and GpuSoftmax.cpp say what is computed,
// GpuNestSchedule.cpp how:
//
//   for rows of each softmax, a thread each:          a kernel
//     maximum, then sum, over the row's keys          scores are computed where they are read, never stored
//   for elements of the tensor, a thread each:        a kernel
//     reductions, the formula around them
//
// Memory: two numbers for each row of a softmax.
//
//===----------------------------------------------------------------------===//

#ifndef ATTN_LIB_HALIDE_GPUNEST_H
#define ATTN_LIB_HALIDE_GPUNEST_H

#include "Reduction.h"
#include "StepLowering.h"

namespace attn::lowering {

/// A softmax where its rows are read.
struct GpuSoftmax {
  mlir::Region *score = nullptr, *mask = nullptr; ///< The mask may be null.
  unsigned keys = 1;                              ///< The last arguments of the regions.
  Halide::Func statistics;                        ///< (row): maximum of log2(e) · score, and Σ 2^(score − maximum)
  Halide::Expr row;                               ///< Where it is read.

  Halide::Expr maximum() const { return statistics(row)[0]; }
  Halide::Expr sum() const { return statistics(row)[1]; }
  Halide::Expr logSumExp() const;
};

class GpuNest {
public:
  /// A nest for a tensor named `name` of this shape; nothing is defined yet.
  GpuNest(StepLowering &kernel, llvm::StringRef name, llvm::ArrayRef<SizeAttr> shape);

  /// Defines the Func; call one of these, once.
  void definePointwise(DefinitionOpInterface op);
  void defineWeight(SoftmaxOp op);
  void defineLogSumExp(SoftmaxOp op);
  void defineWeightedSum(WeightedSumOp op);

  /// An output that is a copy of `tensor` with elements of another type.
  void defineConverted(mlir::Value tensor, Halide::Type type);

  void schedule();

  Halide::Func func;

private:
  friend class GpuRegion;

  /// A Func with what its schedule needs to know.
  struct Stage {
    Halide::Func func;
    std::vector<Halide::Var> vars;
    int consumer = -1;                ///< The stage in whose loops this one is computed; −1: a kernel of its own.
    std::optional<Halide::RVar> loop; ///< Inside this reduction loop of the consumer.
  };

  /// All values of the indices of a tensor of this shape.
  llvm::SmallVector<IndexValues> allValues(llvm::ArrayRef<SizeAttr> shape);
  /// The indices that number `element` has among those that take these values, in row-major order. (Loops that Halide
  /// fuses are the same, but it does not see that a thread has one element.)
  static llvm::SmallVector<IndexBinding> indicesOf(const Halide::Var &element, llvm::ArrayRef<IndexValues> values);
  /// The number that the element with these indices has.
  Halide::Expr numberOf(llvm::ArrayRef<Halide::Expr> indices, llvm::ArrayRef<SizeAttr> shape);
  /// Defines `func` as `value`, whose indices are those of `element`.
  void define(Halide::Expr value);

  /// A reduction nested in the formula of `consumer`: a Func over the index variables it depends on, called there.
  Halide::Expr addReduction(ReduceOp op, Environment &environment, int consumer);
  /// A softmax nested in it.
  Halide::Expr addNestedSoftmax(ReduceOp op, Environment &outer, int consumer);
  /// Defines the Func of `stage` as the sum of `term` (of numbers of index values, in a stage's loops) over all numbers
  /// below `counts`: blocks of f32, added in f64, as NestSum.cpp says.
  void addSum(Stage stage, llvm::ArrayRef<Halide::Expr> counts, Halide::Type type,
              llvm::function_ref<Halide::Expr(llvm::ArrayRef<IndexBinding>, int)> term);
  Halide::Expr reductionBody(ReduceOp op, const Environment &inner, llvm::ArrayRef<IndexBinding> at, int consumer);

  /// Adds the kernel that finds the maximum and the sum of the rows of `softmax`, which are numbered by `row`; `rows`
  /// binds what score, mask and sink depend on. There is no sink where it is null.
  void addStatistics(GpuSoftmax &softmax, const std::string &base, const Environment &rows, const Halide::Var &row,
                     llvm::ArrayRef<SizeAttr> keys, mlir::Value sink);
  /// The softmax of a graph op whose rows are read at `rows`.
  GpuSoftmax addSoftmax(SoftmaxOp op, llvm::ArrayRef<IndexBinding> rows);
  /// log2(e) · score, −inf where it is masked, in the loops of stage `consumer`.
  Halide::Expr scoreAt(const GpuSoftmax &softmax, const Environment &rows, llvm::ArrayRef<IndexBinding> keys,
                       int consumer);
  /// The weight of a score, and what it is proportional to.
  static Halide::Expr weight(const GpuSoftmax &softmax, Halide::Expr score);
  static Halide::Expr exponential(const GpuSoftmax &softmax, Halide::Expr score);

  int addStage(Stage stage);
  Halide::LoopLevel level(const Stage &stage) const;

  StepLowering &kernel;
  std::string name;
  llvm::SmallVector<IndexValues> values;   ///< Of the tensor's indices: all, or those of a block.
  Halide::Var element{"element$"};         ///< The number of the element that a thread computes.
  llvm::SmallVector<IndexBinding> indices; ///< What it stands for.
  llvm::SmallVector<IndexBinding> place;   ///< Where in the tensor's buffer that is.
  std::optional<Halide::RDom> elements;    ///< All of them, where the tensor has a dimension.
  std::vector<Stage> stages;               ///< The first is the tensor's own.
};

/// Lowers a region in the loops of stage `consumer` of a nest.
class GpuRegion : public RegionLowering {
public:
  GpuRegion(GpuNest &nest, Environment &environment, int consumer)
      : RegionLowering(nest.kernel, environment), nest(nest), consumer(consumer) {}

protected:
  Halide::Expr reduce(ReduceOp op) override { return nest.addReduction(op, environment, consumer); }

private:
  GpuNest &nest;
  int consumer;
};

} // namespace attn::lowering

#endif // ATTN_LIB_HALIDE_GPUNEST_H

//===- StepLowering.h - The state of one step's lowering --------*- C++ -*-===//

#ifndef ATTN_LIB_HALIDE_STEPLOWERING_H
#define ATTN_LIB_HALIDE_STEPLOWERING_H

#include "Region.h"
#include "Storage.h"
#include "attn/Analysis/PairBlocks.h"
#include "attn/Plan/Plan.h"

#include <map>
#include <set>
#include <string>

namespace attn::lowering {

/// The values of an index variable in one run of a step: `count` of them from `first` on.
struct IndexValues {
  Halide::Expr first, count;
};

/// What is a scalar argument for Halide, and a number of sizes in the function that it becomes.
struct DerivedSize {
  Halide::Argument argument;
  Halide::Expr value;
};

/// A pipeline that computes one tensor from parameters, sizes and tensors that other steps compute.
class StepLowering {
public:
  /// A step that is one of `blocks`, if these are given, computes one block.
  StepLowering(KernelOp kernel, const Plan &plan, Storage &storage, const PairBlocks *blocks = nullptr);

  /// Builds and schedules the pipeline: one of these, once. `kind` is of one of the statement's variants. `logSumExp`,
  /// if it is not null, is that of the softmax whose weights the statement sums, and is stored, too.
  void store(mlir::OpResult tensor, PlanKind kind, mlir::Value logSumExp = {});
  void convertOutput(unsigned index);
  /// Finds the keys that some row of a block needs (BlockKeys.cpp). False where a block needs all, whatever it is.
  BlockKeys storeKeys();

  /// One element of a tensor. Subscripts are in the tensor's order.
  Halide::Expr element(mlir::Value tensor, const std::vector<Halide::Expr> &subscripts);
  /// The last index of a dimension of `tensor`, as its buffer says; 0 where it is empty (it is given extent 1 then).
  Halide::Expr lastIndex(mlir::Value tensor, unsigned dimension);
  /// The values that an index of a statement, or of a reduction in it, takes: all, or those of the block.
  IndexValues values(mlir::BlockArgument index);
  /// Where the variable of a Func that stores the statement counts from: pairs from the first ones of the block, as
  /// they lie in memory (there may be 2^31 of them and more, though not in a block), and all else from 0.
  Halide::Expr origin(mlir::BlockArgument index);
  /// The values that such a variable takes, and what it stands for.
  IndexValues storedValues(mlir::BlockArgument index);
  IndexBinding storedIndex(mlir::BlockArgument index, const Halide::Var &var);
  /// What this element of `tensor`, which the step stores, is before that.
  Halide::Expr before(mlir::Value tensor, const std::vector<Halide::Expr> &at);
  /// `value`, and what earlier blocks have added to this element of `tensor`, where blocks add to it.
  Halide::Expr withEarlierBlocks(Halide::Expr value, mlir::Value tensor, const std::vector<Halide::Expr> &at);
  bool isInBlocks() const { return blocks; }
  /// The type that the elements of a stored tensor have in memory.
  Halide::Type typeInMemory(mlir::Value tensor) const { return storage.type(tensor); }
  /// `value` as an element of `tensor` in memory.
  Halide::Expr stored(Halide::Expr value, mlir::Value tensor) const;
  /// `value` rounded to `type`: of that type, or of one that holds it exactly where the machine has no such numbers.
  Halide::Expr rounded(Halide::Expr value, Halide::Type type) const;
  /// The size with this name.
  Halide::Expr size(mlir::StringAttr name);
  /// `value`, which follows from sizes, or `least` where that is more, computed once when the pipeline starts. Halide
  /// has a formula of sizes in the bounds of every stage, and simplifies each.
  Halide::Expr derivedSize(llvm::StringRef name, Halide::Expr value, int least);
  /// A name for a Func, unique within the step.
  std::string uniqueName(llvm::StringRef base);

  KernelOp kernel;
  const Plan &plan;
  std::vector<Halide::Argument> inputs;
  std::vector<Halide::Func> outputs;
  std::vector<HalideArgument> inputArguments, outputArguments; ///< What they are.
  std::vector<DerivedSize> derivedSizes;
  std::set<std::string> accumulators; ///< Funcs of one vector, of which some lanes may be used.

private:
  Halide::ImageParam buffer(mlir::Value tensor);
  bool isOfBlock(mlir::Value tensor) const;
  bool isPairsOfBlock(mlir::Value tensor) const;
  Halide::Expr axisValue(unsigned index);
  void addFusedSum(WeightedSumOp sum, PlanKind kind, mlir::Value logSumExp);
  void storeOnGpu(mlir::OpResult tensor, PlanKind kind);
  void addOutput(Halide::Func func, HalideArgument argument);

  Storage &storage;
  const PairBlocks *blocks;
  Halide::ImageParam earlier;                  ///< The tensor that the step stores, before it does.
  std::map<unsigned, Halide::Expr> axisValues; ///< By HalideArgument::Axis.
  llvm::DenseMap<mlir::Value, Halide::ImageParam> buffers;
  llvm::DenseMap<mlir::Value, Halide::Expr> scalars;
  std::map<std::string, Halide::Expr> sizes;
  std::map<std::string, int> names; ///< How often each was asked for, or made of another by its number.
};

/// How a tensor of this element type lies in memory; bool is one byte.
Halide::Type storageType(mlir::Type element);
/// The type its elements have in expressions.
Halide::Type computeType(mlir::Type element);

} // namespace attn::lowering

#endif // ATTN_LIB_HALIDE_STEPLOWERING_H

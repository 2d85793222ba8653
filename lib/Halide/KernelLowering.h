//===- KernelLowering.h - The state of one kernel's lowering ----*- C++ -*-===//

#ifndef ATTN_LIB_HALIDE_KERNELLOWERING_H
#define ATTN_LIB_HALIDE_KERNELLOWERING_H

#include "Region.h"
#include "attn/Plan/Plan.h"

#include <map>
#include <string>

namespace attn::lowering {

/// The parameters, sizes and tensors of a kernel, as Halide knows them.
class KernelLowering {
public:
  KernelLowering(KernelOp kernel, const Plan &plan);

  /// Builds and schedules the pipeline: one Func a stored tensor.
  void run();

  /// One element of a tensor: a parameter, or a stored tensor. Subscripts are in the tensor's order.
  Halide::Expr element(mlir::Value tensor, const std::vector<Halide::Expr> &subscripts);
  /// The last index of a dimension of `tensor`, whose size is `size`; 0 where it is empty. The buffer of a parameter or
  /// output says so itself (it is given extent 1 then), which Halide's bounds checks can follow where a condition on
  /// the size is near.
  Halide::Expr lastIndex(mlir::Value tensor, unsigned dimension, SizeAttr size);
  /// The size with this name.
  Halide::Expr size(mlir::StringAttr name);
  /// A name for a Func, unique within the kernel.
  std::string uniqueName(llvm::StringRef base);

  KernelOp kernel;
  const Plan &plan;
  std::vector<Halide::Argument> arguments;
  std::vector<Halide::Func> outputs;
  std::vector<std::string> countedSums; ///< Their counts are the last outputs.

private:
  void addParameters();
  /// Whether what `stored` gives for `tensor` is an output as it is, without rounding.
  bool isOutput(mlir::Value tensor);
  /// The Func that stores `tensor`, built when it is first asked for.
  Halide::Func stored(mlir::Value tensor);
  /// A weighted sum that is computed together with its softmax.
  Halide::Func fusedSum(WeightedSumOp sum);
  /// `func` rounded to the type output `index` is stored in.
  Halide::Func output(unsigned index);

  std::vector<Halide::Func> chunkCounts;
  llvm::DenseMap<mlir::Value, Halide::ImageParam> buffers;
  llvm::DenseMap<mlir::Value, Halide::Expr> scalars;
  llvm::DenseMap<mlir::Value, Halide::Func> funcs;
  std::map<std::string, Halide::Expr> sizes;
  std::map<std::string, int> names;
};

/// How a tensor of this element type lies in memory; bool is one byte.
Halide::Type storageType(mlir::Type element);
/// The type its elements have in expressions.
Halide::Type computeType(mlir::Type element);

} // namespace attn::lowering

#endif // ATTN_LIB_HALIDE_KERNELLOWERING_H

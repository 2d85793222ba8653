//===- Storage.h - Where tensors lie between steps --------------*- C++ -*-===//

#ifndef ATTN_LIB_HALIDE_STORAGE_H
#define ATTN_LIB_HALIDE_STORAGE_H

#include "attn/Analysis/PairBlocks.h"
#include "attn/Halide/Lowering.h"

#include "Halide.h"
#include "llvm/ADT/DenseMap.h"

namespace attn::lowering {

/// Parameters lie where the caller has them, returned tensors in the outputs, and what else is read by a step in
/// intermediates. Steps are lowered from the last to the first, so that each is lowered only if one after it reads it.
class Storage {
public:
  /// Tensors to which blocks add lie in memory in the type that they are computed in.
  Storage(KernelOp kernel, llvm::ArrayRef<PairBlocks> blocks);

  /// Where `tensor` is read or written. What has no place yet becomes an intermediate.
  HalideArgument place(mlir::Value tensor);
  /// Lets `tensor` lie where `other` will: what makes `other` of it reads each row first.
  void placeLike(mlir::Value tensor, mlir::Value other) { places[tensor] = place(other); }
  /// Whether both lie in the same place.
  bool isPlacedLike(mlir::Value tensor, mlir::Value other) const;
  bool isNeeded(mlir::Value tensor) const { return places.contains(tensor); }
  /// The type of its elements there: that of the output, where it is nothing else.
  Halide::Type type(mlir::Value tensor) const;

  std::vector<mlir::Value> intermediates;
  /// The outputs that are not written by the step that computes their tensor: those of another type than what other
  /// steps read, and those that return what a parameter or an earlier output is.
  std::vector<unsigned> converted;

private:
  llvm::DenseMap<mlir::Value, HalideArgument> places;
  llvm::DenseMap<mlir::Value, Halide::Type> rounded; ///< The tensors that are an output of another type.
};

} // namespace attn::lowering

#endif // ATTN_LIB_HALIDE_STORAGE_H

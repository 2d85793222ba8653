//===- Derivative.h - How a formula changes with what it reads --*- C++ -*-===//

#ifndef ATTN_TRANSFORMS_DERIVATIVE_H
#define ATTN_TRANSFORMS_DERIVATIVE_H

#include "attn/IR/Attn.h"

namespace attn {

/// What an element of a tensor does to a result: `gradient` is that of the result times the derivative of the formula
/// by `read`, for one choice of all index variables around the read.
struct ReadGradient {
  ReadOp read;
  mlir::Value gradient;
};

/// A maximum or minimum of a formula, and the number of terms that equal it: elements of tensors, read beside it.
struct Extreme {
  mlir::Value value, equalTerms;
};

/// What a formula is differentiated with.
struct DerivativeFacts {
  /// Whether a tensor that is read is to have a gradient.
  llvm::function_ref<bool(mlir::Value)> isActive;
  llvm::function_ref<Extreme(ReduceOp)> extreme;
};

/// The reads of active tensors in `tensor`'s formula, with their gradients, where
/// `seed` is the gradient of an element of `tensor`. Their formulas are put into `scratch`, a block of the kernel, but
/// use values and index variables of `tensor`, also of its reductions: they have to be copied to where they are wanted
/// (attn::cloneSlice).
///
/// Where a maximum has two largest operands the second has the gradient, so that of max(x, 0) at 0 is 0; equal terms of
/// max[n] share it. A rounding
/// (f16(x)) is taken for the identity; floor, round, comparisons and integers have none, nor has dropout's probability.
/// Fails, with an error, where the formula has a softmax.
llvm::FailureOr<llvm::SmallVector<ReadGradient>> differentiate(TensorOp tensor, mlir::Value seed, mlir::Block &scratch,
                                                               const DerivativeFacts &facts);

} // namespace attn

#endif // ATTN_TRANSFORMS_DERIVATIVE_H

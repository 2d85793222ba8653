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

/// The reads of `tensor`'s formula of which `isActive` is true for the tensor that is read, with their gradients, where
/// `seed` is the gradient of an element of `tensor`. Their formulas are put into `scratch`, a block of the kernel, but
/// use values and index variables of `tensor`, also of its reductions: they have to be copied to where they are wanted
/// (attn::cloneSlice).
///
/// Where a maximum has two largest operands the second has the gradient, so that of max(x, 0) at 0 is 0; a rounding
/// (f16(x)) is taken for the identity; floor, round, comparisons and integers have none, nor has dropout's probability.
/// Fails, with an error, where the formula has a softmax.
llvm::FailureOr<llvm::SmallVector<ReadGradient>> differentiate(TensorOp tensor, mlir::Value seed, mlir::Block &scratch,
                                                               llvm::function_ref<bool(mlir::Value)> isActive);

} // namespace attn

#endif // ATTN_TRANSFORMS_DERIVATIVE_H

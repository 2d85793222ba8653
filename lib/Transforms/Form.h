//===- Form.h - The forms of attn.tensors that raising looks for *- C++ -*-===//

#ifndef ATTN_TRANSFORMS_FORM_H
#define ATTN_TRANSFORMS_FORM_H

#include "attn/Analysis/PairBlocks.h"
#include "attn/IR/Attn.h"
#include "llvm/ADT/DenseSet.h"

namespace attn {

/// The one-index reduction that is all of the tensor's formula, or null.
ReduceOp soleReduction(TensorOp tensor);

/// The reduction of `kind`, over any number of indices, that is all of the tensor's formula, if the tensor is stored in
/// the type it is computed in; or null.
ReduceOp wholeReduction(TensorOp tensor, ReduceKind kind);

/// The indices of `tensor` that `softmax`, in its formula, is evaluated at; none where they are not all indices of
/// their own that nothing else in the softmax uses.
llvm::SmallVector<mlir::BlockArgument> softmaxKeys(ReduceOp softmax, TensorOp tensor);

/// Whether two definitions have the same shape and the same formula. Either may be missing.
bool sameFormula(mlir::Operation *lhs, mlir::Operation *rhs);

/// Whether the tensor is a softmax as a whole: `name[…, n, …] = softmax[n](score where mask, sink = s)`, stored in the
/// type it is computed in, with a sink that does not depend on n.
bool isSoftmax(TensorOp tensor);

/// Whether the tensor is a log-sum-exp as a whole, stored in the type it is computed in.
bool isLogSumExp(TensorOp tensor);

/// The tensors of a kernel that hold weights: softmaxes, and what is computed of their elements without a reduction
/// (`kept = dropout(weight, p, seed)`). Weights that are stored with pairs are tensors like others.
llvm::DenseSet<mlir::Value> weightTensors(KernelOp kernel);

/// Whether the tensor is stored for a block of pairs at a time, or is computed with those that are.
bool isStoredWithPairs(TensorOp tensor);

/// Whether a sum over one index reads a weight there.
bool sumsWeights(ReduceOp reduce, const llvm::DenseSet<mlir::Value> &weights);

/// Whether `kernel` is one that attn-differentiate makes for gradients.
bool isBackward(KernelOp kernel);

/// The attn.tensor of the kernel with this name, or null.
TensorOp tensorNamed(KernelOp kernel, llvm::StringRef name);

/// A name that no tensor of the kernel has: `base`, or `base` with a number.
std::string freshName(KernelOp kernel, llvm::StringRef base);

/// Erases the attn.tensors that nobody reads, those among them that only such tensors read.
void eraseUnread(KernelOp kernel);

} // namespace attn

#endif // ATTN_TRANSFORMS_FORM_H

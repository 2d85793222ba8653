//===- CutSizes.h - Sizes along which a call is several calls ---*- C++ -*-===//
//
//   qw[b, m, j]     = sum[i](q[b, m, i] * w[i, j])
//   weight[b, m, n] = softmax[n](sum[j](qw[b, m, j] * k[b, n, j]))
//   out[b, m, e]    = sum[n](weight[b, m, n] * v[b, n, e])
//
// For some of the queries, or of the batch, this is the same kernel with a smaller M or B: nothing else is known of
// their indices than what is read at them. So a call that would store much between its steps may run as several, one
// after the other, and what it stores does not grow with these sizes (lib/Runtime/Cuts.c).
//
//===----------------------------------------------------------------------===//

#ifndef ATTN_ANALYSIS_CUTSIZES_H
#define ATTN_ANALYSIS_CUTSIZES_H

#include "attn/IR/Attn.h"

#include <optional>

namespace attn {

/// A size along which calls may be cut.
struct CutSize {
  mlir::StringAttr name;
  bool isOfRows; ///< Of the last two dimensions of some tensor: many at a time are computed best.
};

/// The dimension of `tensor` that is this size; none where it has no such dimension.
std::optional<unsigned> dimensionOf(mlir::StringAttr size, mlir::Value tensor);

/// Those of `kernel`, in the order of its sizes. Every output has the size as one dimension, every other tensor as one
/// or none; a formula reads such tensors at its own index there, which it uses for nothing else, and nothing else is
/// made of the size. Parts compute nothing twice: tensors that are `stored` between steps have it as well, and it is
/// not the last dimension of a sum, whose terms share much along that.
llvm::SmallVector<CutSize> findCutSizes(KernelOp kernel, llvm::ArrayRef<mlir::Value> stored);

} // namespace attn

#endif // ATTN_ANALYSIS_CUTSIZES_H

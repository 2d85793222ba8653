//===- UnreadCalls.h - Calls in which nobody reads a tensor -----*- C++ -*-===//
//
//   f[m, u] = exp(x[m, u])
//   y[m]    = sum[u](f[m, u] where M > 2)
//
// A call with at most two rows does not need f. A plan has no code for the statement then. Nor does it where f is empty:
// a tensor with a dimension N // 96, of a call with N < 96.
//
//===----------------------------------------------------------------------===//

#ifndef ATTN_ANALYSIS_UNREADCALLS_H
#define ATTN_ANALYSIS_UNREADCALLS_H

#include "attn/IR/Attn.h"

namespace attn {

/// Those in which no element of `tensor` is read: each read is of terms of a reduction on a condition, itself or a
/// statement without indices, that needs a size to be larger; or it has none, as a size is less than the constant that a
/// dimension is divided by. The calls of a size are there once.
llvm::SmallVector<SizeLimit> findUnreadCalls(mlir::Value tensor);

} // namespace attn

#endif // ATTN_ANALYSIS_UNREADCALLS_H

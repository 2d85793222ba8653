//===- UnreadCalls.h - Calls in which nobody reads a tensor -----*- C++ -*-===//
//
//   f[m, u] = exp(x[m, u])
//   y[m]    = sum[u](f[m, u] where M > 2)
//
// A call with at most two rows does not need f. A plan has no code for the statement then.
//
//===----------------------------------------------------------------------===//

#ifndef ATTN_ANALYSIS_UNREADCALLS_H
#define ATTN_ANALYSIS_UNREADCALLS_H

#include "attn/IR/Attn.h"

namespace attn {

/// Those in which no element of `tensor` is read: each read is of terms of a reduction on a condition, itself or a
/// statement without indices, that needs a size to be larger. The calls of a size are there once.
llvm::SmallVector<SizeLimit> findUnreadCalls(mlir::Value tensor);

} // namespace attn

#endif // ATTN_ANALYSIS_UNREADCALLS_H

//===- WeightedSum.h - Splits a sum over keys into two factors --*- C++ -*-===//

#ifndef ATTN_TRANSFORMS_WEIGHTEDSUM_H
#define ATTN_TRANSFORMS_WEIGHTEDSUM_H

#include "attn/IR/Attn.h"
#include "llvm/ADT/DenseSet.h"

namespace attn {

/// Replaces `tensor` by an attn.weighted_sum if it is a sum over one key index whose terms are a weight times a value.
/// `weights` are the tensors that hold weights. Other tensors stay as they are.
void raiseWeightedSum(TensorOp tensor, const llvm::DenseSet<mlir::Value> &weights);

} // namespace attn

#endif // ATTN_TRANSFORMS_WEIGHTEDSUM_H

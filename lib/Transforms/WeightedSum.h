//===- WeightedSum.h - Splits a sum over keys into two factors --*- C++ -*-===//

#ifndef ATTN_TRANSFORMS_WEIGHTEDSUM_H
#define ATTN_TRANSFORMS_WEIGHTEDSUM_H

#include "attn/IR/Attn.h"
#include "llvm/ADT/DenseSet.h"

namespace attn {

/// Replaces `tensor` by an attn.weighted_sum if it is a sum over one key index whose terms are a weight times a value.
/// `weights` are the tensors that hold weights. Other tensors stay as they are.
void raiseWeightedSum(TensorOp tensor, const llvm::DenseSet<mlir::Value> &weights);

/// Whether `tensor` is a sum of weights times values that are computed for each row, key and column, so that there is
/// no query which they do not depend on: Σ_n weight[m, n] · (1 − tanh²(x[m, u] + y[n, u])). Weights that no softmax of
/// the kernel makes (`attn.weights`) are then stored, for they would be computed once a column; others are computed by
/// rows.
bool valuesDependOnQueries(TensorOp tensor, const llvm::DenseSet<mlir::Value> &weights);

/// Whether `reduce`, in the formula of `tensor`, is a sum over one index of products, of which a factor changes with
/// that index and not with the tensor's last, and has a score in its formula: weights without a softmax.
bool sumsScores(ReduceOp reduce, TensorOp tensor, llvm::function_ref<bool(mlir::Operation *)> isScore);

} // namespace attn

#endif // ATTN_TRANSFORMS_WEIGHTEDSUM_H

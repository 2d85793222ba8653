//===- SoftmaxGradient.h - Softmaxes from their log-sum-exp -----*- C++ -*-===//
//
//   weight[b, m, n] = softmax[n](score where mask, sink = s)
//
// becomes, with the log-sum-exp that the forward kernel has saved,
//
//   weight_score[b, m, n] = score
//   weight_mask[b, m, n]  = mask
//   weight[b, m, n]       = select(weight_mask[b, m, n], exp(weight_score[b, m, n] - lse[b, m]), 0)
//
// (0 in a row whose log-sum-exp is −∞), and has the gradients
//
//   delta[b, m]    = sum[n](weight[b, m, n] * weight'[b, m, n]) - lse'[b, m]
//   score'[b, m, n] = weight[b, m, n] * (weight'[b, m, n] - delta[b, m])
//   s'[b, m]        = -exp(s[b, m] - lse[b, m]) * delta[b, m]
//
//===----------------------------------------------------------------------===//

#ifndef ATTN_TRANSFORMS_SOFTMAXGRADIENT_H
#define ATTN_TRANSFORMS_SOFTMAXGRADIENT_H

#include "Contribution.h"

namespace attn {

/// Softmaxes and log-sum-exps of the same scores.
struct SoftmaxGroup {
  std::string source;    ///< The statement that the group was found in.
  unsigned rows = 0;     ///< How many indices there are beside the keys.
  TensorOp mask;         ///< Rows, then keys. Or null.
  TensorOp sink;         ///< Of the rows. Or null.
  TensorOp score;        ///< Rows, then keys.
  TensorOp weight;       ///< Of the shape of the score.
  mlir::Value logSumExp; ///< A parameter: what the forward kernel saved.
  std::string saved;     ///< Its name.

  /// Whether it is over one index, so that sums over it are done where the weights are computed.
  bool hasPairs() { return score.getResult().getType().getRank() == rows + 1; }
};

/// Rewrites the softmaxes and log-sum-exps of `kernel` that are tensors of their own. Adds a parameter for each
/// log-sum-exp that they need; `facts` learns of masks and pairs.
llvm::SmallVector<SoftmaxGroup> rewriteSoftmaxes(KernelOp kernel, GradientFacts &facts);

/// The gradients of a group's scores and sink; the latter null where there is no sink.
struct SoftmaxGradients {
  mlir::Value score, sink;
};

/// `weight` and `logSumExp` are the gradients of these, either may be null; `dot` is sum[n](weight * weight'), or null
/// where `weight` is.
SoftmaxGradients gradientsOf(SoftmaxGroup &group, mlir::Value weight, mlir::Value logSumExp, mlir::Value dot,
                             GradientFacts &facts, mlir::OpBuilder &builder);

} // namespace attn

#endif // ATTN_TRANSFORMS_SOFTMAXGRADIENT_H

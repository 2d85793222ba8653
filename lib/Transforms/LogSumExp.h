//===- LogSumExp.h - Weights from the log-sum-exp of their row --*- C++ -*-===//
//
//   lse[m]       = logsumexp[n](score where mask)
//   weight[m, n] = select(mask, exp(score - lse[m]), 0)
//
//===----------------------------------------------------------------------===//

#ifndef ATTN_TRANSFORMS_LOGSUMEXP_H
#define ATTN_TRANSFORMS_LOGSUMEXP_H

#include "attn/IR/Attn.h"
#include "mlir/IR/Builders.h"

namespace attn {

/// Adds the statement `name`, the log-sum-exp of each row of `softmax`, at the builder's place. `softmax` is one as a
/// whole, or is a log-sum-exp itself.
TensorOp writeLogSumExp(TensorOp softmax, llvm::StringRef name, mlir::OpBuilder &builder);

/// `sum`, the log-sum-exp of a row, or ∞ where it is −∞: the weights of a row without scores are e^−∞, not e^(∞ − ∞).
mlir::Value finiteLogSumExp(mlir::Value sum, mlir::OpBuilder &builder, mlir::Location location);

/// The weight of `score` in a row with the log-sum-exp `sum`, where no mask leaves it out.
mlir::Value weightOf(mlir::Value score, mlir::Value sum, mlir::OpBuilder &builder, mlir::Location location);

} // namespace attn

#endif // ATTN_TRANSFORMS_LOGSUMEXP_H

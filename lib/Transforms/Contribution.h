//===- Contribution.h - What a statement adds to a gradient -----*- C++ -*-===//
//
// A statement y[i] = f(x[g(i, r)]), with index variables r of its reductions, gives its gradient y' to x:
//
//   x'[j] = sum[i, r](y'[i] * f'(i, r) where g(i, r) == j)
//
// Where g is a choice of index variables the condition goes away: they become j. Where it is not, as in
// k[b, h // group, n, d], the sums over the others come first, so that they are taken once for an element:
//
//   part[b, h, n, d] = sum[m](score'[b, h, m, n] * q[b, h, m, d])
//   k'[b, g, n, d]   = sum[h](part[b, h, n, d] where h // group == g)
//
//===----------------------------------------------------------------------===//

#ifndef ATTN_TRANSFORMS_CONTRIBUTION_H
#define ATTN_TRANSFORMS_CONTRIBUTION_H

#include "Derivative.h"

#include "mlir/IR/Builders.h"
#include "llvm/ADT/StringSet.h"

namespace attn {

/// What is known of the tensors of a kernel that is being differentiated.
struct GradientFacts {
  /// Tensors that are 0 where a mask, a tensor of the same shape, is false.
  llvm::DenseMap<mlir::Value, mlir::Value> masks;
  /// Tensors with an element for each query and key, whose last index is the key: they must not be stored.
  llvm::DenseSet<mlir::Value> pairs;
  /// The names of the kernel's own statements, which the forward kernel has.
  llvm::StringSet<> statements;
};

/// Adds at the builder's place what computes the contribution of `read`, which is in a statement, to the gradient of
/// the tensor it reads, and what is known of that. The result has that tensor's shape, elements of its compute type,
/// and a name made from `name`.
mlir::Value contribution(KernelOp kernel, ReadGradient read, llvm::StringRef name, GradientFacts &facts,
                         mlir::OpBuilder &builder);

} // namespace attn

#endif // ATTN_TRANSFORMS_CONTRIBUTION_H

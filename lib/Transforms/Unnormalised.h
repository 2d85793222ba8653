//===- Unnormalised.h - Weights without a softmax ---------------*- C++ -*-===//
//
// Attention may weigh values by any function of a query and a key:
//
//   weight[m, n] = relu(sum[d](q[m, d] * k[n, d]))
//   out[m, e]    = sum[n](weight[m, n] * v[n, e] where n <= m)
//
//===----------------------------------------------------------------------===//

#ifndef ATTN_TRANSFORMS_UNNORMALISED_H
#define ATTN_TRANSFORMS_UNNORMALISED_H

#include "attn/IR/Attn.h"

namespace attn {

/// Whether `user`, which reads a tensor, is in a sum over this dimension of that and over none of the others.
bool sumsOver(unsigned dimension, mlir::Operation *user);

/// Whether it is in one over the last of several dimensions.
bool sumsOverKeys(mlir::Operation *user);

/// Whether a sum over its last index, and over none of the others, reads `tensor`.
bool holdsWeights(TensorOp tensor);

/// Makes the sums inside of weights, and of functions of layers, tensors of their own, which they and their derivatives
/// have in common:
///
///   weight_dot[m, n] = sum[d](q[m, d] * k[n, d])
///   weight[m, n]     = relu(weight_dot[m, n])
///
/// (Scores of a softmax are tensors of their own.)
void outlineDots(KernelOp kernel);

/// Whether sums over its keys and sums over its rows read `tensor`, and it, their terms or their conditions are more
/// than sums of products: so are weights, or their gradients. (The gradient of a projection is read so, too.)
bool isSummedBothWays(TensorOp tensor);

} // namespace attn

#endif // ATTN_TRANSFORMS_UNNORMALISED_H

//===- Pattern.h - Kernels that are one attention ---------------*- C++ -*-===//
//
//   score[…, m, n]  = formula of dot = sum[d](query[…, m, d] * key[…, n, d]), indices and tensors
//   weight[…, m, n] = softmax[n](score[…, m, n] where mask, sink = …)
//   out[…, m, e]    = sum[n](formula proportional to weight[…, m, n] * value[…, n, e] where condition)
//
// with f16 or bf16 queries, keys and values, and nothing else but the log-sum-exp returned.
//
//===----------------------------------------------------------------------===//

#ifndef ATTN_LIB_CUDA_PATTERN_H
#define ATTN_LIB_CUDA_PATTERN_H

#include "attn/Analysis/SharedKeys.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/Support/Error.h"

#include <optional>

namespace attn::cuda {

struct Attention {
  KernelOp kernel;
  WeightedSumOp sum;
  SoftmaxOp softmax;
  ReadOp weight;                    ///< Of the softmax's weight, in the sum.
  llvm::SmallVector<ReduceOp> dots; ///< The dot product; the score and its mask may have one each, which are the same.
  ReadOp query, key, value;
  unsigned output;                   ///< Of the kernel: the sum.
  std::optional<unsigned> logSumExp; ///< Of the kernel, if it is one.

  /// What each index variable of the formulas is: one of the sum's.
  llvm::DenseMap<mlir::Value, mlir::BlockArgument> indices;
  /// The last index but the query's whose queries share keys and the range of keys, if there is one.
  std::optional<SharedKeys> sharing;

  /// Null where there is one query, as in a step of decoding.
  mlir::BlockArgument queryIndex();
  mlir::BlockArgument keyIndex();
  mlir::BlockArgument columnIndex();
  SizeAttr querySize();
  /// The sizes of the dot product and of the values' rows.
  SizeAttr dotSize();
  SizeAttr valueSize();
  /// Whether a formula depends on an index of the sum; on none that is null.
  bool dependsOn(mlir::Value value, mlir::BlockArgument own);
  /// Whether `value` is the number of a group: `index // G` of those that share keys.
  bool isGroup(mlir::Value value);
  /// Whether `own` changes from row to row of a tile: the query, and the index of those that share keys.
  bool isOfRow(mlir::BlockArgument own);
  /// Whether the score or its mask reads a tensor, besides those of the product, at the query or the key.
  bool readsAtPairs();
  /// The formula of the score, the mask or the sink. Null where there is none.
  mlir::Value score();
  mlir::Value mask();
  mlir::Value sink();
};

/// Fails with what is not supported where `kernel` is something else.
llvm::Expected<Attention> recognise(KernelOp kernel);

} // namespace attn::cuda

#endif // ATTN_LIB_CUDA_PATTERN_H

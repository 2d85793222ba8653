//===- Pattern.h - Attention among a kernel's statements --------*- C++ -*-===//
//
//   score[…, m, n]  = formula of dot = sum[d](query[…, m, d] * key[…, n, d]), indices and tensors
//   weight[…, m, n] = softmax[n](score[…, m, n] where mask, sink = …)
//   out[…, m, e]    = sum[n](formula proportional to weight[…, m, n] * value[…, n, e] where condition)
//
// with f16 or bf16 queries, keys and values. What it reads may be parameters or what other statements compute.
//
//===----------------------------------------------------------------------===//

#ifndef ATTN_LIB_CUDA_PATTERN_H
#define ATTN_LIB_CUDA_PATTERN_H

#include "attn/Analysis/SharedKeys.h"
#include "attn/Plan/TensorCorePlan.h"

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
  /// What it reads: parameters in their order, then what other statements compute.
  llvm::SmallVector<mlir::Value> inputs;

  /// What each index variable of the formulas is: one of the sum's.
  llvm::DenseMap<mlir::Value, mlir::BlockArgument> indices;
  /// The last index but the query's whose queries share keys and the range of keys, if there is one.
  std::optional<SharedKeys> sharing;

  /// What it reads, the sum, and the log-sum-exp.
  llvm::SmallVector<mlir::Value> tensors();
  /// The log-sum-exp, if something uses it.
  mlir::Value logSumExp();
  /// The type of the elements of a tensor in memory: that of the output, where it is nothing else.
  mlir::Type elementOf(mlir::Value tensor);
  /// Whether a launch is given the value of `tensor`, rather than where it is: a parameter of rank 0.
  static bool isValue(mlir::Value tensor);

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
  /// What is made of the product beside the weighted sum.
  ElementFormulas formulas();
  /// The formula of the score, the mask or the sink. Null where there is none.
  mlir::Value score();
  mlir::Value mask();
  mlir::Value sink();

private:
  /// Whether a formula depends on the query or the key.
  bool changesAtPairs(mlir::Value value);
  /// Whether the score or its mask reads a tensor, besides those of the product, at the query or the key.
  bool readsAtPairs();
  /// Whether the score is the product, with factors that no query and no key changes.
  bool isScaledProduct();
};

/// The first attention of `kernel`. Fails with what is not supported of the first weighted sum where there is none.
llvm::Expected<Attention> recognise(KernelOp kernel);

} // namespace attn::cuda

#endif // ATTN_LIB_CUDA_PATTERN_H

//===- KeyTensors.h - Tensors that scores read by rows ----------*- C++ -*-===//
//
//   turned_q[m, d] = q[m, d] * cosine[m, d % (D // 2)] + …
//   turned_k[n, d] = k[n, d] * cosine[n, d % (D // 2)] + …
//   score[m, n]    = sum[d](turned_q[m, d] * turned_k[n, d])
//
// Scores may find the rows that they take of such tensors made for them, in a cache: those of queries once, where they
// are packed; those of keys where few rows read a key together. That costs no more than making them before, and memory
// has nothing to write and to read again.
//
//===----------------------------------------------------------------------===//

#ifndef ATTN_ANALYSIS_KEYTENSORS_H
#define ATTN_ANALYSIS_KEYTENSORS_H

#include "attn/IR/Attn.h"

namespace attn {

/// The tensors that are read by nothing but terms of the scores of `sum`, which is fusible (Fusion.h), along the last
/// index of a term, and one row of them at a key: T[…, n, …, d], by reductions whose lanes run along `d`. Their
/// formulas have no reductions, and nothing but `sum` needs the scores, or a later step their log-sum-exp.
llvm::SmallVector<TensorOp> keyTensors(WeightedSumOp sum);

/// The same of tensors that are read one row at a query: T[…, m, …, d], at nothing that a key changes. Where another
/// index of the sum makes no difference to them, so that rows would be made again for each of its values, their
/// formulas call no functions.
llvm::SmallVector<TensorOp> queryTensors(WeightedSumOp sum);

} // namespace attn

#endif // ATTN_ANALYSIS_KEYTENSORS_H

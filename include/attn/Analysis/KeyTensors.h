//===- KeyTensors.h - Tensors that scores read once a key -------*- C++ -*-===//
//
//   turned[n, d] = k[n, d] * cosine[n, d % (D // 2)] + …
//   score[m, n]  = sum[d](q[m, d] * turned[n, d])
//
// Rows that read a key together may find what it takes of `turned` made for them, in a cache: for few rows that costs
// no more than making it for all keys first, and memory has nothing to write and to read again.
//
//===----------------------------------------------------------------------===//

#ifndef ATTN_ANALYSIS_KEYTENSORS_H
#define ATTN_ANALYSIS_KEYTENSORS_H

#include "attn/IR/Attn.h"

namespace attn {

/// The tensors that are read by nothing but terms of the scores of `sum`, which is fusible (Fusion.h), along the last
/// index of a term, and one row of them at a key: T[…, n, …, d], by reductions whose lanes run along `d`. Their
/// formulas have no reductions, and nothing but `sum` needs the scores.
llvm::SmallVector<TensorOp> keyTensors(WeightedSumOp sum);

} // namespace attn

#endif // ATTN_ANALYSIS_KEYTENSORS_H

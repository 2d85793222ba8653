//===- Fusion.h - Which weighted sums are computed with their softmax -*- C++ -*-===//
//
// A weighted sum can be computed chunk by chunk of keys, together with the softmax that gives its weights, if each
// chunk's share of it is known up to a factor: the weight is one softmax's weight times other factors, or has no
// softmax at all. Nothing of the size of queries × keys is stored then.
//
//===----------------------------------------------------------------------===//

#ifndef ATTN_ANALYSIS_FUSION_H
#define ATTN_ANALYSIS_FUSION_H

#include "attn/IR/Attn.h"
#include "llvm/ADT/SetVector.h"

namespace attn {

/// All reads of softmax results that `value` is made of.
llvm::SetVector<ReadOp> softmaxReads(mlir::Value value);

/// The read of a softmax's weight in the weight of `sum`, if that is proportional to it and reads no other; and the
/// softmax whose weight it reads. Null where there is none.
ReadOp softmaxWeight(WeightedSumOp sum);
SoftmaxOp softmaxOf(WeightedSumOp sum);

/// That read, if it is of one softmax for all terms: the sum may be divided by its total, instead of each weight.
ReadOp weightOfOneSoftmax(WeightedSumOp sum);

/// The log-sum-exp of that softmax, if it can be stored with the sum, whose state has it: its rows are the sum's, in
/// any order, and all that needs it comes after the sum. Null otherwise, and where nobody needs it.
mlir::Value logSumExpBeside(WeightedSumOp sum);

/// Whether the weights of `sum` are those of a softmax as they are: no other factor, no condition.
bool hasPlainWeights(WeightedSumOp sum);

/// Whether `sum` can be computed chunk by chunk: the above, its weight is read at index variables, the key last, and
/// the formulas have no reductions within reductions.
bool isFusible(WeightedSumOp sum);

/// Whether the value of `sum` changes with its query, through rows of tables that the distance of query and key
/// chooses.
bool hasValuesOfPairs(WeightedSumOp sum);

/// Whether it can be, for many queries at a time: it has a query index, which its softmax has as well.
bool isTileable(WeightedSumOp sum);

} // namespace attn

#endif // ATTN_ANALYSIS_FUSION_H

//===- InlineRules.h - What may be inlined, and what it costs ---*- C++ -*-===//

#ifndef ATTN_TRANSFORMS_INLINERULES_H
#define ATTN_TRANSFORMS_INLINERULES_H

#include "Root.h"

#include "llvm/ADT/DenseSet.h"

namespace attn {

/// The tensor that `read` reads, if it may be inlined there: it is defined by a formula, not rounded when it is stored,
/// not an output that is better read, no total that runs along an index, and no subscript is clamped.
TensorOp inlinable(ReadOp read, const llvm::DenseSet<mlir::Value> &roots);

/// Whether computing an element costs no more than reading it: arithmetic on what is there.
bool isCheap(TensorOp tensor);

/// Whether the formula contains a reduction.
bool hasReduction(TensorOp tensor);

/// Whether the formula is more than sums and products of reductions: then no reassociation of matrix products does
/// better than computing it where it is used.
bool isNonlinear(TensorOp tensor);

/// Whether a factor of the terms of `sum` that `column` does not change is more than a sum of what it reads of `tensor`
/// and others, or several factors read it: weights that are a function of scores.
bool isFunctionIn(ReduceOp sum, TensorOp tensor, mlir::BlockArgument column);

/// Whether `read`, in the formula of `tensor` and no reduction, reads another element for each that it computes: then
/// storing them takes no more memory than what is read.
bool readsEachElement(ReadOp read, TensorOp tensor);

/// Whether `source`, which `read` reads in the formula of `tensor`, may become a part of that: nobody else reads it,
/// and `read` another element for each of its own. Then nothing is computed twice.
bool isPartOf(TensorOp source, ReadOp read, TensorOp tensor);

/// Whether `read` is in a sum's terms, of numbers that are found by dividing their last index: lanes along it lie
/// apart, for every pair again. Storing them takes no more memory than what is stored already.
bool divides(ReadOp read, TensorOp tensor);

/// Whether `tensor` is a layer, or a function of one: each of its sums multiplies rows by weights, which lack its first
/// index, of three at least, and another. Keys lack a query, and a head where several share them.
bool isOfLayers(TensorOp tensor);

/// Whether `tensor`, at `read` in the formula of `root`, is a linear layer of pairs that are there: each number is a
/// sum of one query's and key's, times what neither changes. Storing it takes about the memory that those take, and a
/// matrix product computes it for all heads in one look at them. Without a `query`, whether it may be for one of the
/// rows.
bool isLayerOfPairs(Root &root, mlir::BlockArgument query, ReadOp read, TensorOp tensor);

/// Whether one of the two sums terms that have places, which it does only as the sole sum of a statement that is stored
/// as a whole: a block of rows of pairs (attn/Analysis/PairBlocks.h) has not all places.
bool endsPlacedSum(TensorOp source, TensorOp tensor);

} // namespace attn

#endif // ATTN_TRANSFORMS_INLINERULES_H

//===- RowFactors.h - What a product's columns have in common -*- C++ -*-===//

#ifndef ATTN_TRANSFORMS_ROWFACTORS_H
#define ATTN_TRANSFORMS_ROWFACTORS_H

#include "attn/IR/Attn.h"
#include "llvm/ADT/DenseSet.h"

namespace attn {

/// Whether `sum` multiplies what changes with the last index of `tensor`, but not with some row, by what does with
/// that.
bool isMatrixProduct(ReduceOp sum, TensorOp tensor);

/// Makes a tensor of the factors of each matrix product in `tensor` that its columns have in common, if they are more
/// than an element, and something as large is there already, as an input or as a tensor that is stored as a whole; but
/// for scores that are `compared` with each other, nothing need be as large as those. A tensor that nobody else reads
/// becomes part of it.
void hoistRowFactors(TensorOp tensor, const llvm::DenseSet<mlir::Value> &compared);

} // namespace attn

#endif // ATTN_TRANSFORMS_ROWFACTORS_H

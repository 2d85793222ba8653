//===- PairTensors.h - Tensors with an element for each pair ----*- C++ -*-===//
//
// What attn-store-pairs knows of the pairs of one attention while it rewrites them: StorePairs.cpp chooses those that
// are stored, PairSums.cpp rewrites the sums that read them.
//
//===----------------------------------------------------------------------===//

#ifndef ATTN_TRANSFORMS_PAIRTENSORS_H
#define ATTN_TRANSFORMS_PAIRTENSORS_H

#include "Product.h"
#include "attn/IR/Attn.h"
#include "llvm/ADT/DenseSet.h"

namespace attn {

/// The pairs of one attention: tensors of one shape, whose last index is the key.
class PairTensors {
public:
  explicit PairTensors(TensorOp weights) : weights(weights) { collect(); }

  /// Marks those that are to be stored, and rewrites what reads them.
  void store();

private:
  // Which there are (StorePairs.cpp).
  void collect();
  bool contains(mlir::Value tensor) const { return tensors.contains(tensor); }
  bool readsPairs(mlir::Operation *op);
  bool readsBlocks(TensorOp tensor);
  llvm::SmallVector<TensorOp> sums();
  llvm::SmallVector<TensorOp> storedTensors();
  void findStored();
  void swallow(TensorOp statement);

  // What reads them (PairSums.cpp).
  llvm::SmallVector<mlir::Value> pairOf(ReduceOp reduce);
  void normalise(TensorOp sum);
  mlir::Value pairFactor(llvm::ArrayRef<Factor> factors, llvm::ArrayRef<mlir::Value> pair, ReduceOp reduce,
                         TensorOp sum);
  llvm::SmallVector<mlir::Value> masksOf(TensorOp tensor);
  void mask(TensorOp tensor);
  void dropChoice(TensorOp tensor);
  void dropConditions(TensorOp sum);

  TensorOp weights;
  llvm::DenseSet<mlir::Value> tensors;
  llvm::DenseSet<mlir::Value> stored;
};

/// The statement that defines `tensor`, or null.
inline TensorOp definitionOf(mlir::Value tensor) { return tensor.getDefiningOp<TensorOp>(); }

/// The formula of `tensor`.
inline mlir::Value formulaOf(TensorOp tensor) { return tensor.getBody().front().getTerminator()->getOperand(0); }

/// The sum that is all of the formula, over any number of indices; or null.
ReduceOp wholeSum(TensorOp tensor);

} // namespace attn

#endif // ATTN_TRANSFORMS_PAIRTENSORS_H

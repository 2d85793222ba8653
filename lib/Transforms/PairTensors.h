//===- PairTensors.h - Tensors with an element for each pair ----*- C++ -*-===//
//
// What attn-store-pairs knows of the pairs of one attention while it rewrites them: StorePairs.cpp chooses those that
// are stored, EarlySums.cpp which sums come before the blocks, PairSums.cpp and PairTables.cpp rewrite the sums that
// read them, PairMasks.cpp knows where they are 0, PairConditions.cpp makes masks of conditions.
//
//===----------------------------------------------------------------------===//

#ifndef ATTN_TRANSFORMS_PAIRTENSORS_H
#define ATTN_TRANSFORMS_PAIRTENSORS_H

#include "Product.h"
#include "attn/Analysis/ComparedTensors.h"
#include "attn/Analysis/PlacedSum.h"
#include "attn/IR/Attn.h"
#include "llvm/ADT/DenseSet.h"

namespace attn {

/// The pairs of one attention: tensors of one shape, whose last index is the key. Totals that run along it (Scan.h) are
/// among them, and are always stored.
class PairTensors {
public:
  /// `weights` is one of them, from which the others are found.
  explicit PairTensors(TensorOp weights)
      : weights(weights), compared(comparedTensors(weights->getParentOfType<KernelOp>())) {
    collect();
  }

  /// Marks those that are to be stored, and rewrites what reads them. Sums that pairs are made of come before the
  /// blocks where `early`.
  void store(bool early);

private:
  // Which there are (StorePairs.cpp).
  void collect();
  bool contains(mlir::Value tensor) const { return tensors.contains(tensor); }
  bool haveScores();
  bool readsPairs(mlir::Operation *op);
  bool readsBlocks(TensorOp tensor);
  llvm::SmallVector<TensorOp> sums();
  llvm::SmallVector<TensorOp> storedTensors();
  void findStored();
  void swallow(TensorOp statement);

  // Which sums are no part of the blocks (EarlySums.cpp).
  llvm::SmallVector<ReduceOp> earlySums();
  void computeEarly(ReduceOp sum);
  void computeEarlySums();

  // What reads them (PairSums.cpp, PairTables.cpp).
  bool placesRows(const PlacedSum &placed, ReadOp read, TensorOp part);
  void joinPlaced(TensorOp statement);
  void multiplyPlaced(TensorOp statement);
  llvm::SmallVector<mlir::Value> pairOf(ReduceOp reduce);
  void normalise(TensorOp sum);
  mlir::Value pairFactor(llvm::ArrayRef<Factor> factors, llvm::ArrayRef<mlir::Value> pair, ReduceOp reduce,
                         TensorOp sum);

  // Where they are 0 (PairMasks.cpp, PairConditions.cpp).
  llvm::SmallVector<mlir::Value> masksOf(TensorOp tensor);
  void mask(TensorOp tensor);
  ReadOp multiplied(TensorOp tensor);
  ReadOp copied(TensorOp tensor);
  void dropChoice(TensorOp tensor);
  void dropConditions(TensorOp sum);
  mlir::Value maskOfCondition(mlir::Value condition, llvm::ArrayRef<mlir::Value> indices);
  void nameCondition(TensorOp sum);
  void nameScanConditions(TensorOp tensor);
  void nameChoices(TensorOp tensor);
  void liftCondition(TensorOp tensor);
  llvm::SmallVector<mlir::Value> masksAround(ReadOp read, TensorOp reader);
  void maskAsRead(TensorOp tensor);
  void maskByConditions();
  void dropInnerChoices(TensorOp tensor);

  TensorOp weights;
  llvm::DenseSet<mlir::Value> tensors;
  llvm::DenseSet<mlir::Value> stored;
  llvm::DenseSet<mlir::Value> compared;       ///< Are stored as a whole, and so none of them.
  llvm::SmallVector<TensorOp> conditionMasks; ///< That were conditions.
};

/// The statement that defines `tensor`, or null.
inline TensorOp definitionOf(mlir::Value tensor) { return tensor.getDefiningOp<TensorOp>(); }

/// Makes `tensor` 0 where one of `masks` is false, unless it is a scan: those go on there.
void applyMasks(TensorOp tensor, llvm::ArrayRef<mlir::Value> masks);

/// The same, beside the masks that it has already.
void narrowMasks(TensorOp tensor, llvm::ArrayRef<mlir::Value> masks);

/// Whether `inWhere`, in the condition of `sum`, has the subscripts that `read` has in its terms.
bool readsSamePair(ReadOp inWhere, ReadOp read, ReduceOp sum);

/// Whether `value` is an element of a tensor.
bool isRead(mlir::Value value);

/// The sum that is all of the formula, over any number of indices; or null.
ReduceOp wholeSum(TensorOp tensor);

/// The sum that the formula is, maybe times factors without a reduction; or null.
ReduceOp sumIn(TensorOp tensor);

} // namespace attn

#endif // ATTN_TRANSFORMS_PAIRTENSORS_H

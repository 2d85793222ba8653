//===- Scores.h - Formulas that are computed for every pair -----*- C++ -*-===//
//
// What the rewrites of scores have in common: where the formulas are, which of their index variables is the key,
// and how a part of a formula becomes a tensor of its own.
//
//===----------------------------------------------------------------------===//

#ifndef ATTN_TRANSFORMS_SCORES_H
#define ATTN_TRANSFORMS_SCORES_H

#include "attn/Analysis/Dependence.h"
#include "attn/IR/Attn.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/StringRef.h"

namespace attn {

/// A formula that is computed for every query and key: a score, or the weight of an attn.weighted_sum.
struct PairFormula {
  mlir::Operation *op;
  mlir::Block *block;
  mlir::BlockArgument key;

  /// The formula's value; it is replaced by `setValue`.
  mlir::Value value() const { return block->getTerminator()->getOperand(0); }
  void setValue(mlir::Value value) const { block->getTerminator()->setOperand(0, value); }
  bool dependsOnKey(mlir::Value value) const { return dependence(value).contains(key); }
};

/// The scores of `kernel`, and the weights of its weighted sums.
llvm::SmallVector<PairFormula> pairFormulas(KernelOp kernel);

/// The rows of a formula that its keys do not depend on: the indices that tell queries apart.
IndexSet queryIndices(const PairFormula &formula);

/// Makes a tensor `name` (or `name` with a number) before `op`, the graph op whose formula has `value`, with one
/// dimension for each index variable that `value` depends on, `innermost` (if given) the last. Returns an element of
/// it, read at `builder`'s place.
mlir::Value hoist(mlir::Value value, mlir::Operation *op, llvm::StringRef name, mlir::OpBuilder &builder,
                  mlir::BlockArgument innermost = {});

/// Makes a tensor of `reduce`, in the formula of `tensor`, named after that with `suffix`, and reads it from there.
TensorOp splitOff(ReduceOp reduce, TensorOp tensor, const llvm::Twine &suffix);

/// Makes a sum over the indices of `reduce`. `term` makes what is summed, at the place it is given; the mapping says
/// what the index variables of `reduce` are there. If `condition`, which depends on no index of the sum, is given and
/// false, the sum is 0 and nothing of it is computed.
mlir::Value sumLike(ReduceOp reduce, mlir::Value condition, mlir::OpBuilder &builder,
                    llvm::function_ref<mlir::Value(mlir::OpBuilder &, mlir::IRMapping &)> term);

/// Makes two sums of `reduce`, one for each operand of `both`: a sum or difference that is a factor of its terms, and
/// used nowhere else.
void distribute(ReduceOp reduce, mlir::Operation *both);

/// not `condition`
mlir::Value negate(mlir::Value condition, mlir::OpBuilder &builder);

/// The number `value` of a float type.
mlir::Value floatConstant(double value, mlir::Type type, mlir::OpBuilder &builder, mlir::Location location);

/// The y where `op` computes 1 / (1 + exp(y)), which is the logistic function of −y; else null.
mlir::Value logisticOperand(mlir::Operation *op);

/// Erases what nobody in `block` uses, so that the values that remain have their real number of uses.
void eraseUnused(mlir::Block &block);

/// A tensor before `tensor` that has the same formula and type, if maybe another name; or null.
TensorOp earlierCopy(TensorOp tensor);

} // namespace attn

#endif // ATTN_TRANSFORMS_SCORES_H

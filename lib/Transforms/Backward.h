//===- Backward.h - From a kernel to its gradients --------------*- C++ -*-===//
//
// From the last statement to the first: the gradient of a tensor is the sum of what the statements that read it
// contribute (Contribution.h). Weights are computed again from the scores and their saved log-sum-exp
// (SoftmaxGradient.h); what else the gradients read is computed again, too.
//
//===----------------------------------------------------------------------===//

#ifndef ATTN_TRANSFORMS_BACKWARD_H
#define ATTN_TRANSFORMS_BACKWARD_H

#include "Derivative.h"
#include "SoftmaxGradient.h"

#include <string>

namespace attn {

/// Whether a tensor can have a gradient: whether it holds floats.
bool hasGradient(mlir::Value tensor);

/// Something that is added to a gradient.
struct Part {
  mlir::Value tensor;
  TensorOp reader; ///< The statement that it comes from; null for the gradient of an output.
};

/// A kernel's copy that becomes its backward kernel.
class Backward {
public:
  Backward(KernelOp kernel, llvm::ArrayRef<llvm::StringRef> inputs);

  llvm::LogicalResult run();

  llvm::SmallVector<SoftmaxGroup> groups;   ///< Whose log-sum-exp the forward kernel has to save.
  llvm::SmallVector<std::string> savedSums; ///< Statements that it has to return.

private:
  std::string nameOf(mlir::Value tensor);
  void outlineExtremes();
  /// Whether its score or its sink is.
  bool isActive(SoftmaxGroup &group);
  void findActive();
  void markPairs(TensorOp tensor);
  void addOutputGradients();
  void differentiate(SoftmaxGroup &group);
  llvm::LogicalResult differentiate(TensorOp tensor);
  mlir::Value gradientOf(mlir::Value tensor);
  mlir::Value readWide(mlir::OpBuilder &builder, mlir::Value tensor, mlir::ValueRange subscripts);
  mlir::Value dotWithGradient(TensorOp tensor, llvm::ArrayRef<unsigned> rows);
  mlir::Value dot(mlir::Value element, mlir::Value gradient, TensorOp owner, llvm::ArrayRef<unsigned> rows);
  mlir::Value saved(TensorOp tensor);
  void returnGradients();

  KernelOp kernel;
  mlir::OpBuilder builder;
  llvm::SmallVector<llvm::StringRef> inputs;
  mlir::FloatType computeType;
  GradientFacts facts;
  llvm::DenseSet<mlir::Value> active;                         ///< What depends on an input.
  llvm::DenseMap<mlir::Value, llvm::SmallVector<Part>> parts; ///< Of the gradient of a tensor.
  llvm::DenseMap<mlir::Value, mlir::Value> gradients;         ///< Their sums.
  llvm::DenseMap<mlir::Value, mlir::Value> savedTensors;      ///< The parameters that they have become.
  llvm::DenseMap<mlir::Operation *, Extreme> extremes;        ///< Maxima and minima.
  llvm::SmallVector<std::string> outputNames;                 ///< Of the kernel that is differentiated.
  llvm::SmallVector<std::string> names;                       ///< Of the parameters.
  unsigned firstGradient = 0; ///< The position of the first output's gradient among them.
};

} // namespace attn

#endif // ATTN_TRANSFORMS_BACKWARD_H

//===- ComparedTensors.cpp - Numbers that must be computed once -----------===//

#include "attn/Analysis/ComparedTensors.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace attn;

using Tensors = llvm::SmallSetVector<Value, 4>;

/// Adds to `tensors` those that `value` is an element of, or the opposite of one.
static void addSelected(Value value, Tensors &tensors) {
  Operation *op = value.getDefiningOp();
  if (auto read = dyn_cast_or_null<ReadOp>(op)) {
    auto tensor = read.getTensor().getDefiningOp<TensorOp>();
    if (tensor && tensors.insert(tensor.getResult()))
      addSelected(yielded(tensor.getBody()), tensors);
  } else if (auto reduce = dyn_cast_or_null<ReduceOp>(op)) {
    if (reduce.getKind() == ReduceKind::Max || reduce.getKind() == ReduceKind::Min)
      addSelected(yielded(reduce.getBody()), tensors);
  } else if (auto choice = dyn_cast_or_null<arith::SelectOp>(op)) {
    addSelected(choice.getTrueValue(), tensors);
    addSelected(choice.getFalseValue(), tensors);
  } else if (isa_and_nonnull<arith::MaximumFOp, arith::MinimumFOp, arith::NegFOp>(op)) {
    for (Value operand : op->getOperands())
      addSelected(operand, tensors);
  }
}

llvm::DenseSet<Value> attn::comparedTensors(KernelOp kernel) {
  llvm::DenseSet<Value> compared;
  kernel.walk([&](arith::CmpFOp comparison) {
    Tensors lhs, rhs;
    addSelected(comparison.getLhs(), lhs);
    addSelected(comparison.getRhs(), rhs);
    Tensors both, beneath; // beneath: what others of both are elements of
    for (Value tensor : lhs)
      if (rhs.contains(tensor))
        both.insert(tensor);
    for (Value tensor : both)
      addSelected(yielded(bodyOf(tensor)), beneath);
    for (Value tensor : both)
      if (!beneath.contains(tensor))
        compared.insert(tensor);
  });
  return compared;
}

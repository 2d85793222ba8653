//===- Work.cpp - How much a statement computes, at most ------------------===//

#include "attn/Analysis/Work.h"
#include "attn/Analysis/Dependence.h"

#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace attn;

/// Of a function that is computed by a polynomial.
static constexpr int64_t callOperations = 30;

/// The operations in the regions of `op`, which is computed `times` times.
static SizePolynomial operationsWithin(Operation *op, const SizePolynomial &times) {
  SizePolynomial total;
  for (Region &region : op->getRegions())
    for (Block &block : region) {
      SizePolynomial each = times;
      for (BlockArgument index : block.getArguments())
        each = each * indexSize(index);
      for (Operation &inner : block) {
        total += each * (isFunction(&inner) ? callOperations : 1);
        total += operationsWithin(&inner, each);
      }
    }
  return total;
}

SizePolynomial attn::workOf(Operation *statement, llvm::function_ref<bool(Value)> isStored) {
  llvm::SetVector<Operation *> computed;
  computed.insert(statement);
  auto add = [&](Value tensor) {
    if (Operation *producer = tensor.getDefiningOp(); producer && !isStored(tensor))
      computed.insert(producer);
  };
  SizePolynomial total;
  for (unsigned position = 0; position < computed.size(); ++position) {
    Operation *op = computed[position];
    if (auto softmax = dyn_cast<SoftmaxOp>(op)) {
      SizePolynomial scores = callOperations;
      for (SizeAttr size : cast<AttnTensorType>(softmax.getScore().getType()).getShape())
        scores = scores * size;
      total += scores;
    }
    total += operationsWithin(op, 1);
    for (Value operand : op->getOperands())
      add(operand);
    op->walk([&](ReadOp read) { add(read.getTensor()); });
  }
  return total;
}

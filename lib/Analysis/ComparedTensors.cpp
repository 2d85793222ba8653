//===- ComparedTensors.cpp - Numbers that must be computed once -----------===//

#include "attn/Analysis/ComparedTensors.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace attn;

using Reads = llvm::SmallSetVector<Operation *, 4>;

static Value tensorReadBy(Operation *read) { return cast<ReadOp>(read).getTensor(); }

/// Adds to `reads` those whose elements `value` is one of, or made of by arithmetic that may leave it as it is: the
/// greatest score less a margin, which may be 0, or times a number.
static void addSelected(Value value, Reads &reads) {
  Operation *op = value.getDefiningOp();
  if (auto read = dyn_cast_or_null<ReadOp>(op)) {
    auto tensor = read.getTensor().getDefiningOp<TensorOp>();
    if (tensor && reads.insert(op))
      addSelected(yielded(tensor.getBody()), reads);
  } else if (auto reduce = dyn_cast_or_null<ReduceOp>(op)) {
    if (isExtreme(reduce.getKind()))
      addSelected(yielded(reduce.getBody()), reads);
  } else if (auto choice = dyn_cast_or_null<arith::SelectOp>(op)) {
    addSelected(choice.getTrueValue(), reads);
    addSelected(choice.getFalseValue(), reads);
  } else if (isa_and_nonnull<arith::MaximumFOp, arith::MinimumFOp, arith::NegFOp, arith::AddFOp, arith::SubFOp,
                             arith::MulFOp, arith::DivFOp>(op)) {
    for (Value operand : op->getOperands())
      addSelected(operand, reads);
  }
}

/// Whether the elements of `tensor` are maxima or minima.
static bool holdsExtremes(Value tensor) {
  auto definition = tensor.getDefiningOp<TensorOp>();
  auto reduce = definition ? yielded(definition.getBody()).getDefiningOp<ReduceOp>() : ReduceOp();
  return reduce && isExtreme(reduce.getKind());
}

/// Whether two reads in a formula are of one element, which the formula computes once where it is not stored.
static bool isSameElement(Operation *a, Operation *b) {
  return a->getParentOfType<TensorOp>() == b->getParentOfType<TensorOp>() &&
         llvm::equal(cast<ReadOp>(a).getSubscripts(), cast<ReadOp>(b).getSubscripts());
}

llvm::DenseSet<Value> attn::comparedTensors(KernelOp kernel) {
  llvm::DenseSet<Value> compared;
  kernel.walk([&](arith::CmpFOp comparison) {
    Reads lhs, rhs;
    addSelected(comparison.getLhs(), lhs);
    addSelected(comparison.getRhs(), rhs);
    llvm::SmallSetVector<Value, 4> both;
    for (Operation *a : lhs)
      for (Operation *b : rhs)
        if (tensorReadBy(a) == tensorReadBy(b) && !isSameElement(a, b))
          both.insert(tensorReadBy(a));
    Reads beneath; // what those of both are elements of
    for (Value tensor : both)
      addSelected(yielded(bodyOf(tensor)), beneath);
    for (Value tensor : both)
      if (llvm::none_of(beneath, [&](Operation *read) { return tensorReadBy(read) == tensor; }))
        compared.insert(tensor);
    // Nor is the greatest of a row found again for each number that it is compared with.
    if (!both.empty())
      for (Value side : comparison->getOperands())
        if (auto read = side.getDefiningOp<ReadOp>(); read && holdsExtremes(read.getTensor()))
          compared.insert(read.getTensor());
  });
  return compared;
}

//===- InlineRules.cpp - What may be inlined, and what it costs ----------===//

#include "InlineRules.h"
#include "Form.h"
#include "Product.h"
#include "attn/Analysis/Cost.h"
#include "attn/Analysis/Dependence.h"
#include "attn/Analysis/PlacedSum.h"
#include "attn/Analysis/Scan.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace attn;

/// Whether the tensor is an output, and each of its elements a reduction over function calls (additive attention's
/// energy): reading it takes the memory that is there anyway, and computing it twice would be dear.
static bool isDearOutput(TensorOp tensor) {
  if (!isReturned(tensor.getResult()))
    return false;
  return tensor.getBody()
      .walk([](Operation *op) {
        bool dear = op->getParentOfType<ReduceOp>() && isFunction(op);
        return dear ? WalkResult::interrupt() : WalkResult::advance();
      })
      .wasInterrupted();
}

TensorOp attn::inlinable(ReadOp read, const llvm::DenseSet<Value> &roots) {
  auto tensor = read.getTensor().getDefiningOp<TensorOp>();
  if (!tensor || roots.contains(tensor.getResult()) || isStoredWithPairs(tensor) || isDearOutput(tensor) ||
      Scan::of(tensor) || !isInRange(read))
    return {};
  AttnTensorType type = tensor.getResult().getType();
  return type.getElementType() == type.getComputeType() ? tensor : TensorOp();
}

bool attn::readsEachElement(ReadOp read, TensorOp tensor) {
  return dependence(read.getSubscripts()).size() == tensor.getBody().getNumArguments();
}

bool attn::isPartOf(TensorOp source, ReadOp read, TensorOp tensor) {
  return source.getResult().hasOneUse() && readsEachElement(read, tensor) && !endsPlacedSum(source, tensor);
}

/// Whether the formula has an element that it reads for every element it computes: then storing it takes no more memory
/// than what is stored already.
static bool followsStored(TensorOp tensor) {
  return llvm::any_of(tensor.getBody().front().getOps<ReadOp>(),
                      [&](ReadOp read) { return readsEachElement(read, tensor); });
}

/// Whether `op` calls a function of more than sizes: sqrt(D) is a number that a loop begins with.
static bool callsFunction(Operation &op) {
  return isFunction(&op) && llvm::any_of(op.getOperands(), [](Value operand) {
           return !dependence(operand).empty() || anyInSlice(operand, llvm::IsaPred<ReadOp>);
         });
}

/// A division by sqrt(D) is none where the tensor has more elements than each that it reads: they would be stored for
/// it.
bool attn::isCheap(TensorOp tensor) {
  bool countsAll = followsStored(tensor);
  return llvm::none_of(tensor.getBody().front(), [&](Operation &op) {
    return isa<ReduceOp, DropoutOp>(op) || (countsAll ? isFunction(&op) : callsFunction(op));
  });
}

bool attn::hasReduction(TensorOp tensor) { return !tensor.getBody().front().getOps<ReduceOp>().empty(); }

/// Whether `op` is more than a sum or a product of the numbers that it is given. Those that are the same everywhere,
/// such as sqrt(D), are none of these.
static bool isNonlinear(Operation *op) {
  if (isa<ReduceOp, ReadOp, SizeOp, YieldOp, arith::AddFOp, arith::SubFOp, arith::MulFOp, arith::DivFOp, arith::NegFOp>(
          op))
    return false;
  return llvm::any_of(op->getOperands(),
                      [](Value operand) { return isa<FloatType>(operand.getType()) && !dependence(operand).empty(); });
}

bool attn::isNonlinear(TensorOp tensor) {
  return llvm::any_of(tensor.getBody().front(), [](Operation &op) { return ::isNonlinear(&op); });
}

bool attn::isFunctionIn(ReduceOp sum, TensorOp tensor, BlockArgument column) {
  unsigned readers = 0;
  for (const Factor &factor : Product::of(yielded(sum.getBody())).factors) {
    if (factor.indices.contains(column))
      continue;
    bool reads = false, nonlinear = factor.inverse;
    walkFormula(factor.value, [&](Operation *op) {
      auto read = dyn_cast<ReadOp>(op);
      reads |= read && read.getTensor() == tensor.getResult();
      nonlinear |= ::isNonlinear(op);
      return true;
    });
    if (reads && nonlinear)
      return true;
    readers += reads;
  }
  return readers > 1;
}

bool attn::divides(ReadOp read, TensorOp tensor) {
  auto reduce = dyn_cast<ReduceOp>(read->getParentOp());
  Block::BlockArgListType indices = tensor.getBody().getArguments();
  bool isTerm = reduce && reduce.getKind() == ReduceKind::Sum && isa<FloatType>(read.getType());
  if (!isTerm || indices.empty() || !followsStored(tensor))
    return false;
  return llvm::any_of(tensor.getBody().front(), [&](Operation &op) {
    return isa<ModOp, FloorDivOp>(op) && dependence(op.getResult(0)).contains(indices.back());
  });
}

bool attn::isOfLayers(TensorOp tensor) {
  Block::BlockArgListType indices = tensor.getBody().getArguments();
  return indices.size() >= 3 && hasReduction(tensor) &&
         llvm::all_of(tensor.getBody().front().getOps<ReduceOp>(), [&](ReduceOp sum) {
           bool hasWeights = false;
           for (const Factor &factor : Product::of(yielded(sum.getBody())).factors) {
             auto lacks = [&](BlockArgument index) { return !factor.indices.contains(index); };
             if (!factor.changesWith(sum.getBody().getArguments()))
               continue;
             if (llvm::none_of(indices, lacks))
               return false;
             hasWeights |= lacks(indices.front()) && llvm::count_if(indices, lacks) > 1;
           }
           return hasWeights;
         });
}

bool attn::isLayerOfPairs(Root &root, BlockArgument query, ReadOp read, TensorOp tensor) {
  ReduceOp sum = soleReduction(tensor);
  auto isIndex = [](Value subscript) { return isa<BlockArgument>(subscript); };
  if (!sum || sum.getKind() != ReduceKind::Sum || sum.isConditional() || !llvm::all_of(read.getSubscripts(), isIndex))
    return false;
  IndexSet ofPairs, ofWeights; // indices of the root
  for (ReadOp factor : sum.getBody().getOps<ReadOp>()) {
    IndexSet used;
    for (BlockArgument index : dependence(factor.getResult()))
      if (index.getParentRegion() == &tensor.getBody())
        used.insert(cast<BlockArgument>(read.getSubscripts()[index.getArgNumber()]));
    if (used.contains(root.key) && !llvm::all_of(factor.getSubscripts(), isIndex))
      return false;
    (used.contains(root.key) ? ofPairs : ofWeights).insert(used.begin(), used.end());
  }
  auto isOfPairs = [&](BlockArgument index) { return ofPairs.contains(index); };
  if (query)
    return isOfPairs(query) && !ofWeights.empty() && !ofWeights.contains(query);
  return llvm::any_of(root.rows, isOfPairs) && !ofWeights.empty() && llvm::none_of(ofWeights, isOfPairs);
}

bool attn::endsPlacedSum(TensorOp source, TensorOp tensor) {
  return (PlacedSum::of(source) && (hasReduction(tensor) || isPairs(tensor.getResult()))) ||
         (PlacedSum::of(tensor) && hasReduction(source));
}

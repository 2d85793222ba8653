//===- Unnormalised.cpp - Weights without a softmax -----------------------===//

#include "Unnormalised.h"
#include "Form.h"
#include "InlineRules.h"
#include "PairTensors.h"
#include "Scores.h"
#include "attn/Analysis/Dependence.h"
#include "attn/Analysis/Scan.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace attn;

bool attn::sumsOver(unsigned dimension, Operation *user) {
  auto read = dyn_cast<ReadOp>(user);
  auto sum = read ? dyn_cast<ReduceOp>(read->getParentOp()) : ReduceOp();
  if (!sum || sum.getKind() != ReduceKind::Sum)
    return false;
  auto isSummed = [&](Value subscript) {
    auto index = dyn_cast<BlockArgument>(subscript);
    return index && index.getOwner() == &sum.getBody().front();
  };
  return isSummed(read.getSubscripts()[dimension]) && llvm::count_if(read.getSubscripts(), isSummed) == 1;
}

bool attn::sumsOverKeys(Operation *user) {
  auto read = dyn_cast<ReadOp>(user);
  return read && read.getSubscripts().size() >= 2 && sumsOver(read.getSubscripts().size() - 1, user);
}

bool attn::holdsWeights(TensorOp tensor) { return llvm::any_of(tensor.getResult().getUsers(), sumsOverKeys); }

void attn::outlineDots(KernelOp kernel) {
  for (TensorOp tensor : llvm::to_vector(kernel.getBody().front().getOps<TensorOp>())) {
    Value formula = yielded(tensor.getBody());
    if (!holdsWeights(tensor) && !isOfLayers(tensor))
      continue;
    for (ReduceOp reduce : llvm::to_vector(tensor.getBody().getOps<ReduceOp>())) {
      SmallVector<BlockArgument> indices = inOrder(dependence(reduce.getResult()));
      bool isPart = reduce.getKind() == ReduceKind::Sum && isa<FloatType>(reduce.getType()) &&
                    reduce.getResult() != formula && llvm::equal(indices, tensor.getBody().getArguments());
      if (isPart)
        splitOff(reduce, tensor, "_dot");
    }
  }
}

/// Whether a function, a comparison or a choice of values in `region` changes with `key` and with one of `rows`: what
/// keeps sums from being reassociated. So absolute values are among them, cheap as they are.
static bool hasFunctionOfPairs(Region &region, Value key, ValueRange rows) {
  return region
      .walk([&](Operation *op) {
        bool isNonlinear = isa<arith::CmpFOp, arith::CmpIOp, arith::MaximumFOp, arith::MinimumFOp, DropoutOp>(op) ||
                           isa<math::MathDialect>(op->getDialect());
        IndexSet indices = isNonlinear ? dependence(op->getOperands()) : IndexSet();
        bool isOfPairs = indices.contains(cast<BlockArgument>(key)) &&
                         llvm::any_of(rows, [&](Value row) { return indices.contains(cast<BlockArgument>(row)); });
        return isOfPairs ? WalkResult::interrupt() : WalkResult::advance();
      })
      .wasInterrupted();
}

/// Whether `tensor` is computed, element by element, of several others, by a function or by a running total; or is a
/// multiple of such a tensor.
static bool isFunctionOfPairs(TensorOp tensor) {
  Block::BlockArgListType indices = tensor.getBody().getArguments();
  if (hasFunctionOfPairs(tensor.getBody(), indices.back(), indices.drop_back()) || Scan::of(tensor))
    return true;
  SmallVector<TensorOp> own;
  for (ReadOp read : tensor.getBody().getOps<ReadOp>())
    if (TensorOp source = definitionOf(read.getTensor()); source && llvm::equal(read.getSubscripts(), indices))
      own.push_back(source);
  return own.size() > 1 || (own.size() == 1 && isFunctionOfPairs(own.front()));
}

bool attn::isSummedBothWays(TensorOp tensor) {
  Block::BlockArgListType indices = tensor.getBody().getArguments();
  if (indices.size() < 2 || !isa<FloatType>(tensor.getResult().getType().getElementType()))
    return false;
  bool overKeys = false, overRows = false;
  bool isFunction = isFunctionOfPairs(tensor);
  for (Operation *user : tensor.getResult().getUsers()) {
    auto read = dyn_cast<ReadOp>(user);
    ReduceOp sum = read ? wholeSum(read->getParentOfType<TensorOp>()) : ReduceOp();
    if (!sum || read->getParentRegion() != &sum.getBody() || !isInRange(read) ||
        !llvm::all_of(read.getSubscripts(), llvm::IsaPred<BlockArgument>))
      continue;
    ValueRange rows = read.getSubscripts().drop_back();
    Value key = read.getSubscripts().back();
    auto isSummed = [&](Value index) { return cast<BlockArgument>(index).getOwner() == &sum.getBody().front(); };
    bool sumsRows = llvm::any_of(rows, isSummed);
    overKeys |= isSummed(key) && !sumsRows;
    overRows |= sumsRows && !isSummed(key);
    isFunction |= sum.isConditional() || hasFunctionOfPairs(sum.getBody(), key, rows);
  }
  return overKeys && overRows && isFunction;
}

//===- KeyTensors.cpp - Tensors that scores read once a key ----------------===//

#include "attn/Analysis/KeyTensors.h"
#include "attn/Analysis/Dependence.h"
#include "attn/Analysis/Fusion.h"

#include "llvm/ADT/SetVector.h"

using namespace attn;

/// Whether `read`, within `score`, is in a term of one of its reductions, with the reduction's last index as its last
/// subscript, the key as another, and neither in any other; and lanes run along that last index.
static bool isRowOfKey(ReadOp read, ScoreOp score) {
  auto reduce = mlir::dyn_cast<ReduceOp>(read->getParentOp());
  if (!reduce || reduce->getParentOp() != score || read->getParentRegion() != &reduce.getBody())
    return false;
  mlir::BlockArgument key = score.getBody().getArguments().back(), last = reduce.getBody().getArguments().back();
  mlir::Operation::operand_range subscripts = read.getSubscripts();
  if (subscripts.empty() || subscripts.back() != last || llvm::count(subscripts, key) != 1)
    return false;
  bool isPlain = llvm::all_of(subscripts.drop_back(), [&](mlir::Value subscript) {
    return subscript == key || llvm::none_of(dependence(subscript), [&](mlir::BlockArgument index) {
             return index == key || index.getParentRegion() != &score.getBody();
           });
  });
  return isPlain && isContiguous(reduce, key);
}

llvm::SmallVector<TensorOp> attn::keyTensors(WeightedSumOp sum) {
  SoftmaxOp softmax = softmaxOf(sum);
  if (!softmax || !softmax.getLogsumexp().use_empty())
    return {};
  auto isOfSum = [&](mlir::Operation *user) { return user->getParentOfType<WeightedSumOp>() == sum; };
  auto score = softmax.getScore().getDefiningOp<ScoreOp>();
  if (!score || !score.getResult().hasOneUse() || !llvm::all_of(softmax.getWeight().getUsers(), isOfSum))
    return {};
  llvm::SmallSetVector<TensorOp, 2> found;
  score.getBody().walk([&](ReadOp read) {
    auto tensor = read.getTensor().getDefiningOp<TensorOp>();
    auto isRead = [&](mlir::Operation *user) {
      auto other = mlir::dyn_cast<ReadOp>(user);
      return other && other->getParentOfType<ScoreOp>() == score && isRowOfKey(other, score);
    };
    if (tensor && mlir::isa<mlir::FloatType>(read.getType()) && tensor.getBody().getOps<ReduceOp>().empty() &&
        llvm::all_of(tensor->getUsers(), isRead))
      found.insert(tensor);
  });
  return llvm::to_vector(found);
}

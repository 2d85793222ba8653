//===- KeyTensors.cpp - Tensors that scores read by rows -------------------===//

#include "attn/Analysis/KeyTensors.h"
#include "attn/Analysis/Cost.h"
#include "attn/Analysis/Dependence.h"
#include "attn/Analysis/Fusion.h"

#include "llvm/ADT/SetVector.h"

using namespace attn;

/// Whether `read`, within `score`, is in a term of one of its reductions, with the reduction's last index as its last
/// subscript, and in no other.
static bool isRow(ReadOp read, ScoreOp score) {
  auto reduce = mlir::dyn_cast<ReduceOp>(read->getParentOp());
  if (!reduce || reduce->getParentOp() != score || read->getParentRegion() != &reduce.getBody())
    return false;
  mlir::Operation::operand_range subscripts = read.getSubscripts();
  if (subscripts.empty() || subscripts.back() != reduce.getBody().getArguments().back())
    return false;
  return llvm::all_of(dependence(subscripts.drop_back()),
                      [&](mlir::BlockArgument index) { return index.getParentRegion() == &score.getBody(); });
}

/// Whether that row is one of a key, which is another subscript and part of none; and lanes run along it.
static bool isRowOfKey(ReadOp read, ScoreOp score) {
  mlir::BlockArgument key = score.getBody().getArguments().back();
  auto changes = [&](mlir::Value subscript) { return dependence(subscript).contains(key); };
  return isRow(read, score) && llvm::count(read.getSubscripts(), key) == 1 &&
         llvm::count_if(read.getSubscripts(), changes) == 1 &&
         isContiguous(mlir::cast<ReduceOp>(read->getParentOp()), key);
}

/// The index of the softmax's score that is the query of `sum`; null where there is none.
static mlir::BlockArgument queryOfScore(WeightedSumOp sum, ScoreOp score) {
  if (!isTileable(sum))
    return {};
  ReadOp weight = softmaxWeight(sum);
  mlir::Value query = sum.getBody().getArgument(sum.getQuery());
  return score.getBody().getArgument(llvm::find(weight.getSubscripts(), query) - weight.getSubscripts().begin());
}

/// The score of `sum`, if nothing else needs it; null otherwise.
static ScoreOp ownScore(WeightedSumOp sum) {
  SoftmaxOp softmax = softmaxOf(sum);
  if (!softmax || (!softmax.getLogsumexp().use_empty() && !logSumExpBeside(sum)))
    return {};
  auto isOfSum = [&](mlir::Operation *user) { return user->getParentOfType<WeightedSumOp>() == sum; };
  auto score = softmax.getScore().getDefiningOp<ScoreOp>();
  return score && score.getResult().hasOneUse() && llvm::all_of(softmax.getWeight().getUsers(), isOfSum) ? score
                                                                                                         : ScoreOp();
}

/// The tensors that are read by nothing but `score`, and there as `isRead`.
static llvm::SmallVector<TensorOp> rowTensors(ScoreOp score, llvm::function_ref<bool(ReadOp)> isRead) {
  llvm::SmallSetVector<TensorOp, 2> found;
  score.getBody().walk([&](ReadOp read) {
    auto tensor = read.getTensor().getDefiningOp<TensorOp>();
    auto isReadSo = [&](mlir::Operation *user) {
      auto other = mlir::dyn_cast<ReadOp>(user);
      return other && other->getParentOfType<ScoreOp>() == score && isRead(other);
    };
    if (tensor && mlir::isa<mlir::FloatType>(read.getType()) && tensor.getBody().getOps<ReduceOp>().empty() &&
        llvm::all_of(tensor->getUsers(), isReadSo))
      found.insert(tensor);
  });
  return llvm::to_vector(found);
}

static bool callsFunctions(TensorOp tensor) {
  return llvm::any_of(tensor.getBody().front(), [](mlir::Operation &op) { return isFunction(&op); });
}

llvm::SmallVector<TensorOp> attn::keyTensors(WeightedSumOp sum) {
  ScoreOp score = ownScore(sum);
  return score ? rowTensors(score, [&](ReadOp read) { return isRowOfKey(read, score); })
               : llvm::SmallVector<TensorOp>();
}

llvm::SmallVector<TensorOp> attn::queryTensors(WeightedSumOp sum) {
  ScoreOp score = ownScore(sum);
  mlir::BlockArgument query = score ? queryOfScore(sum, score) : mlir::BlockArgument();
  if (!query)
    return {};
  mlir::Block::BlockArgListType indices = score.getBody().getArguments();
  return rowTensors(score, [&](ReadOp read) {
    if (!isRow(read, score))
      return false;
    IndexSet used = dependence(read.getSubscripts().drop_back());
    auto isUsed = [&](mlir::BlockArgument index) { return used.contains(index); };
    return isUsed(query) && !isUsed(indices.back()) &&
           (llvm::all_of(indices.drop_back(), isUsed) || !callsFunctions(read.getTensor().getDefiningOp<TensorOp>()));
  });
}

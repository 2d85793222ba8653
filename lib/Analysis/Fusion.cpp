//===- Fusion.cpp - Which weighted sums are computed with their softmax ----===//

#include "attn/Analysis/Fusion.h"
#include "attn/Analysis/Dependence.h"
#include "attn/Runtime/Signature.h"

using namespace attn;

//===----------------------------------------------------------------------===//
// Proportional to one softmax
//===----------------------------------------------------------------------===//

llvm::SetVector<ReadOp> attn::softmaxReads(mlir::Value value) {
  llvm::SetVector<ReadOp> reads;
  walkFormula(value, [&](mlir::Operation *op) {
    if (auto read = mlir::dyn_cast<ReadOp>(op); read && read.getTensor().getDefiningOp<SoftmaxOp>())
      reads.insert(read);
    return true;
  });
  return reads;
}

ReadOp attn::softmaxWeight(WeightedSumOp sum) {
  mlir::Value value = yielded(sum.getBody());
  llvm::SetVector<ReadOp> reads = softmaxReads(value);
  if (reads.size() != 1 || !isMultipleOf(value, reads.front()))
    return {};
  ReadOp read = reads.front();
  auto softmax = read.getTensor().getDefiningOp<SoftmaxOp>();
  return read.getTensor() == softmax.getWeight() ? read : ReadOp();
}

SoftmaxOp attn::softmaxOf(WeightedSumOp sum) {
  ReadOp read = softmaxWeight(sum);
  return read ? read.getTensor().getDefiningOp<SoftmaxOp>() : SoftmaxOp();
}

ReadOp attn::weightOfOneSoftmax(WeightedSumOp sum) {
  ReadOp read = softmaxWeight(sum);
  mlir::BlockArgument key = sum.getBody().getArguments().back();
  auto dependsOnKey = [&](mlir::Value subscript) { return dependence(subscript).contains(key); };
  return read && llvm::none_of(read.getSubscripts().drop_back(), dependsOnKey) ? read : ReadOp();
}

mlir::Value attn::logSumExpBeside(WeightedSumOp sum) {
  SoftmaxOp softmax = softmaxOf(sum);
  if (!softmax)
    return {};
  mlir::ValueRange rows = softmaxWeight(sum).getSubscripts().drop_back();
  auto own = sum.getBody().getArguments().drop_back(2);
  if (softmax.getLogsumexp().use_empty() || softmax.getLogsumexp().getType().getRank() >= ATTN_MAX_REPEATED_RANK ||
      !std::is_permutation(rows.begin(), rows.end(), own.begin(), own.end()))
    return {};
  bool isLater = llvm::all_of(softmax.getLogsumexp().getUsers(), [&](mlir::Operation *user) {
    while (!mlir::isa<KernelOp>(user->getParentOp()))
      user = user->getParentOp();
    return sum->isBeforeInBlock(user);
  });
  return isLater ? softmax.getLogsumexp() : mlir::Value();
}

bool attn::hasPlainWeights(WeightedSumOp sum) {
  ReadOp read = softmaxWeight(sum);
  return read && yielded(sum.getBody()) == read.getResult() && sum.getWhere().empty();
}

//===----------------------------------------------------------------------===//
// Chunk by chunk
//===----------------------------------------------------------------------===//

/// Whether the reductions in `region` are plain ones, not nested.
static bool hasPlainReductions(mlir::Region &region) {
  bool plain = true;
  region.walk(
      [&](ReduceOp reduce) { plain &= !reduce->getParentOfType<ReduceOp>() && !isExponential(reduce.getKind()); });
  return plain;
}

bool attn::isFusible(WeightedSumOp op) {
  mlir::Region &body = op.getBody();
  mlir::Value weight = yielded(body, 0), value = yielded(body, 1);
  if (!hasPlainReductions(body) || (!op.getWhere().empty() && !op.getWhere().getOps<ReduceOp>().empty()))
    return false;
  if (reduces(value) || dependence(weight).contains(body.getArgument(op.getIndices().size() - 1)) ||
      !softmaxReads(value).empty())
    return false;
  if (softmaxReads(weight).empty())
    return true;
  ReadOp read = softmaxWeight(op);
  if (!read)
    return false;
  mlir::Value key = body.getArguments().back();
  auto isRow = [&](mlir::Value subscript) { return mlir::isa<mlir::BlockArgument>(subscript) && subscript != key; };
  if (!llvm::all_of(read.getSubscripts().drop_back(), isRow) || read.getSubscripts().back() != key)
    return false;
  SoftmaxOp softmax = softmaxOf(op);
  return hasPlainReductions(bodyOf(softmax.getScore())) &&
         (!softmax.getMask() || bodyOf(softmax.getMask()).getOps<ReduceOp>().empty());
}

bool attn::hasValuesOfPairs(WeightedSumOp op) {
  return static_cast<int64_t>(op.getQuery()) >= 0 &&
         dependence(yielded(op.getBody(), 1)).contains(op.getBody().getArgument(op.getQuery()));
}

bool attn::isTileable(WeightedSumOp op) {
  if (static_cast<int64_t>(op.getQuery()) < 0 || !isFusible(op))
    return false;
  mlir::Value query = op.getBody().getArgument(op.getQuery());
  ReadOp read = softmaxWeight(op);
  return !read || llvm::is_contained(read.getSubscripts(), query);
}

//===- PairConditions.cpp - Conditions become masks of pairs --------------===//
//
// Without a softmax there is no mask beside the pairs. What sums, totals and choices ask for becomes one:
//
//   weight[m, n] = exp(score[m, n])                               weight_mask[m, n] = n <= m
//   out[m, e]    = sum[n](weight[m, n] * v[n, e] where n <= m)    weight[m, n] = select(weight_mask[m, n], exp(…), 0)
//
//===----------------------------------------------------------------------===//

#include "Conjunction.h"
#include "Form.h"
#include "PairTensors.h"
#include "Scores.h"
#include "Slice.h"
#include "attn/Analysis/Dependence.h"
#include "attn/Analysis/PairBlocks.h"
#include "attn/Analysis/Scan.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace attn;

/// The mask that is `condition` of the pair with these indices. It stands as early as it can.
Value PairTensors::maskOfCondition(Value condition, ArrayRef<Value> indices) {
  Operation *last = nullptr;
  anyInSlice(condition, [&](Operation *op) {
    auto read = dyn_cast<ReadOp>(op);
    Operation *source = read ? read.getTensor().getDefiningOp() : nullptr;
    if (source && (!last || last->isBeforeInBlock(source)))
      last = source;
    return false;
  });
  OpBuilder builder(condition.getContext());
  if (last)
    builder.setInsertionPointAfter(last);
  else
    builder.setInsertionPointToStart(weights->getBlock());
  auto kernel = weights->getParentOfType<KernelOp>();
  AttnTensorType type = weights.getResult().getType().withElement(builder.getI1Type());
  TensorOp mask = tensorOf(condition, indices, freshName(kernel, (weights.getName() + "_mask").str()),
                           weights.getIndices(), type, builder);
  for (TensorOp same : conditionMasks)
    if (sameFormula(same, mask)) {
      mask.erase();
      return same.getResult();
    }
  conditionMasks.push_back(mask);
  for (TensorOp other : weights->getBlock()->getOps<TensorOp>())
    if (other != mask && sameFormula(other, mask) && !isReturned(other.getResult()))
      other.getResult().replaceAllUsesWith(mask.getResult());
  return mask.getResult();
}

/// Makes the conditions of a scan, beside the comparison with its end, a mask of the pairs that its terms are of.
void PairTensors::nameScanConditions(TensorOp tensor) {
  std::optional<Scan> scan = Scan::of(tensor);
  if (!scan || scan->conditions.empty() || llvm::all_of(scan->conditions, isRead))
    return;
  Block &where = ReduceOp(scan->reduce).getWhere().front();
  SmallVector<Value> pair(tensor.getBody().getArguments());
  pair[scan->end.getArgNumber()] = where.getArgument(0);
  OpBuilder builder(where.getTerminator());
  Value mask = maskOfCondition(conjunction(scan->conditions, builder), pair);
  Value isVisible = ReadOp::create(builder, tensor.getLoc(), mask, pair);
  setConditions(scan->reduce, {scan->comparison, isVisible});
}

/// Makes conditions of the indices alone, where `tensor` chooses 0, masks.
void PairTensors::nameChoices(TensorOp tensor) {
  SmallVector<Value> indices(tensor.getBody().getArguments());
  for (auto choice : llvm::to_vector(tensor.getBody().getOps<arith::SelectOp>())) {
    Value condition = choice.getCondition();
    bool isOfPairs =
        anyInSlice(condition, [&](Operation *op) { return isa<arith::CmpFOp, ReduceOp>(op) || readsPairs(op); });
    if (!choosesZero(choice) || isOfPairs || llvm::all_of(conjunctsOf(condition), isRead))
      continue;
    Value mask = maskOfCondition(condition, indices);
    OpBuilder builder(choice);
    choice.getConditionMutable().assign(ReadOp::create(builder, tensor.getLoc(), mask, indices));
  }
  eraseUnused(tensor.getBody().front());
}

/// Makes the condition of a sum a mask, if it is one of the pair that the sum reads.
void PairTensors::nameCondition(TensorOp sum) {
  ReduceOp reduce = sumIn(sum);
  SmallVector<Value> pair = reduce.isConditional() ? pairOf(reduce) : SmallVector<Value>();
  if (pair.empty())
    return;
  Block &body = reduce.getBody().front(), &where = reduce.getWhere().front();
  for (Value &index : pair)
    if (auto argument = cast<BlockArgument>(index); argument.getOwner() == &body)
      index = where.getArgument(argument.getArgNumber());
  Value condition = yielded(reduce.getWhere());
  bool isOfPair = llvm::all_of(dependence(condition), [&](Value index) { return llvm::is_contained(pair, index); });
  if (!isOfPair || condition.getDefiningOp<ReadOp>())
    return;
  OpBuilder builder(where.getTerminator());
  Value mask = maskOfCondition(condition, pair);
  where.getTerminator()->setOperand(0, ReadOp::create(builder, condition.getLoc(), mask, pair));
  eraseUnused(where);
}

/// Makes the condition of a sum inside each pair, which none of its terms changes, the mask of the pairs.
void PairTensors::liftCondition(TensorOp tensor) {
  ReduceOp reduce = wholeSum(tensor);
  if (!reduce || !reduce.isConditional())
    return;
  Value condition = yielded(reduce.getWhere());
  Block::BlockArgListType indices = tensor.getBody().getArguments();
  if (!llvm::all_of(dependence(condition), [&](Value index) { return llvm::is_contained(indices, index); }))
    return;
  Value mask = maskOfCondition(condition, SmallVector<Value>(indices.begin(), indices.end()));
  setConditions(reduce, {});
  applyMasks(tensor, mask);
}

/// The masks without which `read`, in the formula of `reader`, changes nothing.
SmallVector<Value> PairTensors::masksAround(ReadOp read, TensorOp reader) {
  SmallVector<Value> masks;
  if (contains(reader.getResult()) && !Scan::of(reader)) {
    bool isOwn = llvm::equal(read.getSubscripts(), reader.getBody().getArguments());
    return isOwn && maskOf(reader) ? masksOf(reader) : masks;
  }
  ReduceOp sum = sumIn(reader);
  if (!sum || read->getParentOp() != sum)
    return masks;
  if (sum.isConditional() && read->getParentRegion() == &sum.getBody())
    for (Value condition : conjunctsOf(yielded(sum.getWhere())))
      if (auto inWhere = condition.getDefiningOp<ReadOp>(); inWhere && readsSamePair(inWhere, read, sum))
        masks.push_back(inWhere.getTensor());
  // Terms that are multiples of others of the pairs are 0 where those are.
  for (ReadOp factor : sum.getBody().getOps<ReadOp>()) {
    bool isSame = read->getParentRegion() == &sum.getBody() ? llvm::equal(read.getSubscripts(), factor.getSubscripts())
                                                            : readsSamePair(read, factor, sum);
    if (factor != read && isSame && contains(factor.getTensor()) && isMultipleOf(yielded(sum.getBody()), factor))
      llvm::append_range(masks, masksOf(definitionOf(factor.getTensor())));
  }
  return masks;
}

/// Makes pairs 0 where nobody needs them: where a mask is false that all their readers have.
void PairTensors::maskAsRead(TensorOp tensor) {
  std::optional<SmallVector<Value>> common;
  for (Operation *user : tensor.getResult().getUsers()) {
    auto read = cast<ReadOp>(user);
    SmallVector<Value> masks = masksAround(read, read->getParentOfType<TensorOp>());
    if (!common)
      common = masks;
    llvm::erase_if(*common, [&](Value mask) { return !llvm::is_contained(masks, mask); });
  }
  if (!common)
    return;
  llvm::erase_if(*common, [&](Value mask) {
    Operation *definition = mask.getDefiningOp(); // none of an input, which is there from the start
    return definition && !definition->isBeforeInBlock(tensor);
  });
  narrowMasks(tensor, *common);
}

/// Conditions of sums, and those inside of pairs, become masks of all pairs that have to do with them.
void PairTensors::maskByConditions() {
  for (TensorOp sum : sums())
    nameCondition(sum);
  SmallVector<TensorOp> pairs;
  for (TensorOp tensor : weights->getBlock()->getOps<TensorOp>())
    if (contains(tensor.getResult()))
      pairs.push_back(tensor);
  llvm::for_each(pairs, [&](TensorOp tensor) {
    liftCondition(tensor);
    nameChoices(tensor);
    nameScanConditions(tensor);
  });
  llvm::for_each(pairs, [&](TensorOp tensor) { mask(tensor); });
  llvm::for_each(llvm::reverse(pairs), [&](TensorOp tensor) { maskAsRead(tensor); });
}

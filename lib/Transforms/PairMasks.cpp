//===- PairMasks.cpp - Where pairs are 0 ----------------------------------===//
//
// A mask is a tensor of truths with the shape of the pairs. What is stored is 0 where its mask is false, so that sums
// need no condition, and keys at which a block's masks are false are neither computed nor read.
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

static bool isRead(Value value) { return static_cast<bool>(value.getDefiningOp<ReadOp>()); }

/// What both have.
static SmallVector<Value> common(ArrayRef<Value> a, ArrayRef<Value> b) {
  return llvm::filter_to_vector(a, [&](Value mask) { return llvm::is_contained(b, mask); });
}

/// The masks that `value`, in the formula of `tensor`, is 0 outside of.
SmallVector<Value> PairTensors::masksOf(Value value, TensorOp tensor) {
  Block::BlockArgListType indices = tensor.getBody().getArguments();
  Operation *op = value.getDefiningOp();
  SmallVector<Value> masks;
  if (auto read = dyn_cast_or_null<ReadOp>(op)) {
    if (contains(read.getTensor()) && llvm::equal(read.getSubscripts(), indices))
      masks = masksOf(definitionOf(read.getTensor()));
  } else if (isa_and_nonnull<arith::MulFOp>(op)) {
    masks = masksOf(op->getOperand(0), tensor);
    llvm::append_range(masks, masksOf(op->getOperand(1), tensor));
  } else if (isa_and_nonnull<arith::DivFOp, arith::NegFOp, DropoutOp>(op)) {
    masks = masksOf(op->getOperand(0), tensor);
  } else if (isa_and_nonnull<arith::AddFOp, arith::SubFOp>(op)) {
    masks = common(masksOf(op->getOperand(0), tensor), masksOf(op->getOperand(1), tensor));
  } else if (auto choice = dyn_cast_or_null<arith::SelectOp>(op)) {
    masks = masksOf(choice.getTrueValue(), tensor);
    if (!choosesZero(choice))
      return common(masks, masksOf(choice.getFalseValue(), tensor));
    for (Value condition : conjunctsOf(choice.getCondition()))
      if (auto read = condition.getDefiningOp<ReadOp>(); read && llvm::equal(read.getSubscripts(), indices))
        masks.push_back(read.getTensor());
  }
  return masks;
}

/// The masks, tensors of the same shape, that `tensor` is 0 outside of, as its formula says.
SmallVector<Value> PairTensors::masksOf(TensorOp tensor) { return masksOf(yielded(tensor.getBody()), tensor); }

/// Makes `tensor` 0 where one of `masks` is false, unless it is a scan: those go on there.
static void applyMasks(TensorOp tensor, ArrayRef<Value> masks) {
  Value formula = yielded(tensor.getBody()), own = maskOf(tensor);
  bool isMasked = own && llvm::any_of(conjunctsOf(own), isRead);
  if (masks.empty() || isMasked || Scan::of(tensor))
    return;
  OpBuilder builder(tensor.getBody().front().getTerminator());
  Location location = tensor.getLoc();
  SmallVector<Value> conditions;
  llvm::SmallSetVector<Value, 2> distinct(masks.begin(), masks.end());
  for (Value mask : distinct)
    conditions.push_back(ReadOp::create(builder, location, mask, ValueRange(tensor.getBody().getArguments())));
  Value isVisible = conjunction(conditions, builder), zero = floatConstant(0, formula.getType(), builder, location);
  Value masked = arith::SelectOp::create(builder, location, isVisible, formula, zero);
  tensor.getBody().front().getTerminator()->setOperand(0, masked);
}

/// Makes a tensor that is a multiple of one that is masked 0 where that is, whatever it is multiplied by.
void PairTensors::mask(TensorOp tensor) { applyMasks(tensor, masksOf(tensor)); }

/// The read that all elements of `tensor` are: of pairs, maybe with a choice of 0 where those are 0 anyway. Or null.
ReadOp PairTensors::copied(TensorOp tensor) {
  Value formula = yielded(tensor.getBody());
  auto choice = formula.getDefiningOp<arith::SelectOp>();
  auto read = (choice ? choice.getTrueValue() : formula).getDefiningOp<ReadOp>();
  if (!read || !contains(read.getTensor()) || !llvm::equal(read.getSubscripts(), tensor.getBody().getArguments()))
    return {};
  if (!choice)
    return read;
  auto mask = choice.getCondition().getDefiningOp<ReadOp>();
  bool isZeroAnyway = mask && choosesZero(choice) && llvm::equal(mask.getSubscripts(), read.getSubscripts()) &&
                      llvm::is_contained(masksOf(definitionOf(read.getTensor())), mask.getTensor());
  return isZeroAnyway ? read : ReadOp();
}

/// Drops the choice of 0 where `tensor` is elements of stored pairs that are 0 there anyway.
void PairTensors::dropChoice(TensorOp tensor) {
  ReadOp read = copied(tensor);
  if (!read || !stored.contains(read.getTensor()))
    return;
  tensor.getBody().front().getTerminator()->setOperand(0, read);
  eraseUnused(tensor.getBody().front());
}

/// Whether `inWhere`, in the condition of `sum`, has the subscripts that `read` has in its terms.
static bool readsSamePair(ReadOp inWhere, ReadOp read, ReduceOp sum) {
  Block &body = sum.getBody().front(), &where = sum.getWhere().front();
  return llvm::equal(read.getSubscripts(), inWhere.getSubscripts(), [&](Value ofTerm, Value ofCondition) {
    auto a = dyn_cast<BlockArgument>(ofTerm), b = dyn_cast<BlockArgument>(ofCondition);
    bool isSummed = a && b && a.getOwner() == &body && b.getOwner() == &where;
    return ofTerm == ofCondition || (isSummed && a.getArgNumber() == b.getArgNumber());
  });
}

/// Drops what the condition of a sum asks for and the pairs that it reads are 0 without.
void PairTensors::dropConditions(TensorOp sum) {
  SmallVector<ReduceOp> sums(sum.getBody().getOps<ReduceOp>());
  if (sums.size() != 1 || !sums.front().isConditional())
    return;
  ReduceOp reduce = sums.front();
  auto isStored = [&](Value tensor) {
    ReadOp copy = contains(tensor) ? copied(definitionOf(tensor)) : ReadOp();
    return stored.contains(tensor) || (copy && stored.contains(copy.getTensor()));
  };
  // Masks and the pairs that are 0 without them.
  SmallVector<std::pair<Value, ReadOp>> known;
  for (ReadOp read : reduce.getBody().getOps<ReadOp>())
    if (isStored(read.getTensor()) && isMultipleOf(yielded(reduce.getBody()), read))
      for (Value mask : masksOf(definitionOf(read.getTensor())))
        known.push_back({mask, read});
  SmallVector<Value> left = conjunctsOf(yielded(reduce.getWhere()));
  llvm::erase_if(left, [&](Value condition) {
    auto read = condition.getDefiningOp<ReadOp>();
    return read && llvm::any_of(known, [&](auto &mask) {
             return mask.first == read.getTensor() && readsSamePair(read, mask.second, reduce);
           });
  });
  setConditions(reduce, left);
}

//===----------------------------------------------------------------------===//
// Conditions of pairs without a softmax
//===----------------------------------------------------------------------===//

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
    bool isOfPairs = anyInSlice(condition, [&](Operation *op) { return isa<arith::CmpFOp>(op) || readsPairs(op); });
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
  ReduceOp reduce = wholeSum(sum);
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
  ReduceOp sum = wholeSum(reader);
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
  llvm::erase_if(*common, [&](Value mask) { return !mask.getDefiningOp()->isBeforeInBlock(tensor); });
  applyMasks(tensor, *common);
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

/// Drops choices inside the formula of `tensor` that its own mask makes.
void PairTensors::dropInnerChoices(TensorOp tensor) {
  Value mask = maskOf(tensor);
  auto outer = mask ? mask.getDefiningOp<ReadOp>() : ReadOp();
  if (!outer)
    return;
  for (auto choice : llvm::make_early_inc_range(tensor.getBody().getOps<arith::SelectOp>())) {
    auto inner = choice.getCondition().getDefiningOp<ReadOp>();
    bool isSame = choice != yielded(tensor.getBody()).getDefiningOp() && choosesZero(choice) && inner &&
                  inner.getTensor() == outer.getTensor() && llvm::equal(inner.getSubscripts(), outer.getSubscripts());
    if (isSame)
      choice.getResult().replaceAllUsesWith(choice.getTrueValue());
  }
  eraseUnused(tensor.getBody().front());
}

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
#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace attn;

bool attn::isRead(Value value) { return static_cast<bool>(value.getDefiningOp<ReadOp>()); }

namespace {
/// The masks that parts of formulas are 0 outside of; asked once of each part, however often formulas use it.
class ZeroMasks {
public:
  explicit ZeroMasks(const llvm::DenseSet<Value> &pairs) : pairs(pairs) {}

  const SmallVector<Value> &of(TensorOp tensor) { return of(yielded(tensor.getBody()), tensor); }

private:
  /// Of a part of the formula of `tensor`.
  const SmallVector<Value> &of(Value value, TensorOp tensor) {
    if (auto known = found.find(value); known != found.end())
      return *known->second;
    auto masks = std::make_unique<SmallVector<Value>>(find(value, tensor));
    return *(found[value] = std::move(masks));
  }

  SmallVector<Value> find(Value value, TensorOp tensor) {
    Block::BlockArgListType indices = tensor.getBody().getArguments();
    Operation *op = value.getDefiningOp();
    if (auto read = dyn_cast_or_null<ReadOp>(op)) {
      bool isOwn = pairs.contains(read.getTensor()) && llvm::equal(read.getSubscripts(), indices);
      return isOwn ? of(definitionOf(read.getTensor())) : SmallVector<Value>();
    }
    if (isa_and_nonnull<arith::DivFOp, arith::NegFOp, DropoutOp>(op))
      return of(op->getOperand(0), tensor);
    if (isa_and_nonnull<arith::MulFOp>(op))
      return either(of(op->getOperand(0), tensor), of(op->getOperand(1), tensor));
    if (isa_and_nonnull<arith::AddFOp, arith::SubFOp>(op))
      return both(of(op->getOperand(0), tensor), of(op->getOperand(1), tensor));
    auto choice = dyn_cast_or_null<arith::SelectOp>(op);
    if (!choice)
      return {};
    if (matchPattern(choice.getTrueValue(), m_AnyZeroFloat()))
      return of(choice.getFalseValue(), tensor);
    if (!choosesZero(choice))
      return both(of(choice.getTrueValue(), tensor), of(choice.getFalseValue(), tensor));
    SmallVector<Value> masks = of(choice.getTrueValue(), tensor);
    for (Value condition : conjunctsOf(choice.getCondition()))
      if (auto read = condition.getDefiningOp<ReadOp>(); read && llvm::equal(read.getSubscripts(), indices))
        masks.push_back(read.getTensor());
    return masks;
  }

  static SmallVector<Value> either(ArrayRef<Value> a, ArrayRef<Value> b) {
    llvm::SmallSetVector<Value, 4> masks(a.begin(), a.end());
    masks.insert(b.begin(), b.end());
    return masks.takeVector();
  }

  static SmallVector<Value> both(ArrayRef<Value> a, ArrayRef<Value> b) {
    return llvm::filter_to_vector(a, [&](Value mask) { return llvm::is_contained(b, mask); });
  }

  const llvm::DenseSet<Value> &pairs;
  llvm::DenseMap<Value, std::unique_ptr<SmallVector<Value>>> found;
};
} // namespace

/// The masks, tensors of the same shape, that `tensor` is 0 outside of, as its formula says.
SmallVector<Value> PairTensors::masksOf(TensorOp tensor) { return ZeroMasks(tensors).of(tensor); }

/// The masks, among `masks`, that `condition`, of an element of `tensor`, does not ask for.
static SmallVector<Value> missingMasks(ArrayRef<Value> masks, Value condition) {
  llvm::SmallSetVector<Value, 2> missing(masks.begin(), masks.end());
  for (Value each : conjunctsOf(condition))
    if (auto read = each.getDefiningOp<ReadOp>())
      missing.remove(read.getTensor());
  return missing.takeVector();
}

/// Whether each of `masks` is true, and `condition`, if there is one, at the element of `tensor`.
static Value areVisible(TensorOp tensor, ArrayRef<Value> masks, Value condition, OpBuilder &builder) {
  SmallVector<Value> conditions;
  if (condition)
    conditions.push_back(condition);
  llvm::SmallSetVector<Value, 2> distinct(masks.begin(), masks.end());
  for (Value mask : distinct)
    conditions.push_back(ReadOp::create(builder, tensor.getLoc(), mask, ValueRange(tensor.getBody().getArguments())));
  return conjunction(conditions, builder);
}

void attn::applyMasks(TensorOp tensor, ArrayRef<Value> masks) {
  Value formula = yielded(tensor.getBody()), own = maskOf(tensor);
  bool isMasked = own && llvm::any_of(conjunctsOf(own), isRead);
  if (masks.empty() || isMasked || Scan::of(tensor))
    return;
  OpBuilder builder(tensor.getBody().front().getTerminator());
  Location location = tensor.getLoc();
  Value isVisible = areVisible(tensor, masks, Value(), builder);
  Value zero = floatConstant(0, formula.getType(), builder, location);
  Value masked = arith::SelectOp::create(builder, location, isVisible, formula, zero);
  tensor.getBody().front().getTerminator()->setOperand(0, masked);
}

void attn::narrowMasks(TensorOp tensor, ArrayRef<Value> masks) {
  Value own = maskOf(tensor);
  if (!own || llvm::none_of(conjunctsOf(own), isRead))
    return applyMasks(tensor, masks);
  SmallVector<Value> missing = missingMasks(masks, own);
  if (missing.empty())
    return;
  auto choice = yielded(tensor.getBody()).getDefiningOp<arith::SelectOp>();
  OpBuilder builder(choice);
  choice.getConditionMutable().assign(areVisible(tensor, missing, own, builder));
}

/// Makes a tensor that is a multiple of one that is masked 0 where that is, whatever it is multiplied by.
void PairTensors::mask(TensorOp tensor) { applyMasks(tensor, masksOf(tensor)); }

/// What `tensor` is, but for a choice of 0 that its own mask makes.
static Value withoutChoice(TensorOp tensor) {
  Value formula = yielded(tensor.getBody());
  auto choice = formula.getDefiningOp<arith::SelectOp>();
  return choice && choosesZero(choice) ? choice.getTrueValue() : formula;
}

/// The read of pairs that the elements of `tensor` are a multiple of, maybe with a choice of 0 where those are 0
/// anyway. Or null.
ReadOp PairTensors::multiplied(TensorOp tensor) {
  Value formula = yielded(tensor.getBody()), element = withoutChoice(tensor);
  for (ReadOp read : tensor.getBody().getOps<ReadOp>()) {
    if (!contains(read.getTensor()) || !llvm::equal(read.getSubscripts(), tensor.getBody().getArguments()) ||
        !isMultipleOf(element, read))
      continue;
    if (element == formula)
      return read;
    auto mask = formula.getDefiningOp<arith::SelectOp>().getCondition().getDefiningOp<ReadOp>();
    bool isZeroAnyway = mask && llvm::equal(mask.getSubscripts(), read.getSubscripts()) &&
                        llvm::is_contained(masksOf(definitionOf(read.getTensor())), mask.getTensor());
    if (isZeroAnyway)
      return read;
  }
  return {};
}

/// The same, where they are these elements.
ReadOp PairTensors::copied(TensorOp tensor) {
  ReadOp read = multiplied(tensor);
  return read && withoutChoice(tensor) == read ? read : ReadOp();
}

/// Drops the choice of 0 where `tensor` is a multiple of elements of stored pairs that are 0 there anyway.
void PairTensors::dropChoice(TensorOp tensor) {
  ReadOp read = multiplied(tensor);
  if (!read || !stored.contains(read.getTensor()))
    return;
  tensor.getBody().front().getTerminator()->setOperand(0, withoutChoice(tensor));
  eraseUnused(tensor.getBody().front());
}

bool attn::readsSamePair(ReadOp inWhere, ReadOp read, ReduceOp sum) {
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
    ReadOp other = contains(tensor) ? multiplied(definitionOf(tensor)) : ReadOp();
    return stored.contains(tensor) || (other && stored.contains(other.getTensor()));
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

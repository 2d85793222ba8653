//===- Dependence.cpp - What a value is made of ---------------------------===//

#include "attn/Analysis/Dependence.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/Matchers.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"

using namespace mlir;
using namespace attn;

IndexSet attn::dependence(ValueRange values) {
  IndexSet found;
  llvm::DenseSet<Value> seen;
  SmallVector<Value> todo(values);
  while (!todo.empty()) {
    Value value = todo.pop_back_val();
    if (!seen.insert(value).second || isa<AttnTensorType>(value.getType()))
      continue;
    if (auto index = dyn_cast<BlockArgument>(value)) {
      found.insert(index);
      continue;
    }
    Operation *owner = value.getDefiningOp();
    // A reduction depends on what its regions take from outside, not on what they define.
    owner->walk([&](Operation *op) {
      for (Value operand : op->getOperands())
        if (!owner->isAncestor(operand.getParentRegion()->getParentOp()))
          todo.push_back(operand);
    });
  }
  return found;
}

IndexSet attn::dependence(Value value) { return dependence(ValueRange(value)); }

SmallVector<BlockArgument> attn::inOrder(const IndexSet &indices) {
  SmallVector<BlockArgument> ordered(indices.begin(), indices.end());
  llvm::sort(ordered, [](BlockArgument a, BlockArgument b) {
    if (a.getOwner() == b.getOwner())
      return a.getArgNumber() < b.getArgNumber();
    return a.getParentRegion()->isProperAncestor(b.getParentRegion());
  });
  return ordered;
}

bool attn::anyInSlice(Value value, llvm::function_ref<bool(Operation *)> visit) {
  llvm::DenseSet<Operation *> seen;
  SmallVector<Value> todo{value};
  while (!todo.empty()) {
    Value next = todo.pop_back_val();
    Operation *owner = next.getDefiningOp();
    if (!owner || isa<AttnTensorType>(next.getType()) || !seen.insert(owner).second)
      continue;
    WalkResult walk = owner->walk([&](Operation *op) {
      if (visit(op))
        return WalkResult::interrupt();
      llvm::append_range(todo, op->getOperands());
      return WalkResult::advance();
    });
    if (walk.wasInterrupted())
      return true;
  }
  return false;
}

void attn::walkFormula(Value value, llvm::function_ref<bool(Operation *)> visit) {
  llvm::DenseSet<Operation *> seen;
  SmallVector<Value> todo{value};
  while (!todo.empty()) {
    Value next = todo.pop_back_val();
    Operation *op = isa<AttnTensorType>(next.getType()) ? nullptr : next.getDefiningOp();
    if (op && seen.insert(op).second && visit(op))
      llvm::append_range(todo, op->getOperands());
  }
}

bool attn::reduces(Value value) {
  return anyInSlice(value, [](Operation *op) { return isa<ReduceOp>(op); });
}

/// Whether the formula of `value` has `read` in it.
static bool contains(Value value, ReadOp read) {
  return anyInSlice(value, [&](Operation *op) { return op == read; });
}

namespace {
/// Whether values are multiples of `read`; asked once of each, however often a formula uses it.
class Multiples {
public:
  explicit Multiples(ReadOp read) : read(read) {}

  bool contain(Value value) {
    auto [known, isNew] = found.try_emplace(value, false);
    if (!isNew)
      return known->second;
    bool is = find(value);
    found[value] = is;
    return is;
  }

private:
  bool find(Value value) {
    Operation *op = value.getDefiningOp();
    if (op == read || matchPattern(value, m_AnyZeroFloat()))
      return true;
    if (isa_and_nonnull<arith::MulFOp>(op))
      return (contain(op->getOperand(0)) && !contains(op->getOperand(1), read)) ||
             (contain(op->getOperand(1)) && !contains(op->getOperand(0), read));
    if (isa_and_nonnull<arith::DivFOp>(op))
      return contain(op->getOperand(0)) && !contains(op->getOperand(1), read);
    if (isa_and_nonnull<arith::NegFOp>(op))
      return contain(op->getOperand(0));
    if (isa_and_nonnull<arith::AddFOp, arith::SubFOp>(op))
      return contain(op->getOperand(0)) && contain(op->getOperand(1));
    if (auto choice = dyn_cast_or_null<arith::SelectOp>(op))
      return !contains(choice.getCondition(), read) && contain(choice.getTrueValue()) &&
             contain(choice.getFalseValue());
    if (auto dropout = dyn_cast_or_null<DropoutOp>(op))
      return contain(dropout.getValue()) && !contains(dropout.getProbability(), read);
    auto reduce = dyn_cast_or_null<ReduceOp>(op);
    return reduce && reduce.getKind() == ReduceKind::Sum && contain(yielded(reduce.getBody()));
  }

  ReadOp read;
  llvm::DenseMap<Value, bool> found;
};
} // namespace

bool attn::hasInnerReduction(ReduceOp op) {
  return op->walk([&](ReduceOp inner) { return inner == op ? WalkResult::advance() : WalkResult::interrupt(); })
      .wasInterrupted();
}

bool attn::hasReductionAround(ReduceOp op) {
  return !hasInnerReduction(op) && anyInSlice(yielded(op.getBody()), llvm::IsaPred<ReduceOp>);
}

bool attn::isContiguous(ReduceOp op, Value lane) {
  bool alongReduction = false, alongLane = false;
  Value reduction = op.getBody().getArguments().back();
  op.getBody().walk([&](Operation *inner) {
    auto read = dyn_cast<ReadOp>(inner);
    // What is the same for all terms, as a head's slope is, lies as it may.
    if (!read || !dependence(read.getResult()).contains(op.getBody().getArguments().back()))
      return;
    alongReduction |= read.getSubscripts().back() == reduction;
    alongLane |= lane && read.getSubscripts().back() == lane;
  });
  return alongReduction && !alongLane && !hasInnerReduction(op);
}

bool attn::isMultipleOf(Value value, ReadOp read) { return Multiples(read).contain(value); }

bool attn::uses(Operation *op, llvm::function_ref<bool(Value)> isOneOf) {
  return op
      ->walk([&](Operation *inner) {
        return llvm::any_of(inner->getOperands(), isOneOf) ? WalkResult::interrupt() : WalkResult::advance();
      })
      .wasInterrupted();
}

bool attn::isReturned(Value tensor) { return llvm::any_of(tensor.getUsers(), llvm::IsaPred<ReturnOp>); }

SizeAttr attn::indexSize(BlockArgument index) {
  Operation *owner = index.getOwner()->getParentOp();
  if (auto reduce = dyn_cast<ReduceOp>(owner))
    return reduce.getSize(index.getArgNumber());
  auto definition = cast<DefinitionOpInterface>(owner);
  auto type = cast<AttnTensorType>(definition.getDefinedTensor().getType());
  if (index.getArgNumber() < type.getRank())
    return type.getShape()[index.getArgNumber()];
  return cast<WeightedSumOp>(owner).getKeySize();
}

StringRef attn::indexName(BlockArgument index) {
  Operation *owner = index.getOwner()->getParentOp();
  ArrayAttr names;
  if (auto reduce = dyn_cast<ReduceOp>(owner))
    names = reduce.getIndices();
  else
    names = cast<DefinitionOpInterface>(owner).getIndices();
  if (index.getArgNumber() < names.size())
    return cast<StringAttr>(names[index.getArgNumber()]).getValue();
  return cast<WeightedSumOp>(owner).getKey();
}

std::optional<IndexOrder> IndexOrder::of(Value condition) {
  using enum arith::CmpIPredicate;
  auto comparison = condition.getDefiningOp<arith::CmpIOp>();
  auto left = comparison ? dyn_cast<BlockArgument>(comparison.getLhs()) : BlockArgument();
  auto right = comparison ? dyn_cast<BlockArgument>(comparison.getRhs()) : BlockArgument();
  if (!left || !right)
    return std::nullopt;
  switch (comparison.getPredicate()) {
  case slt:
  case sle:
    return IndexOrder{left, right, comparison.getPredicate() == slt};
  case sgt:
  case sge:
    return IndexOrder{right, left, comparison.getPredicate() == sgt};
  default:
    return std::nullopt;
  }
}

std::optional<SizeAttr> attn::sizeOf(Value value) {
  if (auto size = value.getDefiningOp<SizeOp>())
    return size.getSize();
  APInt number;
  if (matchPattern(value, m_ConstantInt(&number)))
    return SizeAttr::constant(value.getContext(), number.getSExtValue());
  auto quotient = value.getDefiningOp<FloorDivOp>();
  std::optional<SizeAttr> lhs = quotient ? sizeOf(quotient.getLhs()) : std::nullopt;
  std::optional<SizeAttr> rhs = quotient ? sizeOf(quotient.getRhs()) : std::nullopt;
  if (lhs && rhs)
    return SizeAttr::binary(SizeKind::FloorDiv, *lhs, *rhs);
  return std::nullopt;
}

bool attn::isNeverNegative(SizeAttr size) {
  switch (size.getKind()) {
  case SizeKind::Constant:
    return size.getValue() >= 0;
  case SizeKind::Name:
    return true;
  case SizeKind::Sub:
    return false;
  case SizeKind::Add:
  case SizeKind::Mul:
  case SizeKind::FloorDiv:
  case SizeKind::Mod:
    return isNeverNegative(size.getLhs()) && isNeverNegative(size.getRhs());
  }
  llvm_unreachable("unknown size kind");
}

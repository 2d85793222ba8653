//===- Formula.cpp - Arithmetic of gradients ------------------------------===//

#include "Formula.h"
#include "Slice.h"
#include "attn/Analysis/Dependence.h"

#include "mlir/IR/Matchers.h"

#include <optional>

using namespace mlir;
using namespace attn;

namespace {
/// A value that is 0 unless a condition is `chosen`.
struct Choice {
  Value condition;
  bool chosen;
  Value value;
};
} // namespace

/// `gradient` as a choice of 0 or what it is a multiple of, if it is one.
static std::optional<Choice> choiceOf(Value gradient, Formula &formula) {
  Operation *op = gradient.getDefiningOp();
  auto isZero = [](Value value) { return matchPattern(value, m_AnyZeroFloat()); };
  if (auto choice = dyn_cast_or_null<arith::SelectOp>(op)) {
    if (isZero(choice.getFalseValue()))
      return Choice{choice.getCondition(), true, choice.getTrueValue()};
    if (isZero(choice.getTrueValue()))
      return Choice{choice.getCondition(), false, choice.getFalseValue()};
  }
  if (!isa_and_nonnull<arith::MulFOp, arith::DivFOp, arith::NegFOp>(op))
    return std::nullopt;
  std::optional<Choice> inner = choiceOf(op->getOperand(0), formula);
  bool isFirst = inner.has_value();
  if (!inner && isa<arith::MulFOp>(op))
    inner = choiceOf(op->getOperand(1), formula);
  if (!inner)
    return std::nullopt;
  if (isa<arith::NegFOp>(op))
    inner->value = formula.negate(inner->value);
  else if (isa<arith::DivFOp>(op))
    inner->value = formula.divide(inner->value, op->getOperand(1));
  else
    inner->value = formula.multiply(inner->value, op->getOperand(isFirst ? 1 : 0));
  return inner;
}

Value Formula::scale(Value gradient, llvm::function_ref<Value(Value)> slope) {
  std::optional<Choice> choice = choiceOf(gradient, *this);
  if (!choice)
    return slope(gradient);
  Value scaled = scale(choice->value, slope); // there may be another choice in it
  return choice->chosen ? select(choice->condition, scaled, zero(scaled))
                        : select(choice->condition, zero(scaled), scaled);
}

Value Formula::sumOver(ReduceOp reduce, Value term) {
  SmallVector<SizeAttr> sizes = llvm::to_vector(reduce.getSizes().getAsRange<SizeAttr>());
  auto sum = ReduceOp::create(builder, location, ReduceKind::Sum, reduce.getIndices(), sizes, term.getType(),
                              ValueRange(), Value(), reduce.isConditional());
  OpBuilder::InsertionGuard guard(builder);
  auto fill = [&](Region &from, Region &to, Value value) {
    IRMapping mapping;
    for (BlockArgument index : dependence(value))
      mapping.map(index, index.getOwner()->getParent() == &from ? to.getArgument(index.getArgNumber()) : index);
    builder.setInsertionPointToEnd(&to.front());
    YieldOp::create(builder, location, cloneSlice(value, mapping, builder));
  };
  fill(reduce.getBody(), sum.getBody(), term);
  if (reduce.isConditional())
    fill(reduce.getWhere(), sum.getWhere(), yielded(reduce.getWhere()));
  return sum.getResult();
}

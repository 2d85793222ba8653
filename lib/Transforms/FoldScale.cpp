//===- FoldScale.cpp - A score's scale goes to the queries ----------------===//
//
//   score[m, n] = -0.5 * (sum[d](q[m, d] * k[n, d]) - bias[n])
//
// becomes
//
//   score[m, n] = sum[d](q[m, d] * -0.5 * k[n, d]) - -0.5 * bias[n]
//
// The product of q and the scale does not depend on the key, so the lowering makes it once for a query. The scale may
// depend on the query, and is pushed through sums, differences and choices.
//
// Only scales that are finite whatever the parameters hold (Finiteness.h) are moved: c · Σ is not Σ c·x for c = ∞, nor
// over no elements, which is what `/ sqrt(D)` comes to for D = 0. Division by a constant stays unless its reciprocal is
// exact. Nor is a factor that is read from a bf16 or f16 tensor scaled: as it is, its products with another are exact,
// and processors have instructions for them. A scale that stays costs one multiplication a pair, too little to be
// measured beside a dot product.
//
//===----------------------------------------------------------------------===//

#include "Rewrites.h"
#include "Scores.h"
#include "attn/Analysis/Finiteness.h"
#include "attn/Transforms/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace attn;

namespace attn {
#define GEN_PASS_DEF_ATTNFOLDSCALE
#include "attn/Transforms/Passes.h.inc"
} // namespace attn

/// Whether `value` is read from a tensor of 16-bit floats.
static bool isNarrowRead(Value value) {
  auto read = value.getDefiningOp<ReadOp>();
  return read && read.getType().isF32() && read.getTensor().getType().getElementType().getIntOrFloatBitWidth() == 16;
}

/// The operand of a multiplication in `reduce` that can take a scale: a factor of its terms that does not depend on the
/// key. Null if there is none.
static OpOperand *scalableFactor(ReduceOp reduce, const PairFormula &formula) {
  if (reduce.getKind() != ReduceKind::Sum)
    return nullptr;
  SmallVector<OpOperand *> todo = {&reduce.getBody().front().getTerminator()->getOpOperand(0)};
  while (!todo.empty()) {
    OpOperand *operand = todo.pop_back_val();
    Operation *op = operand->get().getDefiningOp();
    bool once = operand->get().hasOneUse();
    bool product = isa_and_nonnull<arith::MulFOp>(operand->getOwner());
    if (product && !formula.dependsOnKey(operand->get()) && !isNarrowRead(operand->get()))
      return operand;
    if (once && isa_and_nonnull<arith::MulFOp>(op))
      for (OpOperand &factor : op->getOpOperands())
        todo.push_back(&factor);
  }
  return nullptr;
}

/// Whether some reduction takes the scale of `value`, so that it becomes free.
static bool absorbs(Value value, const PairFormula &formula) {
  Operation *op = value.getDefiningOp();
  if (!op || !value.hasOneUse() || !formula.dependsOnKey(value))
    return false;
  if (auto reduce = dyn_cast<ReduceOp>(op))
    return scalableFactor(reduce, formula);
  if (auto choice = dyn_cast<arith::SelectOp>(op))
    return absorbs(choice.getTrueValue(), formula) || absorbs(choice.getFalseValue(), formula);
  if (isa<arith::AddFOp, arith::SubFOp, arith::NegFOp>(op))
    return llvm::any_of(op->getOperands(), [&](Value operand) { return absorbs(operand, formula); });
  return false;
}

/// scale · value, at the builder's place, which is below both.
static Value push(Value value, Value scale, const PairFormula &formula, OpBuilder &builder) {
  Operation *op = value.getDefiningOp();
  Location location = scale.getLoc();
  if (!absorbs(value, formula))
    return arith::MulFOp::create(builder, location, value, scale);
  auto pushed = [&](Value operand) { return push(operand, scale, formula, builder); };
  if (auto choice = dyn_cast<arith::SelectOp>(op)) {
    Value whenTrue = pushed(choice.getTrueValue()), whenFalse = pushed(choice.getFalseValue());
    return arith::SelectOp::create(builder, location, choice.getCondition(), whenTrue, whenFalse);
  }
  if (isa<arith::AddFOp>(op)) {
    Value lhs = pushed(op->getOperand(0)), rhs = pushed(op->getOperand(1));
    return arith::AddFOp::create(builder, location, lhs, rhs);
  }
  if (isa<arith::SubFOp>(op)) {
    Value lhs = pushed(op->getOperand(0)), rhs = pushed(op->getOperand(1));
    return arith::SubFOp::create(builder, location, lhs, rhs);
  }
  if (isa<arith::NegFOp>(op)) {
    Value negative = arith::NegFOp::create(builder, location, scale);
    return push(op->getOperand(0), negative, formula, builder);
  }
  auto reduce = cast<ReduceOp>(builder.clone(*op));
  OpOperand *factor = scalableFactor(reduce, formula);
  OpBuilder inside(factor->getOwner());
  factor->set(arith::MulFOp::create(inside, location, factor->get(), scale));
  return reduce;
}

/// Moves the scale of `op` into what it scales. Returns whether it could.
static bool foldScale(Operation *op, const PairFormula &formula) {
  OpBuilder builder(op);
  Value scaled, scale;
  if (isa<arith::MulFOp>(op)) {
    bool first = formula.dependsOnKey(op->getOperand(0));
    scaled = op->getOperand(first ? 0 : 1), scale = op->getOperand(first ? 1 : 0);
  } else if (isa<arith::DivFOp>(op)) {
    scaled = op->getOperand(0), scale = op->getOperand(1);
  } else {
    return false;
  }
  if (formula.dependsOnKey(scale) || !isFinite(scale, {}) || !absorbs(scaled, formula))
    return false;
  if (isa<arith::DivFOp>(op)) {
    FloatAttr divisor;
    APFloat inverse(0.0);
    if (!matchPattern(scale, m_Constant(&divisor)) || !divisor.getValue().getExactInverse(&inverse))
      return false;
    scale = arith::ConstantOp::create(builder, op->getLoc(), FloatAttr::get(scale.getType(), inverse));
  }
  Value result = push(scaled, scale, formula, builder);
  op->getResult(0).replaceAllUsesWith(result);
  op->erase();
  return true;
}

namespace {
struct FoldScale : attn::impl::AttnFoldScaleBase<FoldScale> {
  void runOnOperation() override {
    for (const PairFormula &formula : pairFormulas(getOperation())) {
      int folded = 0;
      for (bool changed = true; changed;) {
        eraseUnused(*formula.block);
        changed = false;
        for (Operation &op : llvm::make_early_inc_range(llvm::reverse(*formula.block)))
          if (foldScale(&op, formula)) {
            ++folded;
            changed = true;
            break;
          }
      }
      if (folded)
        noteRewrite(formula.op, "fold scale",
                    "a factor of '" + cast<DefinitionOpInterface>(formula.op).getName() +
                        "' that no key changes is multiplied into the queries, once for each instead of once "
                        "for each pair");
    }
  }
};
} // namespace

//===- ShiftInvariance.cpp - What shifts all scores of a row is dropped ---===//
//
//   score[m, n]  = sum[d](q[m, d] * k[n, d]) + bias[m]
//   weight, lse  = softmax(score)
//
// becomes
//
//   score[m, n]  = sum[d](q[m, d] * k[n, d])
//   weight, lse' = softmax(score)
//   lse[m]       = lse'[m] + bias[m]
//
// for a softmax does not change when a number is added to all its scores. With a sink it would: the sink is a score
// too. Only what is finite is dropped, because ∞ − ∞ is none: sums, products and quotients of parameters and sizes, not
// what may overflow by itself (exp) or be infinite (log). Finite means for finite parameters and divisors other than 0.
//
//===----------------------------------------------------------------------===//

#include "Form.h"
#include "Scores.h"
#include "Slice.h"
#include "attn/Transforms/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/Builders.h"

using namespace mlir;
using namespace attn;

namespace attn {
#define GEN_PASS_DEF_ATTNSHIFTINVARIANCE
#include "attn/Transforms/Passes.h.inc"
} // namespace attn

/// Whether `value` is made of sizes and constants only.
static bool isOfSizes(Value value) {
  Operation *op = value.getDefiningOp();
  return op && !isa<ReadOp, ReduceOp>(op) && llvm::all_of(op->getOperands(), isOfSizes);
}

/// Whether `value` is finite for finite parameters, divisors other than 0 aside.
static bool isFinite(Value value) {
  Operation *op = value.getDefiningOp();
  if (!op)
    return true; // an index
  if (auto constant = dyn_cast<arith::ConstantOp>(op)) {
    auto number = dyn_cast<FloatAttr>(constant.getValue());
    return !number || number.getValue().isFinite();
  }
  if (auto read = dyn_cast<ReadOp>(op)) {
    Operation *source = read.getTensor().getDefiningOp();
    if (!source)
      return true;
    auto tensor = dyn_cast<TensorOp>(source);
    return tensor && isFinite(tensor.getBody().front().getTerminator()->getOperand(0));
  }
  if (auto reduce = dyn_cast<ReduceOp>(op))
    return reduce.getKind() == ReduceKind::Sum && isFinite(reduce.getBody().front().getTerminator()->getOperand(0));
  bool known = isa<SizeOp, FloorDivOp, ModOp>(op) || isa<arith::ArithDialect>(op->getDialect()) ||
               isa<math::TanhOp, math::SinOp, math::CosOp, math::AbsFOp>(op) ||
               (isa<math::MathDialect>(op->getDialect()) && isOfSizes(value));
  return known && llvm::all_of(op->getOperands(), isFinite);
}

namespace {
/// value = kept + dropped; either may be null, which is 0.
struct Split {
  Value kept, dropped;
};
} // namespace

static Split split(Value value, const PairFormula &formula, OpBuilder &builder) {
  if (!formula.dependsOnKey(value))
    return isFinite(value) ? Split{Value(), value} : Split{value, Value()};
  Operation *op = value.getDefiningOp();
  Location location = value.getLoc();
  auto zero = [&](Value part) { return part ? part : floatConstant(0, value.getType(), builder, location); };
  if (isa_and_nonnull<arith::AddFOp, arith::SubFOp>(op)) {
    Split lhs = split(op->getOperand(0), formula, builder), rhs = split(op->getOperand(1), formula, builder);
    if (!lhs.dropped && !rhs.dropped)
      return {value, Value()};
    auto combine = [&](Value a, Value b) -> Value {
      if (!b)
        return a;
      if (isa<arith::AddFOp>(op))
        return a ? arith::AddFOp::create(builder, location, a, b).getResult() : b;
      return a ? arith::SubFOp::create(builder, location, a, b).getResult()
               : arith::NegFOp::create(builder, location, b).getResult();
    };
    return {combine(lhs.kept, rhs.kept), combine(lhs.dropped, rhs.dropped)};
  }
  if (isa_and_nonnull<arith::NegFOp>(op)) {
    Split part = split(op->getOperand(0), formula, builder);
    if (!part.dropped)
      return {value, Value()};
    auto negative = [&](Value a) { return a ? arith::NegFOp::create(builder, location, a).getResult() : Value(); };
    return {negative(part.kept), negative(part.dropped)};
  }
  if (isa_and_nonnull<arith::MulFOp>(op)) {
    unsigned position = formula.dependsOnKey(op->getOperand(0)) ? 1 : 0;
    Value scale = op->getOperand(position);
    if (formula.dependsOnKey(scale) || !isFinite(scale))
      return {value, Value()};
    Split part = split(op->getOperand(1 - position), formula, builder);
    if (!part.dropped)
      return {value, Value()};
    auto scaled = [&](Value a) { return a ? arith::MulFOp::create(builder, location, a, scale).getResult() : Value(); };
    return {scaled(part.kept), scaled(part.dropped)};
  }
  auto choice = dyn_cast_or_null<arith::SelectOp>(op);
  if (choice && !formula.dependsOnKey(choice.getCondition())) {
    Split yes = split(choice.getTrueValue(), formula, builder), no = split(choice.getFalseValue(), formula, builder);
    if (!yes.dropped && !no.dropped)
      return {value, Value()};
    auto choose = [&](Value a, Value b) {
      return arith::SelectOp::create(builder, location, choice.getCondition(), zero(a), zero(b)).getResult();
    };
    return {choose(yes.kept, no.kept), choose(yes.dropped, no.dropped)};
  }
  return {value, Value()};
}

/// Adds `dropped`, a value of the score's formula, to the log-sum-exp of `softmax` for all who read it.
static void addBack(SoftmaxOp softmax, Value dropped, const PairFormula &formula) {
  auto kernel = softmax->getParentOfType<KernelOp>();
  std::string name = softmax.getLogsumexpName().str();
  softmax.setLogsumexpName(freshName(kernel, name + "_shifted"));
  OpBuilder builder(softmax->getContext());
  builder.setInsertionPointAfter(softmax);
  SmallVector<Attribute> names(cast<DefinitionOpInterface>(formula.op).getIndices().getValue());
  names.pop_back();
  auto tensor = TensorOp::create(builder, softmax.getLoc(), name, builder.getArrayAttr(names),
                                 cast<AttnTensorType>(softmax.getLogsumexp().getType()));
  Block &body = tensor.getBody().front();
  builder.setInsertionPointToEnd(&body);
  IRMapping mapping;
  for (auto [row, argument] : llvm::zip(formula.block->getArguments(), body.getArguments()))
    mapping.map(row, argument);
  SmallVector<Value> at(body.getArguments());
  Value shifted = ReadOp::create(builder, softmax.getLoc(), softmax.getLogsumexp(), at);
  Value shift = cloneSlice(dropped, mapping, builder);
  Value sum = arith::AddFOp::create(builder, softmax.getLoc(), shifted, shift);
  YieldOp::create(builder, softmax.getLoc(), sum);
  softmax.getLogsumexp().replaceUsesWithIf(
      tensor.getResult(), [&](OpOperand &use) { return use.get() && use.getOwner() != shifted.getDefiningOp(); });
}

namespace {
struct ShiftInvariance : attn::impl::AttnShiftInvarianceBase<ShiftInvariance> {
  void runOnOperation() override {
    for (const PairFormula &formula : pairFormulas(getOperation())) {
      auto score = dyn_cast<ScoreOp>(formula.op);
      if (!score)
        continue;
      // Everybody who reads the scores must be indifferent to the shift.
      bool indifferent = llvm::all_of(score.getResult().getUsers(), [](Operation *user) {
        auto softmax = dyn_cast<SoftmaxOp>(user);
        return softmax && !softmax.getSink();
      });
      if (!indifferent)
        continue;
      OpBuilder builder(formula.block->getTerminator());
      Split parts = split(formula.value(), formula, builder);
      if (!parts.dropped)
        continue;
      for (Operation *user : llvm::to_vector(score.getResult().getUsers()))
        if (auto softmax = cast<SoftmaxOp>(user); !softmax.getLogsumexp().use_empty())
          addBack(softmax, parts.dropped, formula);
      if (!parts.kept)
        parts.kept = floatConstant(0, parts.dropped.getType(), builder, score.getLoc());
      formula.setValue(parts.kept);
      noteRewrite(score, "shift invariance: a term of '" + score.getName() +
                             "' is the same for all keys, so the softmax does not need it");
    }
  }
};
} // namespace

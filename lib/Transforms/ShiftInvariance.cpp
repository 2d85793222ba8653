//===- ShiftInvariance.cpp - What shifts all scores of a row is dropped ---===//
//
//   score[m, n]  = sum[d](q[m, d] * k[n, d]) + f32(age[m])
//   weight, lse  = softmax(score)
//
// becomes
//
//   score[m, n]  = sum[d](q[m, d] * k[n, d])
//   weight, lse' = softmax(score)
//   lse[m]       = lse'[m] + f32(age[m])
//
// for a softmax does not change when a number is added to all its scores. With a sink it would: the sink is a score
// too. Only what is finite whatever the parameters hold is dropped (Finiteness.h): a row shifted by −∞ is a masked row.
// A float that depends on the query costs one addition a pair, so what must stay costs little.
//
//===----------------------------------------------------------------------===//

#include "Form.h"
#include "Rewrites.h"
#include "Scores.h"
#include "Slice.h"
#include "attn/Analysis/Finiteness.h"
#include "attn/Transforms/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/Builders.h"

using namespace mlir;
using namespace attn;

namespace attn {
#define GEN_PASS_DEF_ATTNSHIFTINVARIANCE
#include "attn/Transforms/Passes.h.inc"
} // namespace attn

namespace {
/// value = kept + dropped; either may be null, which is 0.
struct Split {
  Value kept, dropped;
};
} // namespace

namespace {
/// An operation that scales its operand at `position`.
struct Scale {
  Operation *op;
  unsigned position;
};

/// Where a value stands: what is finite there, and which scales around it, the outermost first, are not known to be
/// unless a choice further inside says so: what is dropped there is dropped scaled, for where the choice is another its
/// 0 must not meet them. `known` are the values that were split there, for a formula may use one twice.
struct Surroundings {
  TensorSet finite;
  SmallVector<Scale> scales;
  DenseMap<Value, Split> known;
};

/// Splits the values of one score. They are finite where the choices around them say so.
class Splitter {
public:
  Splitter(const PairFormula &formula, OpBuilder &builder) : formula(formula), builder(builder) {
    formula.block->walk([&](arith::SelectOp choice) { hasFlags |= !finiteWhere(choice.getCondition()).empty(); });
  }
  Split split(Value value, Surroundings &around);

private:
  Value scaled(Value value, const Scale &scale);
  Split splitOnce(Value value, Surroundings &around);
  Split splitSum(Operation *op, Surroundings &around);
  Split splitScaled(Operation *op, Surroundings &around);
  Split splitChoice(arith::SelectOp choice, Surroundings &around);

  const PairFormula &formula;
  OpBuilder &builder;
  bool hasFlags = false; ///< Whether any choice says that something is finite.
};
} // namespace

Value Splitter::scaled(Value value, const Scale &scale) {
  IRMapping mapping;
  mapping.map(scale.op->getOperand(scale.position), value);
  return builder.clone(*scale.op, mapping)->getResult(0);
}

/// Whether `scale` keeps what is finite so.
static bool isFinite(const Scale &scale, const TensorSet &finite) {
  if (scale.op->getNumOperands() == 1)
    return true;
  Value factor = scale.op->getOperand(1 - scale.position);
  // Where a flag bounds norms it bounds them times all scales without an index (ExpandDistances.cpp).
  bool bounded = !finite.empty() && dependence(factor).empty();
  return bounded || (isa<arith::MulFOp>(scale.op) && isFinite(factor, finite));
}

Split Splitter::splitSum(Operation *op, Surroundings &around) {
  Split lhs = split(op->getOperand(0), around), rhs = split(op->getOperand(1), around);
  if (!lhs.dropped && !rhs.dropped)
    return {op->getResult(0), Value()};
  auto combine = [&](Value a, Value b) -> Value {
    if (!b)
      return a;
    if (isa<arith::AddFOp>(op))
      return a ? arith::AddFOp::create(builder, op->getLoc(), a, b).getResult() : b;
    return a ? arith::SubFOp::create(builder, op->getLoc(), a, b).getResult()
             : arith::NegFOp::create(builder, op->getLoc(), b).getResult();
  };
  return {combine(lhs.kept, rhs.kept), combine(lhs.dropped, rhs.dropped)};
}

/// A negation, or a product or quotient with a scale that no key changes.
Split Splitter::splitScaled(Operation *op, Surroundings &around) {
  unsigned position = isa<arith::MulFOp>(op) && !formula.dependsOnKey(op->getOperand(0)) ? 1 : 0;
  Split whole = {op->getResult(0), Value()};
  if (op->getNumOperands() == 2 && formula.dependsOnKey(op->getOperand(1 - position)))
    return whole;
  Scale scale = {op, position};
  bool finite = isFinite(scale, around.finite);
  if (!finite && !hasFlags)
    return whole;
  Surroundings inside = {around.finite, around.scales, {}};
  inside.scales.push_back(scale);
  Split part = split(op->getOperand(position), finite ? around : inside);
  if (!part.dropped)
    return whole;
  return {part.kept ? scaled(part.kept, scale) : Value(), finite ? scaled(part.dropped, scale) : part.dropped};
}

Split Splitter::splitChoice(arith::SelectOp choice, Surroundings &around) {
  TensorSet implied = finiteWhere(choice.getCondition());
  Surroundings whenTrue = {around.finite, around.scales, {}};
  whenTrue.finite.insert(implied.begin(), implied.end());
  Split yes = split(choice.getTrueValue(), implied.empty() ? around : whenTrue);
  Split no = split(choice.getFalseValue(), around);
  if (!yes.dropped && !no.dropped)
    return {choice.getResult(), Value()};
  auto choose = [&](Value a, Value b) {
    auto orZero = [&](Value part) {
      return part ? part : floatConstant(0, choice.getType(), builder, choice.getLoc());
    };
    return arith::SelectOp::create(builder, choice.getLoc(), choice.getCondition(), orZero(a), orZero(b)).getResult();
  };
  return {choose(yes.kept, no.kept), choose(yes.dropped, no.dropped)};
}

Split Splitter::split(Value value, Surroundings &around) {
  if (auto known = around.known.find(value); known != around.known.end())
    return known->second;
  Split parts = splitOnce(value, around);
  around.known[value] = parts;
  return parts;
}

Split Splitter::splitOnce(Value value, Surroundings &around) {
  if (!formula.dependsOnKey(value)) {
    if (!isFinite(value, around.finite) ||
        !llvm::all_of(around.scales, [&](const Scale &scale) { return isFinite(scale, around.finite); }))
      return {value, Value()};
    Value dropped = value;
    for (const Scale &scale : llvm::reverse(around.scales))
      dropped = scaled(dropped, scale);
    return {Value(), dropped};
  }
  Operation *op = value.getDefiningOp();
  if (isa_and_nonnull<arith::AddFOp, arith::SubFOp>(op))
    return splitSum(op, around);
  if (isa_and_nonnull<arith::NegFOp, arith::MulFOp, arith::DivFOp>(op))
    return splitScaled(op, around);
  auto choice = dyn_cast_or_null<arith::SelectOp>(op);
  if (choice && !formula.dependsOnKey(choice.getCondition()))
    return splitChoice(choice, around);
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
      Surroundings nothing;
      Split parts = Splitter(formula, builder).split(formula.value(), nothing);
      if (!parts.dropped)
        continue;
      for (Operation *user : llvm::to_vector(score.getResult().getUsers()))
        if (auto softmax = cast<SoftmaxOp>(user); !softmax.getLogsumexp().use_empty())
          addBack(softmax, parts.dropped, formula);
      if (!parts.kept)
        parts.kept = floatConstant(0, parts.dropped.getType(), builder, score.getLoc());
      formula.setValue(parts.kept);
      noteRewrite(score, "shift invariance",
                  "a term of '" + score.getName() + "' is the same for all keys, so the softmax does not need it");
    }
  }
};
} // namespace

//===- Separate.cpp - Functions of a query part plus a key part -----------===//
//
//   energy[m, n] = sum[u](w[u] * tanh(a[m, u] + b[n, u]))
//
// becomes, with p = e^{2a[m, u]} · e^{2b[n, u]} made of factors that are computed once,
//
//   energy[m, n] = sum[u](w[u]) − 2 · sum[u](w[u] / (1 + p))
//
// because tanh z = 1 − 2 / (1 + e^{2z}). A function call of each pair becomes a multiply-add and a division. So do
//
//   sigmoid(a + b) = 1 / (1 + p), p = e^{−a} · e^{−b}       exp(a + b) = e^a · e^b
//
// Range. Exponents are clamped to ±87, where e^x is a normal number of f32. A product p may be 0 or ∞ as it should:
// 1 + p is held below e^80, so that its reciprocal is a normal number, and the division may be a multiplication by a
// refined estimate of the reciprocal (its flag arcp says so). The clamp cannot alter tanh or sigmoid unless one
// exponent is beyond 87 and the other beyond −69: elsewhere their sum is beyond ±18, where both are constant. exp has
// no such plateau and wants both exponents within ±87.
//
// Precision. The absolute error of tanh and sigmoid is below 1e-6. A score needs no more. A tensor that is stored
// should be right in proportion to its numbers, so there tanh wants parts whose mean square is 1/16 at least.
//
// A sum over pairs that are stored, as gradients have them, may have a call anywhere in its terms: 1 − tanh(a + b)²,
// say. There the call itself is replaced.
//
// Where the parts are otherwise (NaN included), or where one row alone has a factor, which then does not pay, the
// function itself is computed; of a sigmoid in a score, p = e^{−(a + b)}, at most e^80. The choice is one flag a call,
// and what it rules out is not computed.
//
//===----------------------------------------------------------------------===//

#include "Rewrites.h"
#include "Scores.h"
#include "Separation.h"
#include "Slice.h"
#include "attn/Analysis/PairBlocks.h"
#include "attn/Transforms/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace attn;

namespace attn {
#define GEN_PASS_DEF_ATTNSEPARATE
#include "attn/Transforms/Passes.h.inc"
} // namespace attn

/// The call in the product `value` that can be separated, if there is one. Everything on the way to it has one use.
static std::optional<SeparableCall> findCall(Value value, BlockArgument key) {
  Operation *op = value.getDefiningOp();
  if (!op || !value.hasOneUse())
    return {};
  if (auto call = SeparableCall::of(op, key))
    return call;
  if (isa<arith::MulFOp, arith::NegFOp>(op))
    for (Value operand : op->getOperands())
      if (auto call = findCall(operand, key))
        return call;
  if (isa<arith::DivFOp>(op))
    return findCall(op->getOperand(0), key);
  return {};
}

/// What `reduce` yields.
static Value termOf(ReduceOp reduce, IRMapping &mapping, OpBuilder &inside) {
  return cloneSlice(yielded(reduce.getBody()), mapping, inside);
}

/// What `reduce` yields, with `call`'s value replaced by 1.
static Value withoutCall(ReduceOp reduce, const SeparableCall &call, IRMapping &mapping, OpBuilder &inside) {
  mapping.map(call.op->getResult(0), floatConstant(1, reduce.getType(), inside, reduce.getLoc()));
  return termOf(reduce, mapping, inside);
}

static void note(Operation *op, const SeparableCall &call) {
  StringRef name = call.function == SeparableFunction::Tanh      ? "tanh"
                   : call.function == SeparableFunction::Sigmoid ? "sigmoid"
                                                                 : "exp";
  StringRef base = cast<DefinitionOpInterface>(op).getName();
  noteRewrite(op, "separate",
              "" + name + " of a query part plus a key part in '" + base +
                  (call.hasFewRows()
                       ? "' is made of one exponential: a score needs no error in proportion"
                       : "' is made of exponentials that are computed once for each query and each key; the function "
                         "itself is computed where those would not be exact enough"));
}

/// p of a term inside a sum, from its factors.
static Value productOf(const SeparatedFactors &factors, IRMapping &mapping, OpBuilder &inside) {
  Value a = cloneSlice(factors.first, mapping, inside), b = cloneSlice(factors.second, mapping, inside);
  return arith::MulFOp::create(inside, a.getLoc(), a, b);
}

static Value onePlus(Value p, OpBuilder &inside) {
  return arith::AddFOp::create(inside, p.getLoc(), p, floatConstant(1, p.getType(), inside, p.getLoc()));
}

static Value divide(Value x, Value denominator, OpBuilder &inside) {
  auto quotient = arith::DivFOp::create(inside, denominator.getLoc(), x, denominator);
  quotient.setFastmath(arith::FastMathFlags::arcp);
  return quotient;
}

/// `reduce` where `condition`, with terms x · p in the place of x · exp, and x / (1 + p) in that of x · sigmoid and of
/// x · tanh. `power` makes p, or 1 + p.
static Value sumOf(ReduceOp reduce, const SeparableCall &call, Value condition, OpBuilder &builder,
                   llvm::function_ref<Value(IRMapping &, OpBuilder &)> power) {
  return sumLike(reduce, condition, builder, [&](OpBuilder &inside, IRMapping &mapping) {
    Value factor = power(mapping, inside), rest = withoutCall(reduce, call, mapping, inside);
    if (call.function != SeparableFunction::Exp)
      return divide(rest, factor, inside);
    return arith::MulFOp::create(inside, reduce.getLoc(), rest, factor).getResult();
  });
}

/// sum(x · tanh) = sum(x) − 2 · sum(x / (1 + p)), of which `sum` is the last. Of other functions `sum` itself.
static Value fromSum(Value sum, ReduceOp reduce, const SeparableCall &call, DefinitionOpInterface op,
                     OpBuilder &builder) {
  if (call.function != SeparableFunction::Tanh)
    return sum;
  Location location = reduce.getLoc();
  Value total = sumLike(reduce, Value(), builder, [&](OpBuilder &inside, IRMapping &mapping) {
    return withoutCall(reduce, call, mapping, inside);
  });
  if (!dependence(total).contains(op.getBody().getArguments().back()))
    total = hoist(total, op, (op.getName() + "_total").str(), builder);
  Value two = floatConstant(2, reduce.getType(), builder, location);
  return arith::SubFOp::create(builder, location, total, arith::MulFOp::create(builder, location, sum, two));
}

/// Whether a sigmoid becomes one exponential where there are no factors: a score needs no error in proportion. A tanh
/// costs less as it is.
static bool takesOneExponential(const SeparableCall &call, Operation *op) {
  return !isa<TensorOp>(op) && call.function == SeparableFunction::Sigmoid;
}

/// What takes the place of `reduce`, a sum of the formula of `op`: that with `call` separated.
static Value separated(ReduceOp reduce, const SeparableCall &call, DefinitionOpInterface op, OpBuilder &builder) {
  OpBuilder atCall(call.op);
  bool isOneExponential = takesOneExponential(call, op);
  Value exponential = isOneExponential ? call.exponential(atCall) : Value();
  auto whole = [&](IRMapping &mapping, OpBuilder &inside) {
    return onePlus(cloneSlice(exponential, mapping, inside), inside);
  };
  if (call.hasFewRows())
    return sumOf(reduce, call, Value(), builder, whole);

  // A tensor that is stored has its last index in the lanes of vectors, so the factors of keys are laid out for that.
  BlockArgument innermost = isa<TensorOp>(op) ? op.getBody().getArguments().back() : BlockArgument();
  SeparatedFactors factors = makeFactors(call, op, innermost, atCall, builder);
  Value sum = sumOf(reduce, call, factors.isBounded, builder, [&](IRMapping &mapping, OpBuilder &inside) {
    Value p = productOf(factors, mapping, inside);
    return call.function == SeparableFunction::Exp ? p : bounded(onePlus(p, inside), inside);
  });
  Value isNotBounded = negate(factors.isBounded, builder);
  auto select = [&](Value first, Value second) {
    return arith::SelectOp::create(builder, reduce.getLoc(), factors.isBounded, first, second);
  };
  if (isOneExponential)
    return select(sum, sumOf(reduce, call, isNotBounded, builder, whole));
  Value result = fromSum(sum, reduce, call, op, builder);
  return select(result, sumLike(reduce, isNotBounded, builder, [&](OpBuilder &inside, IRMapping &mapping) {
                  return termOf(reduce, mapping, inside);
                }));
}

/// The same of a sum over pairs that are stored, with the call wherever it is in the terms.
static Value separatedInTerms(ReduceOp reduce, const SeparableCall &call, DefinitionOpInterface op,
                              OpBuilder &builder) {
  OpBuilder atCall(call.op);
  Block::BlockArgListType indices = op.getBody().getArguments();
  BlockArgument innermost = indices.empty() ? BlockArgument() : indices.back();
  SeparatedFactors factors = makeFactors(call, op, innermost, atCall, builder);
  Location location = reduce.getLoc();
  Value sum = sumLike(reduce, factors.isBounded, builder, [&](OpBuilder &inside, IRMapping &mapping) {
    Value denominator = bounded(onePlus(productOf(factors, mapping, inside), inside), inside);
    bool isTanh = call.function == SeparableFunction::Tanh;
    Value value = divide(floatConstant(isTanh ? 2 : 1, reduce.getType(), inside, location), denominator, inside);
    if (isTanh)
      value = arith::SubFOp::create(inside, location, floatConstant(1, reduce.getType(), inside, location), value);
    mapping.map(call.op->getResult(0), value);
    return termOf(reduce, mapping, inside);
  });
  Value otherwise = sumLike(reduce, negate(factors.isBounded, builder), builder,
                            [&](OpBuilder &inside, IRMapping &mapping) { return termOf(reduce, mapping, inside); });
  return arith::SelectOp::create(builder, location, factors.isBounded, sum, otherwise);
}

/// The call in a term of `reduce`, a sum over pairs that are stored.
static std::optional<SeparableCall> findCallInTerms(ReduceOp reduce) {
  for (Operation &inner : reduce.getBody().front())
    if (!isa<math::ExpOp>(inner) && !reduce.isConditional())
      if (auto call = SeparableCall::of(&inner, reduce.getBody().getArguments().back()); call && !call->hasFewRows())
        return call;
  return {};
}

static void replace(ReduceOp reduce, const SeparableCall &call, DefinitionOpInterface op,
                    llvm::function_ref<Value(ReduceOp, const SeparableCall &, DefinitionOpInterface, OpBuilder &)> by) {
  note(op, call);
  OpBuilder builder(reduce);
  reduce.getResult().replaceAllUsesWith(by(reduce, call, op, builder));
  reduce->erase();
}

namespace {
struct Separate : attn::impl::AttnSeparateBase<Separate> {
  void runOnOperation() override {
    for (Operation &op : llvm::make_early_inc_range(getOperation().getBody().front())) {
      if (!isa<ScoreOp, WeightedSumOp, TensorOp>(op))
        continue;
      auto definition = cast<DefinitionOpInterface>(op);
      Block &block = definition.getBody().front();
      if (readsPairs(&op) && !isPairs(op.getResult(0))) {
        for (ReduceOp reduce : llvm::to_vector(block.getOps<ReduceOp>()))
          if (auto call = findCallInTerms(reduce))
            replace(reduce, *call, definition, separatedInTerms);
        continue;
      }
      if (block.getNumArguments() < 2)
        continue;
      BlockArgument key = block.getArguments().back();
      for (ReduceOp reduce : llvm::to_vector(block.getOps<ReduceOp>()))
        if (reduce.getKind() == ReduceKind::Sum && !reduce.isConditional())
          if (auto call = findCall(yielded(reduce.getBody()), key))
            if (!call->hasFewRows() || takesOneExponential(*call, &op))
              replace(reduce, *call, definition, separated);
    }
  }
};
} // namespace

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
// Where the parts are otherwise (NaN included), the function itself is computed. The choice is one flag a call, and
// what it rules out is not computed.
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

/// What `reduce` yields, with `call`'s value replaced by 1 or divided by `denominator`.
static Value withoutCall(ReduceOp reduce, const SeparableCall &call, Value denominator, IRMapping &mapping,
                         OpBuilder &builder) {
  Value yielded = reduce.getBody().front().getTerminator()->getOperand(0);
  Location location = reduce.getLoc();
  mapping.map(call.op->getResult(0), floatConstant(1, reduce.getType(), builder, location));
  Value rest = cloneSlice(yielded, mapping, builder);
  if (!denominator)
    return rest;
  auto quotient = arith::DivFOp::create(builder, location, rest, denominator);
  quotient.setFastmath(arith::FastMathFlags::arcp);
  return quotient;
}

static void note(Operation *op, const SeparableCall &call) {
  StringRef name = call.function == SeparableFunction::Tanh      ? "tanh"
                   : call.function == SeparableFunction::Sigmoid ? "sigmoid"
                                                                 : "exp";
  StringRef base = cast<DefinitionOpInterface>(op).getName();
  noteRewrite(op, "separate",
              "" + name + " of a query part plus a key part in '" + base +
                  "' is made of exponentials that are computed once for each query and each key; the function "
                  "itself is computed where those would not be exact enough");
}

/// 1 + p, bounded, for a term inside a sum.
static Value denominatorOf(const SeparatedFactors &factors, IRMapping &mapping, OpBuilder &inside) {
  Value a = cloneSlice(factors.first, mapping, inside), b = cloneSlice(factors.second, mapping, inside);
  Location location = a.getLoc();
  Value p = arith::MulFOp::create(inside, location, a, b);
  Value one = floatConstant(1, p.getType(), inside, location);
  return bounded(arith::AddFOp::create(inside, location, p, one), inside);
}

/// Replaces `reduce` by `separated` where the factors may be used, and by what it is elsewhere.
static void replaceWhereBounded(ReduceOp reduce, Value isBounded, Value separated, OpBuilder &builder) {
  Value otherwise = sumLike(reduce, negate(isBounded, builder), builder, [&](OpBuilder &inside, IRMapping &mapping) {
    return cloneSlice(reduce.getBody().front().getTerminator()->getOperand(0), mapping, inside);
  });
  Value result = arith::SelectOp::create(builder, reduce.getLoc(), isBounded, separated, otherwise);
  reduce.getResult().replaceAllUsesWith(result);
  reduce->erase();
}

/// Separates `call` in the sum `reduce` of the formula of `op`.
static void separate(ReduceOp reduce, const SeparableCall &call, DefinitionOpInterface op) {
  note(op, call);
  Location location = reduce.getLoc();
  Type type = reduce.getType();
  OpBuilder atCall(call.op), builder(reduce);
  // A tensor that is stored has its last index in the lanes of vectors, so the factors of keys are laid out for that.
  BlockArgument innermost = isa<TensorOp>(op) ? op.getBody().getArguments().back() : BlockArgument();
  SeparatedFactors factors = makeFactors(call, op, innermost, atCall, builder);
  Value isBounded = factors.isBounded;
  Value separated = sumLike(reduce, isBounded, builder, [&](OpBuilder &inside, IRMapping &mapping) {
    if (call.function != SeparableFunction::Exp)
      return withoutCall(reduce, call, denominatorOf(factors, mapping, inside), mapping, inside);
    Value a = cloneSlice(factors.first, mapping, inside), b = cloneSlice(factors.second, mapping, inside);
    Value p = arith::MulFOp::create(inside, location, a, b);
    Value rest = withoutCall(reduce, call, Value(), mapping, inside);
    return arith::MulFOp::create(inside, location, rest, p).getResult();
  });
  if (call.function == SeparableFunction::Tanh) {
    Value total = sumLike(reduce, Value(), builder, [&](OpBuilder &inside, IRMapping &mapping) {
      return withoutCall(reduce, call, Value(), mapping, inside);
    });
    if (!dependence(total).contains(op.getBody().getArguments().back()))
      total = hoist(total, op, (op.getName() + "_total").str(), builder);
    Value two = floatConstant(2, type, builder, location);
    Value twice = arith::MulFOp::create(builder, location, separated, two);
    separated = arith::SubFOp::create(builder, location, total, twice);
  }
  replaceWhereBounded(reduce, isBounded, separated, builder);
}

/// Separates a tanh or sigmoid wherever it is in the terms of `reduce`, a sum over pairs that are stored.
static void separateInTerms(ReduceOp reduce, DefinitionOpInterface op) {
  BlockArgument key = reduce.getBody().getArguments().back();
  std::optional<SeparableCall> call;
  for (Operation &inner : reduce.getBody().front())
    if (!call && !isa<math::ExpOp>(inner))
      call = SeparableCall::of(&inner, key);
  if (!call || reduce.isConditional())
    return;
  note(op, *call);
  OpBuilder atCall(call->op), builder(reduce);
  Block::BlockArgListType indices = op.getBody().getArguments();
  BlockArgument innermost = indices.empty() ? BlockArgument() : indices.back();
  SeparatedFactors factors = makeFactors(*call, op, innermost, atCall, builder);
  Location location = reduce.getLoc();
  Value separated = sumLike(reduce, factors.isBounded, builder, [&](OpBuilder &inside, IRMapping &mapping) {
    Value denominator = denominatorOf(factors, mapping, inside);
    bool isTanh = call->function == SeparableFunction::Tanh;
    Value numerator = floatConstant(isTanh ? 2 : 1, reduce.getType(), inside, location);
    auto quotient = arith::DivFOp::create(inside, location, numerator, denominator);
    quotient.setFastmath(arith::FastMathFlags::arcp);
    Value value = quotient;
    if (isTanh)
      value = arith::SubFOp::create(inside, location, floatConstant(1, reduce.getType(), inside, location), value);
    mapping.map(call->op->getResult(0), value);
    return cloneSlice(reduce.getBody().front().getTerminator()->getOperand(0), mapping, inside);
  });
  replaceWhereBounded(reduce, factors.isBounded, separated, builder);
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
          separateInTerms(reduce, definition);
        continue;
      }
      if (block.getNumArguments() < 2)
        continue;
      BlockArgument key = block.getArguments().back();
      for (ReduceOp reduce : llvm::to_vector(block.getOps<ReduceOp>()))
        if (reduce.getKind() == ReduceKind::Sum && !reduce.isConditional())
          if (auto call = findCall(reduce.getBody().front().getTerminator()->getOperand(0), key))
            separate(reduce, *call, definition);
    }
  }
};
} // namespace

//===- Separate.cpp - Functions of a query part plus a key part -----------===//
//
//   energy[m, n] = sum[u](w[u] * tanh(a[m, u] + b[n, u]))
//
// becomes, with x = e^{2a[m, u]} · e^{2b[n, u]} made of factors that are computed once,
//
//   energy[m, n] = sum[u](w[u]) − 2 · sum[u](w[u] / (1 + x))
//
// because tanh z = 1 − 2 / (1 + e^{2z}). A function call of each pair becomes a multiply-add and a division. So do
//
//   sigmoid(a + b) = 1 / (1 + e^{−a} · e^{−b})       exp(a + b) = e^a · e^b
//
// Range. Factors from e^−40 to e^40 have products from e^−80 to e^80; all of these, and 1 + x, are normal numbers of
// f32 (which has e^±87), and so is the reciprocal: nothing overflows and nothing is 0 · ∞. So where all factors are in
// this range (|a|, |b| ≤ 20 for tanh) the result has an absolute error of a few units in the last place of 1, and the
// division may be a multiplication by a refined estimate of the reciprocal (its flag arcp says so). Outside (NaN
// included) the original formula is computed instead: no clamp could do, for a + b may be small where a and b are
// large. The choice is one flag a call, and what it rules out is not computed.
//
//===----------------------------------------------------------------------===//

#include "Scores.h"
#include "Slice.h"
#include "attn/Transforms/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/Matchers.h"

#include <cmath>

using namespace mlir;
using namespace attn;

namespace attn {
#define GEN_PASS_DEF_ATTNSEPARATE
#include "attn/Transforms/Passes.h.inc"
} // namespace attn

namespace {
enum class Function { Tanh, Sigmoid, Exp };

/// A call of `function` on first + second, of which neither part has all index variables of the other.
struct Call {
  Function function;
  Operation *op;                                     ///< Whose result is the function's value.
  SmallVector<std::pair<Value, bool>> first, second; ///< Terms, and whether they are subtracted.
};
} // namespace

static bool isOne(Value value) { return matchPattern(value, m_OneFloat()); }

/// The function that `op` computes, and of what. A sigmoid is 1 / (1 + exp(−x)) here.
static std::optional<std::pair<Function, Value>> functionOf(Operation *op, bool &negative) {
  negative = false;
  if (auto tanh = dyn_cast<math::TanhOp>(op))
    return std::pair(Function::Tanh, tanh.getOperand());
  if (auto exp = dyn_cast<math::ExpOp>(op))
    return std::pair(Function::Exp, exp.getOperand());
  auto quotient = dyn_cast<arith::DivFOp>(op);
  auto sum = quotient ? quotient.getRhs().getDefiningOp<arith::AddFOp>() : arith::AddFOp();
  if (!sum || !isOne(quotient.getLhs()))
    return {};
  for (unsigned position : {0, 1})
    if (auto exp = sum->getOperand(position).getDefiningOp<math::ExpOp>();
        exp && isOne(sum->getOperand(1 - position))) {
      // 1 / (1 + e^y) is the sigmoid of −y.
      negative = true;
      return std::pair(Function::Sigmoid, exp.getOperand());
    }
  return {};
}

static void collectTerms(Value value, bool negative, SmallVectorImpl<std::pair<Value, bool>> &terms) {
  Operation *op = value.getDefiningOp();
  if (isa_and_nonnull<arith::AddFOp, arith::SubFOp>(op)) {
    collectTerms(op->getOperand(0), negative, terms);
    collectTerms(op->getOperand(1), negative != isa<arith::SubFOp>(op), terms);
  } else if (isa_and_nonnull<arith::NegFOp>(op)) {
    collectTerms(op->getOperand(0), !negative, terms);
  } else {
    terms.push_back({value, negative});
  }
}

/// Splits the sum that a call takes: the terms that depend on `key`, and the others. False where that is no use.
static bool split(Call &call, ArrayRef<std::pair<Value, bool>> terms, BlockArgument key) {
  IndexSet first, second;
  for (auto &term : terms) {
    IndexSet used = dependence(term.first);
    auto &side = used.contains(key) ? second : first;
    (used.contains(key) ? call.second : call.first).push_back(term);
    side.insert(used.begin(), used.end());
  }
  bool firstMore = llvm::any_of(first, [&](BlockArgument index) { return !second.contains(index); });
  return firstMore && second.contains(key);
}

/// The call in the product `value` that can be separated, if there is one. Everything on the way to it has one use.
static std::optional<Call> findCall(Value value, BlockArgument key) {
  Operation *op = value.getDefiningOp();
  if (!op || !value.hasOneUse())
    return {};
  bool negative;
  if (auto function = functionOf(op, negative)) {
    Call call{function->first, op, {}, {}};
    SmallVector<std::pair<Value, bool>> terms;
    collectTerms(function->second, negative, terms);
    if (split(call, terms, key))
      return call;
  }
  if (isa<arith::MulFOp, arith::NegFOp>(op))
    for (Value operand : op->getOperands())
      if (auto call = findCall(operand, key))
        return call;
  if (isa<arith::DivFOp>(op))
    return findCall(op->getOperand(0), key);
  return {};
}

/// e^{scale · (the sum of `terms`)}, at the builder's place.
static Value exponential(ArrayRef<std::pair<Value, bool>> terms, double scale, OpBuilder &builder) {
  Location location = terms.front().first.getLoc();
  Type type = terms.front().first.getType();
  Value sum;
  for (auto [term, negative] : terms) {
    if (!sum)
      sum = negative ? arith::NegFOp::create(builder, location, term).getResult() : term;
    else if (negative)
      sum = arith::SubFOp::create(builder, location, sum, term);
    else
      sum = arith::AddFOp::create(builder, location, sum, term);
  }
  if (scale != 1)
    sum = arith::MulFOp::create(builder, location, sum, floatConstant(scale, type, builder, location));
  return math::ExpOp::create(builder, location, sum);
}

/// Whether all elements of `tensor` are from e^−40 to e^40 (never where one is NaN): an i1 at the builder's place.
static Value isBounded(TypedValue<AttnTensorType> tensor, OpBuilder &builder) {
  Location location = tensor.getLoc();
  AttnTensorType type = tensor.getType();
  auto definition = tensor.getDefiningOp<TensorOp>();
  Value bounded;
  for (bool largest : {true, false}) {
    auto extreme =
        ReduceOp::create(builder, location, largest ? ReduceKind::Max : ReduceKind::Min, definition.getIndices(),
                         type.getShape(), type.getComputeType(), ValueRange(), Value(), false);
    OpBuilder inside = OpBuilder::atBlockEnd(&extreme.getBody().front());
    SmallVector<Value> at(extreme.getBody().getArguments());
    Value element = ReadOp::create(inside, location, tensor, at);
    YieldOp::create(inside, location, element);
    Value limit = floatConstant(std::exp(largest ? 40.0 : -40.0), type.getComputeType(), builder, location);
    Value inRange = arith::CmpFOp::create(
        builder, location, largest ? arith::CmpFPredicate::OLE : arith::CmpFPredicate::OGE, extreme.getResult(), limit);
    bounded = bounded ? arith::AndIOp::create(builder, location, bounded, inRange).getResult() : inRange;
  }
  return bounded;
}

/// A rank-0 tensor before `op` that says whether all factors are in range; read at the builder's place.
static Value boundedFlag(Value first, Value second, DefinitionOpInterface op, OpBuilder &builder) {
  Value bounded;
  OpBuilder::InsertionGuard guard(builder);
  Operation *created = nullptr;
  for (Value factor : {first, second}) {
    auto tensor = cast<TypedValue<AttnTensorType>>(factor.getDefiningOp<ReadOp>().getTensor());
    Value inRange = isBounded(tensor, builder);
    bounded = created ? arith::AndIOp::create(builder, op.getLoc(), bounded, inRange).getResult() : inRange;
    created = bounded.getDefiningOp();
  }
  builder.setInsertionPointAfter(created);
  return hoist(bounded, op, (op.getName() + "_bounded").str(), builder);
}

/// What `reduce` yields, with `call`'s value replaced by 1 or divided by `denominator`.
static Value withoutCall(ReduceOp reduce, const Call &call, Value denominator, IRMapping &mapping, OpBuilder &builder) {
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

/// Separates `call` in the sum `reduce` of the formula of `op`.
static void separate(ReduceOp reduce, const Call &call, DefinitionOpInterface op) {
  Location location = reduce.getLoc();
  Type type = reduce.getType();
  double scale = call.function == Function::Tanh ? 2 : call.function == Function::Sigmoid ? -1 : 1;
  OpBuilder builder(call.op);
  Value first = hoist(exponential(call.first, scale, builder), op, (op.getName() + "_query_factor").str(), builder);
  Value second = hoist(exponential(call.second, scale, builder), op, (op.getName() + "_key_factor").str(), builder);

  builder.setInsertionPoint(reduce);
  Value bounded = boundedFlag(first, second, op, builder);
  Value separated = sumLike(reduce, bounded, builder, [&](OpBuilder &inside, IRMapping &mapping) {
    Value a = cloneSlice(first, mapping, inside), b = cloneSlice(second, mapping, inside);
    Value x = arith::MulFOp::create(inside, location, a, b);
    if (call.function == Function::Exp) {
      Value rest = withoutCall(reduce, call, Value(), mapping, inside);
      return arith::MulFOp::create(inside, location, rest, x).getResult();
    }
    Value one = floatConstant(1, type, inside, location);
    Value denominator = arith::AddFOp::create(inside, location, one, x);
    return withoutCall(reduce, call, denominator, mapping, inside);
  });
  if (call.function == Function::Tanh) {
    Value total = sumLike(reduce, Value(), builder, [&](OpBuilder &inside, IRMapping &mapping) {
      return withoutCall(reduce, call, Value(), mapping, inside);
    });
    if (!dependence(total).contains(op.getBody().getArguments().back()))
      total = hoist(total, op, (op.getName() + "_total").str(), builder);
    Value two = floatConstant(2, type, builder, location);
    Value twice = arith::MulFOp::create(builder, location, separated, two);
    separated = arith::SubFOp::create(builder, location, total, twice);
  }
  Value otherwise = sumLike(reduce, negate(bounded, builder), builder, [&](OpBuilder &inside, IRMapping &mapping) {
    return cloneSlice(reduce.getBody().front().getTerminator()->getOperand(0), mapping, inside);
  });
  Value result = arith::SelectOp::create(builder, location, bounded, separated, otherwise);
  reduce.getResult().replaceAllUsesWith(result);
  reduce->erase();
  StringRef name = call.function == Function::Tanh ? "tanh" : call.function == Function::Sigmoid ? "sigmoid" : "exp";
  noteRewrite(op, "separate: " + name + " of a query part plus a key part in '" + op.getName() +
                      "' is made of exponentials that are computed once for each query and each key; where they leave "
                      "e^-40 .. e^40 the function itself is computed");
}

namespace {
struct Separate : attn::impl::AttnSeparateBase<Separate> {
  void runOnOperation() override {
    for (Operation &op : llvm::make_early_inc_range(getOperation().getBody().front())) {
      if (!isa<ScoreOp, WeightedSumOp, TensorOp>(op))
        continue;
      auto definition = cast<DefinitionOpInterface>(op);
      Block &block = definition.getBody().front();
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

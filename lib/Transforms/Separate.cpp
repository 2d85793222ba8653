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
// Where the parts are otherwise (NaN included), the function itself is computed. The choice is one flag a call, and
// what it rules out is not computed.
//
//===----------------------------------------------------------------------===//

#include "Rewrites.h"
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

/// e^±87 are normal numbers of f32.
static constexpr double largestExponent = 87;

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

/// e^{scale · (the sum of `terms`)}, at the builder's place. The exponent is clamped where `clamped`.
static Value exponential(ArrayRef<std::pair<Value, bool>> terms, double scale, bool clamped, OpBuilder &builder) {
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
  if (clamped) {
    sum = arith::MinimumFOp::create(builder, location, sum, floatConstant(largestExponent, type, builder, location));
    sum = arith::MaximumFOp::create(builder, location, sum, floatConstant(-largestExponent, type, builder, location));
  }
  return math::ExpOp::create(builder, location, sum);
}

namespace {
/// Flags about the elements of a tensor of factors, at the builder's place.
class FactorFlags {
public:
  FactorFlags(Value factor, OpBuilder &builder)
      : builder(builder), location(factor.getLoc()),
        tensor(cast<TypedValue<AttnTensorType>>(factor.getDefiningOp<ReadOp>().getTensor())),
        largest(reduce(ReduceKind::Max)), smallest(reduce(ReduceKind::Min)) {}

  Value allBelow(double exponent) { return compare(arith::CmpFPredicate::OLT, largest, std::exp(exponent)); }
  Value allAbove(double exponent) { return compare(arith::CmpFPredicate::OGT, smallest, std::exp(exponent)); }
  /// Whether the mean of x² over the factors e^x is `square` at least, by x² ≤ e^x + e^−x − 2 (equal for small x).
  Value haveMeanSquare(double square);

private:
  Type type() { return tensor.getType().getComputeType(); }
  Value reduce(ReduceKind kind, llvm::function_ref<Value(Value, OpBuilder &)> term = {});
  Value compare(arith::CmpFPredicate predicate, Value value, double limit) {
    return arith::CmpFOp::create(builder, location, predicate, value, floatConstant(limit, type(), builder, location));
  }

  OpBuilder &builder;
  Location location;
  TypedValue<AttnTensorType> tensor;
  Value largest, smallest;
};
} // namespace

Value FactorFlags::reduce(ReduceKind kind, llvm::function_ref<Value(Value, OpBuilder &)> term) {
  auto result = ReduceOp::create(builder, location, kind, tensor.getDefiningOp<TensorOp>().getIndices(),
                                 tensor.getType().getShape(), type(), ValueRange(), Value(), false);
  OpBuilder inside = OpBuilder::atBlockEnd(&result.getBody().front());
  SmallVector<Value> at(result.getBody().getArguments());
  Value element = ReadOp::create(inside, location, tensor, at);
  YieldOp::create(inside, location, term ? term(element, inside) : element);
  return result;
}

Value FactorFlags::haveMeanSquare(double square) {
  Value excess = reduce(ReduceKind::Sum, [&](Value element, OpBuilder &inside) -> Value {
    Value one = floatConstant(1, type(), inside, location), limit = floatConstant(2 + square, type(), inside, location);
    Value inverse = arith::DivFOp::create(inside, location, one, element);
    Value both = arith::AddFOp::create(inside, location, element, inverse);
    return arith::SubFOp::create(inside, location, both, limit);
  });
  return compare(arith::CmpFPredicate::OGE, excess, 0);
}

/// Whether the factors may be used in the place of `function` (see the top), at the builder's place. `proportional`
/// asks for an error in proportion to the function's values.
static Value mayUse(Function function, Value first, Value second, bool proportional, OpBuilder &builder) {
  Location location = first.getLoc();
  FactorFlags a(first, builder), b(second, builder);
  auto all = [&](Value x, Value y) { return arith::AndIOp::create(builder, location, x, y).getResult(); };
  auto either = [&](Value x, Value y) { return arith::OrIOp::create(builder, location, x, y).getResult(); };
  double most = largestExponent - 0.1, opposite = largestExponent - 18;
  if (function == Function::Exp)
    return all(all(a.allBelow(most), a.allAbove(-most)), all(b.allBelow(most), b.allAbove(-most)));
  Value safe =
      all(all(either(a.allBelow(most), b.allAbove(-opposite)), either(b.allBelow(most), a.allAbove(-opposite))),
          all(either(a.allAbove(-most), b.allBelow(opposite)), either(b.allAbove(-most), a.allBelow(opposite))));
  if (function == Function::Tanh && proportional) // exponents are twice the parts
    safe = all(safe, either(a.haveMeanSquare(4.0 / 16), b.haveMeanSquare(4.0 / 16)));
  return safe;
}

/// The smaller of `value` and e^80, NaN if it is. As a comparison, which is one instruction.
static Value bounded(Value value, OpBuilder &builder) {
  Location location = value.getLoc();
  Value limit = floatConstant(std::exp(80.0), value.getType(), builder, location);
  Value above = arith::CmpFOp::create(builder, location, arith::CmpFPredicate::OGT, value, limit);
  return arith::SelectOp::create(builder, location, above, limit, value);
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
  double scale = call.function == Function::Sigmoid ? -1 : call.function == Function::Tanh ? 2 : 1;
  bool clamped = call.function != Function::Exp;
  OpBuilder builder(call.op);
  // A tensor that is stored has its last index in the lanes of vectors, so the factors of keys are laid out for that.
  BlockArgument innermost = isa<TensorOp>(op) ? op.getBody().getArguments().back() : BlockArgument();
  auto factor = [&](ArrayRef<std::pair<Value, bool>> terms, const char *name) {
    return hoist(exponential(terms, scale, clamped, builder), op, (op.getName() + name).str(), builder, innermost);
  };
  Value first = factor(call.first, "_query_factor"), second = factor(call.second, "_key_factor");

  builder.setInsertionPoint(reduce);
  Value flag = mayUse(call.function, first, second, isa<TensorOp>(op), builder);
  Value isBounded = hoist(flag, op, (op.getName() + "_bounded").str(), builder);
  Value separated = sumLike(reduce, isBounded, builder, [&](OpBuilder &inside, IRMapping &mapping) {
    Value a = cloneSlice(first, mapping, inside), b = cloneSlice(second, mapping, inside);
    Value p = arith::MulFOp::create(inside, location, a, b);
    if (call.function == Function::Exp) {
      Value rest = withoutCall(reduce, call, Value(), mapping, inside);
      return arith::MulFOp::create(inside, location, rest, p).getResult();
    }
    Value one = floatConstant(1, type, inside, location);
    Value denominator = bounded(arith::AddFOp::create(inside, location, p, one), inside);
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
  Value otherwise = sumLike(reduce, negate(isBounded, builder), builder, [&](OpBuilder &inside, IRMapping &mapping) {
    return cloneSlice(reduce.getBody().front().getTerminator()->getOperand(0), mapping, inside);
  });
  Value result = arith::SelectOp::create(builder, location, isBounded, separated, otherwise);
  reduce.getResult().replaceAllUsesWith(result);
  reduce->erase();
  StringRef name = call.function == Function::Tanh ? "tanh" : call.function == Function::Sigmoid ? "sigmoid" : "exp";
  noteRewrite(op, "separate",
              "" + name + " of a query part plus a key part in '" + op.getName() +
                  "' is made of exponentials that are computed once for each query and each key; the function "
                  "itself is computed where those would not be exact enough");
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

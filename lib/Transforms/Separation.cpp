//===- Separation.cpp - Calls on a query part plus a key part -------------===//

#include "Separation.h"
#include "Scores.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/Matchers.h"

#include <cmath>

using namespace mlir;
using namespace attn;

/// e^±87 are normal numbers of f32.
static constexpr double largestExponent = 87;

static bool isOne(Value value) { return matchPattern(value, m_OneFloat()); }

/// The function that `op` computes, and of what. A sigmoid is 1 / (1 + exp(−x)) here.
static std::optional<std::pair<SeparableFunction, Value>> functionOf(Operation *op, bool &negative) {
  negative = false;
  if (auto tanh = dyn_cast<math::TanhOp>(op))
    return std::pair(SeparableFunction::Tanh, tanh.getOperand());
  if (auto exp = dyn_cast<math::ExpOp>(op))
    return std::pair(SeparableFunction::Exp, exp.getOperand());
  auto quotient = dyn_cast<arith::DivFOp>(op);
  auto sum = quotient ? quotient.getRhs().getDefiningOp<arith::AddFOp>() : arith::AddFOp();
  if (!sum || !isOne(quotient.getLhs()))
    return {};
  for (unsigned position : {0, 1})
    if (auto exp = sum->getOperand(position).getDefiningOp<math::ExpOp>();
        exp && isOne(sum->getOperand(1 - position))) {
      // 1 / (1 + e^y) is the sigmoid of −y.
      negative = true;
      return std::pair(SeparableFunction::Sigmoid, exp.getOperand());
    }
  return {};
}

/// Splits the sum that a call takes: the terms that depend on `key`, and the others. False where that is no use.
static bool split(SeparableCall &call, ArrayRef<Term> terms, BlockArgument key) {
  IndexSet first, second;
  for (auto &term : terms) {
    IndexSet used = dependence(term.value);
    auto &side = used.contains(key) ? second : first;
    (used.contains(key) ? call.second : call.first).push_back(term);
    side.insert(used.begin(), used.end());
  }
  bool firstMore = llvm::any_of(first, [&](BlockArgument index) { return !second.contains(index); });
  return firstMore && second.contains(key);
}

std::optional<SeparableCall> SeparableCall::of(Operation *op, BlockArgument key) {
  bool negative;
  auto function = functionOf(op, negative);
  if (!function)
    return {};
  SeparableCall call{function->first, op, {}, {}};
  return split(call, termsOfSum(function->second, negative), key) ? std::optional(call) : std::nullopt;
}

/// e^{scale · (the sum of `terms`)}, at the builder's place. The exponent is clamped where `clamped`.
static Value exponential(ArrayRef<Term> terms, double scale, bool clamped, OpBuilder &builder) {
  Location location = terms.front().value.getLoc();
  Type type = terms.front().value.getType();
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
static Value mayUse(SeparableFunction function, Value first, Value second, bool proportional, OpBuilder &builder) {
  Location location = first.getLoc();
  FactorFlags a(first, builder), b(second, builder);
  auto all = [&](Value x, Value y) { return arith::AndIOp::create(builder, location, x, y).getResult(); };
  auto either = [&](Value x, Value y) { return arith::OrIOp::create(builder, location, x, y).getResult(); };
  double most = largestExponent - 0.1, opposite = largestExponent - 18;
  if (function == SeparableFunction::Exp)
    return all(all(a.allBelow(most), a.allAbove(-most)), all(b.allBelow(most), b.allAbove(-most)));
  Value safe =
      all(all(either(a.allBelow(most), b.allAbove(-opposite)), either(b.allBelow(most), a.allAbove(-opposite))),
          all(either(a.allAbove(-most), b.allBelow(opposite)), either(b.allAbove(-most), a.allBelow(opposite))));
  if (function == SeparableFunction::Tanh && proportional) // exponents are twice the parts
    safe = all(safe, either(a.haveMeanSquare(4.0 / 16), b.haveMeanSquare(4.0 / 16)));
  return safe;
}

Value attn::bounded(Value value, OpBuilder &builder) {
  Location location = value.getLoc();
  Value limit = floatConstant(std::exp(80.0), value.getType(), builder, location);
  Value above = arith::CmpFOp::create(builder, location, arith::CmpFPredicate::OGT, value, limit);
  return arith::SelectOp::create(builder, location, above, limit, value);
}

static TensorOp factorTensor(Value factor) {
  return factor.getDefiningOp<ReadOp>().getTensor().getDefiningOp<TensorOp>();
}

SeparatedFactors attn::makeFactors(const SeparableCall &call, DefinitionOpInterface op, BlockArgument innermost,
                                   OpBuilder &atCall, OpBuilder &atSum) {
  double scale = call.function == SeparableFunction::Sigmoid ? -1 : call.function == SeparableFunction::Tanh ? 2 : 1;
  bool clamped = call.function != SeparableFunction::Exp;
  auto factor = [&](ArrayRef<Term> terms, const char *name) {
    return hoist(exponential(terms, scale, clamped, atCall), op, (op.getName() + name).str(), atCall, innermost);
  };
  SeparatedFactors factors;
  factors.first = factor(call.first, "_query_factor");
  factors.second = factor(call.second, "_key_factor");
  // Calls of the same parts, whichever is the key's, share their flag.
  Value earlier = factors.first, later = factors.second;
  if (factorTensor(later)->isBeforeInBlock(factorTensor(earlier)))
    std::swap(earlier, later);
  Value flag = mayUse(call.function, earlier, later, isa<TensorOp>(op), atSum);
  factors.isBounded = hoist(flag, op, (op.getName() + "_bounded").str(), atSum);
  return factors;
}

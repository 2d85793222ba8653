//===- Separation.cpp - Calls on a query part plus a key part -------------===//

#include "Separation.h"
#include "Scores.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

#include <cmath>

using namespace mlir;
using namespace attn;

/// Where only so many rows share a factor, the function itself costs less than the factors and their flag.
static constexpr int64_t fewRows = 1;

/// e^±87 are normal numbers of f32.
static constexpr double largestExponent = 87;

/// The reciprocal of e^80 is a normal number too.
static constexpr double largestBounded = 80;

/// The function that `op` computes, and of what: of a sigmoid, 1 / (1 + exp(y)), that is y.
static std::optional<std::pair<SeparableFunction, Value>> functionOf(Operation *op) {
  if (auto tanh = dyn_cast<math::TanhOp>(op))
    return std::pair(SeparableFunction::Tanh, tanh.getOperand());
  if (auto exp = dyn_cast<math::ExpOp>(op))
    return std::pair(SeparableFunction::Exp, exp.getOperand());
  if (Value operand = logisticOperand(op))
    return std::pair(SeparableFunction::Sigmoid, operand);
  return {};
}

/// The index variables that terms of `own` have, and those of `other` do not.
static IndexSet ownIndices(ArrayRef<Term> own, ArrayRef<Term> other) {
  IndexSet indices;
  for (const Term &term : own)
    for (BlockArgument index : dependence(term.value))
      indices.insert(index);
  for (const Term &term : other)
    for (BlockArgument index : dependence(term.value))
      indices.remove(index);
  return indices;
}

/// The size of the sole index variable that terms of `own` have and those of `other` do not: so many rows share a
/// factor of `other`. None where there are several.
static std::optional<SizeAttr> rowsOf(ArrayRef<Term> own, ArrayRef<Term> other) {
  IndexSet indices = ownIndices(own, other);
  return indices.size() == 1 ? std::optional(indexSize(indices.front())) : std::nullopt;
}

/// Splits the sum that a call takes: the terms that depend on `key`, and the others. False where that is no use.
static bool split(SeparableCall &call, ArrayRef<Term> terms, BlockArgument key) {
  for (const Term &term : terms)
    (dependence(term.value).contains(key) ? call.second : call.first).push_back(term);
  return !ownIndices(call.first, call.second).empty() && !ownIndices(call.second, call.first).empty();
}

std::optional<SeparableCall> SeparableCall::of(Operation *op, BlockArgument key) {
  auto function = functionOf(op);
  if (!function)
    return {};
  SeparableCall call{function->first, op, function->second, {}, {}};
  bool negative = call.function == SeparableFunction::Sigmoid; // 1 / (1 + e^y) is the sigmoid of −y
  return split(call, termsOfSum(call.argument, negative), key) ? std::optional(call) : std::nullopt;
}

bool SeparableCall::hasFewRows() const {
  return llvm::any_of(ArrayRef{rowsOf(first, second), rowsOf(second, first)}, [](std::optional<SizeAttr> rows) {
    return rows && rows->isConstant() && rows->getValue() <= fewRows;
  });
}

/// What the parts of a call are multiplied with: see the top of Separate.cpp.
static double scaleOf(SeparableFunction function) {
  return function == SeparableFunction::Sigmoid ? -1 : function == SeparableFunction::Tanh ? 2 : 1;
}

/// scale · (the sum of `terms`), at the builder's place.
static Value scaledSum(ArrayRef<Term> terms, double scale, OpBuilder &builder) {
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
  return scale == 1 ? sum
                    : arith::MulFOp::create(builder, location, sum, floatConstant(scale, type, builder, location));
}

Value SeparableCall::exponential(OpBuilder &builder) const {
  Value exponent = argument;
  Location location = exponent.getLoc();
  Type type = exponent.getType();
  Value most = floatConstant(largestBounded, type, builder, location);
  return math::ExpOp::create(builder, location, arith::MinimumFOp::create(builder, location, exponent, most));
}

/// The factor of the call's terms `terms`, at the builder's place. Its exponent is clamped where the function has
/// plateaus.
static Value factorOf(ArrayRef<Term> terms, SeparableFunction function, OpBuilder &builder) {
  Value exponent = scaledSum(terms, scaleOf(function), builder);
  Location location = exponent.getLoc();
  auto limit = [&](double value) { return floatConstant(value, exponent.getType(), builder, location); };
  if (function != SeparableFunction::Exp) {
    exponent = arith::MinimumFOp::create(builder, location, exponent, limit(largestExponent));
    exponent = arith::MaximumFOp::create(builder, location, exponent, limit(-largestExponent));
  }
  return math::ExpOp::create(builder, location, exponent);
}

namespace {
/// Flags about the elements of a tensor of factors, at the builder's place. Where `condition` is given and false they
/// mean nothing, and no element is read.
class FactorFlags {
public:
  FactorFlags(Value factor, Value condition, OpBuilder &builder)
      : builder(builder), condition(condition), location(factor.getLoc()),
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
  Value condition;
  Location location;
  TypedValue<AttnTensorType> tensor;
  Value largest, smallest;
};
} // namespace

Value FactorFlags::reduce(ReduceKind kind, llvm::function_ref<Value(Value, OpBuilder &)> term) {
  auto result = ReduceOp::create(builder, location, kind, tensor.getDefiningOp<TensorOp>().getIndices(),
                                 tensor.getType().getShape(), type(), ValueRange(), Value(), bool(condition));
  OpBuilder inside = OpBuilder::atBlockEnd(&result.getBody().front());
  SmallVector<Value> at(result.getBody().getArguments());
  Value element = ReadOp::create(inside, location, tensor, at);
  YieldOp::create(inside, location, term ? term(element, inside) : element);
  if (condition) {
    inside.setInsertionPointToEnd(&result.getWhere().front());
    YieldOp::create(inside, location, condition);
  }
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

/// Whether there are more than a few rows of these sizes, at the builder's place. Null where no size has to say it.
static Value haveManyRows(ArrayRef<std::optional<SizeAttr>> sizes, Location location, OpBuilder &builder) {
  Value many;
  for (std::optional<SizeAttr> rows : sizes) {
    if (!rows || rows->isConstant())
      continue;
    Value size = SizeOp::create(builder, location, *rows);
    Value few = arith::ConstantOp::create(builder, location, builder.getI64IntegerAttr(fewRows));
    Value more = arith::CmpIOp::create(builder, location, arith::CmpIPredicate::sgt, size, few);
    many = many ? arith::AndIOp::create(builder, location, many, more).getResult() : more;
  }
  return many;
}

/// Whether the factors may be used in the place of `function` (see the top), at the builder's place. `proportional`
/// asks for an error in proportion to the function's values. Means nothing where `condition` is given and false.
static Value mayUse(SeparableFunction function, Value first, Value second, bool proportional, Value condition,
                    OpBuilder &builder) {
  Location location = first.getLoc();
  FactorFlags a(first, condition, builder), b(second, condition, builder);
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
  Value limit = floatConstant(std::exp(largestBounded), value.getType(), builder, location);
  Value above = arith::CmpFOp::create(builder, location, arith::CmpFPredicate::OGT, value, limit);
  return arith::SelectOp::create(builder, location, above, limit, value);
}

static TensorOp factorTensor(Value factor) {
  return factor.getDefiningOp<ReadOp>().getTensor().getDefiningOp<TensorOp>();
}

SeparatedFactors attn::makeFactors(const SeparableCall &call, DefinitionOpInterface op, BlockArgument innermost,
                                   OpBuilder &atCall, OpBuilder &atSum) {
  auto factor = [&](ArrayRef<Term> terms, const char *name) {
    return hoist(factorOf(terms, call.function, atCall), op, (op.getName() + name).str(), atCall, innermost);
  };
  std::optional<SizeAttr> firstRows = rowsOf(call.first, call.second), secondRows = rowsOf(call.second, call.first);
  SeparatedFactors factors;
  factors.first = factor(call.first, "_query_factor");
  factors.second = factor(call.second, "_key_factor");
  // Calls of the same parts, whichever is the key's, share their flag.
  Value earlier = factors.first, later = factors.second;
  if (factorTensor(later)->isBeforeInBlock(factorTensor(earlier))) {
    std::swap(earlier, later);
    std::swap(firstRows, secondRows);
  }
  Value many = haveManyRows({firstRows, secondRows}, op.getLoc(), atSum);
  Value flag = mayUse(call.function, earlier, later, isa<TensorOp>(op), many, atSum);
  if (many)
    flag = arith::AndIOp::create(atSum, op.getLoc(), many, flag);
  factors.isBounded = hoist(flag, op, (op.getName() + "_bounded").str(), atSum);
  return factors;
}

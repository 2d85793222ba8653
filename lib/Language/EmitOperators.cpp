//===- EmitOperators.cpp - Logic, comparisons, arithmetic and powers ------===//

#include "Emitter.h"
#include "Types.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace attn;
using namespace attn::language;
using llvm::formatv;

Value Emitter::emitUnary(const UnaryExpression &expression) {
  Location place = location(expression.op);
  if (expression.isNot) {
    Value value = emitBool(*expression.operand, "the operand of `not`");
    if (!value)
      return {};
    Value yes = arith::ConstantOp::create(builder, place, builder.getBoolAttr(true));
    return arith::XOrIOp::create(builder, place, value, yes);
  }
  Value value = emitNumber(*expression.operand, "`-`");
  if (!value)
    return {};
  if (auto literal = value.getDefiningOp<arith::ConstantOp>()) {
    if (isFloat(value))
      return constant(-cast<FloatAttr>(literal.getValue()).getValueAsDouble(), place);
    // Wraps like the subtraction that it replaces.
    return integer(static_cast<int64_t>(-static_cast<uint64_t>(cast<IntegerAttr>(literal.getValue()).getInt())), place);
  }
  if (isFloat(value))
    return arith::NegFOp::create(builder, place, value);
  return arith::SubIOp::create(builder, place, integer(0, place), value);
}

/// A sum, difference or product of sizes and integers, in which at least one name occurs.
std::optional<SizeAttr> Emitter::sizeExpression(const Expression &expression) const {
  if (const auto *literal = dyn_cast<IntegerExpression>(&expression))
    return SizeAttr::constant(builder.getContext(), literal->value);
  if (SizeAttr size = resolver.binding(expression).size)
    return size;
  const auto *binary = dyn_cast<BinaryExpression>(&expression);
  if (!binary)
    return std::nullopt;
  std::optional<SizeKind> kind;
  if (binary->op == BinaryOperator::Add)
    kind = SizeKind::Add;
  else if (binary->op == BinaryOperator::Sub)
    kind = SizeKind::Sub;
  else if (binary->op == BinaryOperator::Mul)
    kind = SizeKind::Mul;
  std::optional<SizeAttr> lhs = kind ? sizeExpression(*binary->lhs) : std::nullopt;
  std::optional<SizeAttr> rhs = lhs ? sizeExpression(*binary->rhs) : std::nullopt;
  if (!rhs)
    return std::nullopt;
  return SizeAttr::binary(*kind, *lhs, *rhs);
}

Value Emitter::emitBinary(const BinaryExpression &expression) {
  switch (expression.op) {
  case BinaryOperator::Or:
  case BinaryOperator::And:
    return emitLogical(expression);
  case BinaryOperator::Equal:
  case BinaryOperator::NotEqual:
  case BinaryOperator::Less:
  case BinaryOperator::LessEqual:
  case BinaryOperator::Greater:
  case BinaryOperator::GreaterEqual:
    return emitComparison(expression);
  case BinaryOperator::Power:
    return emitPower(expression, *expression.lhs, *expression.rhs);
  default:
    break;
  }
  if (std::optional<SizeAttr> size = sizeExpression(expression); size && !size->isConstant())
    return emitSize(*size, location(expression.opText));
  return emitArithmetic(expression);
}

Value Emitter::emitLogical(const BinaryExpression &expression) {
  std::string user = ("an operand of `" + expression.opText + "`").str();
  Value lhs = emitBool(*expression.lhs, user), rhs = emitBool(*expression.rhs, user);
  if (!lhs || !rhs)
    return {};
  Location place = location(expression.opText);
  if (expression.op == BinaryOperator::And)
    return arith::AndIOp::create(builder, place, lhs, rhs);
  return arith::OrIOp::create(builder, place, lhs, rhs);
}

/// Comparisons with a NaN are false, but for `!=`.
static arith::CmpFPredicate floatPredicate(BinaryOperator op) {
  switch (op) {
  case BinaryOperator::Equal:
    return arith::CmpFPredicate::OEQ;
  case BinaryOperator::NotEqual:
    return arith::CmpFPredicate::UNE;
  case BinaryOperator::Less:
    return arith::CmpFPredicate::OLT;
  case BinaryOperator::LessEqual:
    return arith::CmpFPredicate::OLE;
  case BinaryOperator::Greater:
    return arith::CmpFPredicate::OGT;
  default:
    return arith::CmpFPredicate::OGE;
  }
}

static arith::CmpIPredicate integerPredicate(BinaryOperator op) {
  switch (op) {
  case BinaryOperator::Equal:
    return arith::CmpIPredicate::eq;
  case BinaryOperator::NotEqual:
    return arith::CmpIPredicate::ne;
  case BinaryOperator::Less:
    return arith::CmpIPredicate::slt;
  case BinaryOperator::LessEqual:
    return arith::CmpIPredicate::sle;
  case BinaryOperator::Greater:
    return arith::CmpIPredicate::sgt;
  default:
    return arith::CmpIPredicate::sge;
  }
}

Value Emitter::emitComparison(const BinaryExpression &expression) {
  Value lhs = emit(*expression.lhs), rhs = emit(*expression.rhs);
  if (!lhs || !rhs)
    return {};
  Location place = location(expression.opText);
  bool equality = expression.op == BinaryOperator::Equal || expression.op == BinaryOperator::NotEqual;
  if (isBool(lhs) != isBool(rhs) || (isBool(lhs) && !equality)) {
    error(expression.opText,
          isBool(lhs) && isBool(rhs)
              ? formatv("`{0}` cannot compare bools", expression.opText).str()
              : formatv("`{0}` cannot compare {1} with {2}", expression.opText, describe(lhs), describe(rhs)).str())
        .help("`bool` is not a number: write select(condition, 1, 0)");
    return {};
  }
  unify(lhs, rhs);
  if (isFloat(lhs))
    return arith::CmpFOp::create(builder, place, floatPredicate(expression.op), lhs, rhs);
  return arith::CmpIOp::create(builder, place, integerPredicate(expression.op), lhs, rhs);
}

Value Emitter::emitArithmetic(const BinaryExpression &expression) {
  std::string user = ("`" + expression.opText + "`").str();
  Value lhs = emitNumber(*expression.lhs, user), rhs = emitNumber(*expression.rhs, user);
  if (!lhs || !rhs)
    return {};
  Location place = location(expression.opText);
  if (expression.op == BinaryOperator::Div) {
    lhs = toFloat(lhs);
    rhs = toFloat(rhs);
    return arith::DivFOp::create(builder, place, lhs, rhs);
  }
  unify(lhs, rhs);
  bool real = isFloat(lhs);
  switch (expression.op) {
  case BinaryOperator::Add:
    return real ? arith::AddFOp::create(builder, place, lhs, rhs).getResult()
                : arith::AddIOp::create(builder, place, lhs, rhs).getResult();
  case BinaryOperator::Sub:
    return real ? arith::SubFOp::create(builder, place, lhs, rhs).getResult()
                : arith::SubIOp::create(builder, place, lhs, rhs).getResult();
  case BinaryOperator::Mul:
    return real ? arith::MulFOp::create(builder, place, lhs, rhs).getResult()
                : arith::MulIOp::create(builder, place, lhs, rhs).getResult();
  case BinaryOperator::FloorDiv: {
    if (!real)
      return FloorDivOp::create(builder, place, lhs, rhs);
    Value quotient = arith::DivFOp::create(builder, place, lhs, rhs);
    return math::FloorOp::create(builder, place, quotient);
  }
  default: {
    if (!real)
      return ModOp::create(builder, place, lhs, rhs);
    // The remainder of truncation is exact; where it has not y's sign, the one of floor is y further.
    Value zero = arith::ConstantOp::create(builder, place, builder.getFloatAttr(lhs.getType(), 0.0));
    Value remainder = arith::RemFOp::create(builder, place, lhs, rhs);
    Value further = arith::AddFOp::create(builder, place, remainder, rhs);
    auto compare = [&](arith::CmpFPredicate predicate, Value value) -> Value {
      return arith::CmpFOp::create(builder, place, predicate, value, zero);
    };
    Value signsDiffer = arith::XOrIOp::create(builder, place, compare(arith::CmpFPredicate::OLT, remainder),
                                              compare(arith::CmpFPredicate::OLT, rhs));
    Value isWrong = arith::AndIOp::create(builder, place, compare(arith::CmpFPredicate::ONE, remainder), signsDiffer);
    return arith::SelectOp::create(builder, place, isWrong, further, remainder);
  }
  }
}

/// The exponent as a small natural number, where it is written as one.
static std::optional<unsigned> smallExponent(const Expression &exponent) {
  if (const auto *integer = dyn_cast<IntegerExpression>(&exponent);
      integer && integer->value >= 0 && integer->value <= 8)
    return integer->value;
  if (const auto *real = dyn_cast<FloatExpression>(&exponent);
      real && real->value >= 0 && real->value <= 8 && real->value == static_cast<unsigned>(real->value))
    return real->value;
  return std::nullopt;
}

Value Emitter::emitPower(const Expression &whole, const Expression &base, const Expression &exponent) {
  Value x = emitNumber(base, "`**`");
  std::optional<unsigned> count = smallExponent(exponent);
  if (!count || isa<FloatExpression>(exponent)) {
    if (x)
      x = toFloat(x);
  }
  if (!count) {
    Value y = emitFloat(exponent, "`**`");
    return x && y ? math::PowFOp::create(builder, location(whole.text), x, y).getResult() : Value();
  }
  if (!x)
    return {};
  Location place = location(whole.text);
  if (*count == 0)
    return isFloat(x) ? constant(1, place) : integer(1, place);
  // Square and multiply: x^5 = x · (x²)².
  Value result, power = x;
  auto multiply = [&](Value a, Value b) -> Value {
    return isFloat(a) ? arith::MulFOp::create(builder, place, a, b).getResult()
                      : arith::MulIOp::create(builder, place, a, b).getResult();
  };
  for (unsigned left = *count; left != 0; left /= 2) {
    if (left % 2 != 0)
      result = result ? multiply(result, power) : power;
    if (left > 1)
      power = multiply(power, power);
  }
  return result;
}

//===- EmitCalls.cpp - Built-in functions, conversions and defs -----------===//

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
using llvm::StringRef;

/// Calls nested deeper than this, or more of them in one statement, are taken for a mistake.
static constexpr size_t maximumCallDepth = 100, maximumInlined = 10000;

Value Emitter::emitCall(const CallExpression &expression) {
  const Binding &binding = resolver.binding(expression);
  if (binding.function)
    return emitFunction(expression, *binding.function);
  if (!binding.conversion.empty())
    return emitConversion(expression, binding.conversion);
  if (binding.builtin)
    return emitBuiltin(expression, binding.builtin->builtin);
  // The call is wrong, but its arguments may be too.
  for (const ExpressionPtr &argument : expression.arguments)
    emit(*argument);
  return {};
}

/// A `def` is inlined: its arguments are evaluated once, in the caller.
Value Emitter::emitFunction(const CallExpression &expression, const Function &function) {
  llvm::SmallVector<Value> values;
  for (const ExpressionPtr &argument : expression.arguments)
    values.push_back(emit(*argument));
  if (llvm::is_contained(values, Value()) || !function.body)
    return {};
  if (calls.size() >= maximumCallDepth || ++inlined > maximumInlined) {
    if (inlined != maximumInlined + 2) // reported once
      diagnostics.error(
          calls.empty() ? expression.text : calls.front(),
          calls.size() >= maximumCallDepth
              ? formatv("functions are nested more than {0} calls deep", maximumCallDepth).str()
              : formatv("functions expand to more than {0} calls in one statement", maximumInlined).str());
    return {};
  }
  llvm::ArrayRef<Value> outer = arguments;
  arguments = values;
  calls.push_back(expression.text);
  Value result = emit(*function.body);
  calls.pop_back();
  arguments = outer;
  return result;
}

Value Emitter::emitBuiltin(const CallExpression &expression, Builtin function) {
  if (function == Builtin::Select)
    return emitSelect(expression);
  if (function == Builtin::Dropout)
    return emitDropout(expression);
  const std::vector<ExpressionPtr> &operands = expression.arguments;
  if (function == Builtin::Pow)
    return emitPower(expression, *operands[0], *operands[1]);
  std::string user = ("`" + expression.name + "`").str();
  Location place = location(expression.text);
  Value x = emitNumber(*operands[0], user);
  if (function == Builtin::Min || function == Builtin::Max) {
    Value y = emitNumber(*operands[1], user);
    if (!x || !y)
      return {};
    unify(x, y);
    bool least = function == Builtin::Min;
    if (isFloat(x))
      return least ? arith::MinimumFOp::create(builder, place, x, y).getResult()
                   : arith::MaximumFOp::create(builder, place, x, y).getResult();
    return least ? arith::MinSIOp::create(builder, place, x, y).getResult()
                 : arith::MaxSIOp::create(builder, place, x, y).getResult();
  }
  if (!x)
    return {};
  // What an integer stays an integer under.
  if (!isFloat(x)) {
    if (function == Builtin::Abs)
      return math::AbsIOp::create(builder, place, x);
    if (function == Builtin::Floor || function == Builtin::Round)
      return x;
    if (function == Builtin::Relu)
      return arith::MaxSIOp::create(builder, place, x, integer(0, place));
  }
  return emitUnaryFloat(function, toFloat(x), place);
}

Value Emitter::emitUnaryFloat(Builtin function, Value x, Location place) {
  switch (function) {
  case Builtin::Abs:
    return math::AbsFOp::create(builder, place, x);
  case Builtin::Exp:
    return math::ExpOp::create(builder, place, x);
  case Builtin::Exp2:
    return math::Exp2Op::create(builder, place, x);
  case Builtin::Log:
    return math::LogOp::create(builder, place, x);
  case Builtin::Log2:
    return math::Log2Op::create(builder, place, x);
  case Builtin::Sqrt:
    return math::SqrtOp::create(builder, place, x);
  case Builtin::Rsqrt:
    return math::RsqrtOp::create(builder, place, x);
  case Builtin::Sin:
    return math::SinOp::create(builder, place, x);
  case Builtin::Cos:
    return math::CosOp::create(builder, place, x);
  case Builtin::Tanh:
    return math::TanhOp::create(builder, place, x);
  case Builtin::Erf:
    return math::ErfOp::create(builder, place, x);
  case Builtin::Floor:
    return math::FloorOp::create(builder, place, x);
  case Builtin::Round:
    return math::RoundEvenOp::create(builder, place, x);
  case Builtin::IsNan:
    return arith::CmpFOp::create(builder, place, arith::CmpFPredicate::UNO, x, x);
  case Builtin::Relu:
    return arith::MaximumFOp::create(builder, place, x, constant(0, place));
  case Builtin::Sigmoid: {
    // 1 / (1 + exp(−x))
    Value exponential = math::ExpOp::create(builder, place, arith::NegFOp::create(builder, place, x));
    Value one = constant(1, place);
    return arith::DivFOp::create(builder, place, one, arith::AddFOp::create(builder, place, one, exponential));
  }
  case Builtin::Gelu: {
    // x/2 · (1 + erf(x / √2))
    Value scaled = arith::MulFOp::create(builder, place, x, constant(0.70710678118654752440, place));
    Value error = math::ErfOp::create(builder, place, scaled);
    Value sum = arith::AddFOp::create(builder, place, constant(1, place), error);
    Value half = arith::MulFOp::create(builder, place, x, constant(0.5, place));
    return arith::MulFOp::create(builder, place, half, sum);
  }
  default:
    llvm_unreachable("not a function of one float");
  }
}

Value Emitter::emitSelect(const CallExpression &expression) {
  Value condition = emitBool(*expression.arguments[0], "the condition of `select`");
  Value a = emit(*expression.arguments[1]), b = emit(*expression.arguments[2]);
  if (!condition || !a || !b)
    return {};
  if (isBool(a) != isBool(b)) {
    error(expression.text, formatv("`select` needs two numbers or two bools, but `{0}` and `{1}` are one of each",
                                   expression.arguments[1]->text, expression.arguments[2]->text));
    return {};
  }
  unify(a, b);
  return arith::SelectOp::create(builder, location(expression.text), condition, a, b);
}

/// The element's number is row-major in the statement's tensor: ((i · J + j) · K + k) …
Value Emitter::emitDropout(const CallExpression &expression) {
  Value x = emitFloat(*expression.arguments[0], "`dropout`");
  Value probability = emitFloat(*expression.arguments[1], "the probability of `dropout`");
  Value seed = emitInteger(*expression.arguments[2], "the seed of `dropout`");
  if (!x || !probability || !seed)
    return {};
  Location place = location(expression.text);
  Value number;
  for (auto [index, size] : llvm::zip(element, shape)) {
    if (!number) {
      number = index;
      continue;
    }
    Value row = arith::MulIOp::create(builder, place, number, emitSize(size, place));
    number = arith::AddIOp::create(builder, place, row, index);
  }
  if (!number)
    number = integer(0, place);
  return DropoutOp::create(builder, place, x, probability, seed, number);
}

/// `f32(x)`, `i8(x)`, …: rounds or wraps to the dtype, and comes back to the type numbers are computed in.
Value Emitter::emitConversion(const CallExpression &expression, StringRef dtype) {
  Value value = emit(*expression.arguments[0]);
  if (!value)
    return {};
  Location place = location(expression.text);
  Type type = storageType(builder, dtype);
  if (isBool(value) || dtype == "bool") {
    if (isBool(value) && dtype == "bool")
      return value;
    error(expression.text,
          isBool(value) ? formatv("`{0}` cannot convert a bool", dtype).str() : "`bool` cannot convert a number")
        .help(isBool(value) ? formatv("write `select({0}, 1, 0)`", expression.arguments[0]->text).str()
                            : formatv("write `{0} != 0`", expression.arguments[0]->text).str());
    return {};
  }
  if (isa<FloatType>(type)) {
    Value number = toFloat(value);
    if (type.getIntOrFloatBitWidth() >= computeType.getWidth())
      return number;
    Value narrow = arith::TruncFOp::create(builder, place, type, number);
    return arith::ExtFOp::create(builder, place, computeType, narrow);
  }
  if (isFloat(value))
    value = arith::FPToSIOp::create(builder, place, builder.getI64Type(), value);
  unsigned width = type.getIntOrFloatBitWidth();
  if (width == 64)
    return value;
  Value narrow = arith::TruncIOp::create(builder, place, builder.getIntegerType(width), value);
  if (type.isUnsignedInteger())
    return arith::ExtUIOp::create(builder, place, builder.getI64Type(), narrow);
  return arith::ExtSIOp::create(builder, place, builder.getI64Type(), narrow);
}

//===- Emitter.cpp - Resolved statements to the dialect -------------------===//

#include "Emitter.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "llvm/ADT/StringSwitch.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace attn;
using namespace attn::language;
using llvm::formatv;
using llvm::StringRef;

static bool isFloat(Value value) { return isa<FloatType>(value.getType()); }
static bool isBool(Value value) { return value.getType().isInteger(1); }
static bool isInteger(Value value) { return value.getType().isInteger(64); }

static StringRef describe(Value value) { return isBool(value) ? "a bool" : isFloat(value) ? "a float" : "an integer"; }

Type Emitter::storageType(Builder &builder, StringRef dtype) {
  return llvm::StringSwitch<Type>(dtype)
      .Case("f64", builder.getF64Type())
      .Case("f32", builder.getF32Type())
      .Case("f16", builder.getF16Type())
      .Case("bf16", builder.getBF16Type())
      .Case("i64", builder.getI64Type())
      .Case("i32", builder.getI32Type())
      .Case("i8", builder.getI8Type())
      .Case("u8", builder.getIntegerType(8, /*isSigned=*/false))
      .Case("bool", builder.getI1Type())
      .Default(Type());
}

Location Emitter::location(StringRef text) const {
  unsigned file = sources.getMainFileID();
  auto [line, column] = sources.getLineAndColumn(llvm::SMLoc::getFromPointer(text.data()), file);
  return FileLineColLoc::get(builder.getContext(), sources.getMemoryBuffer(file)->getBufferIdentifier(), line, column);
}

language::Diagnostic &Emitter::error(StringRef where, std::string message) {
  Diagnostic &diagnostic = diagnostics.error(where, std::move(message));
  for (StringRef call : llvm::reverse(calls))
    diagnostic.note(call, "in this call");
  return diagnostic;
}

//===----------------------------------------------------------------------===//
// Statements
//===----------------------------------------------------------------------===//

Value Emitter::emitStatement(const Statement &statement, llvm::ArrayRef<Variable *> indices) {
  OpBuilder::InsertionGuard guard(builder);
  current.clear();
  shape.clear();
  inlined = 0;
  llvm::SmallVector<StringRef> names;
  for (const Variable *variable : indices) {
    names.push_back(variable->name);
    shape.push_back(variable->range);
  }
  Location place = location(statement.name);
  auto type = AttnTensorType::get(builder.getContext(), shape, computeType);
  auto op = TensorOp::create(builder, place, statement.name, builder.getStrArrayAttr(names), type);
  Block &body = op.getBody().front();
  element.assign(body.args_begin(), body.args_end());
  for (auto [variable, argument] : llvm::zip(indices, element))
    current[variable] = argument;
  builder.setInsertionPointToStart(&body);
  Value value = emit(*statement.value);
  if (!value)
    return {};

  Type stored = statement.dtype.empty() ? value.getType() : storageType(builder, statement.dtype);
  Type wanted = type.withElement(stored).getComputeType();
  if (wanted != value.getType()) {
    bool same = isFloat(value) && isa<FloatType>(wanted);
    bool widened = isInteger(value) && isa<FloatType>(wanted);
    if (!same && !widened) {
      language::Diagnostic &report = error(statement.dtype, formatv("`{0}` is annotated {1}, but its value is {2}",
                                                                    statement.name, statement.dtype, describe(value)));
      report.note(statement.value->text, "the value is this");
      if (isBool(value))
        report.help("`bool` is not a number: write select(condition, 1, 0)");
      else if (wanted.isInteger(64))
        report.help(formatv("convert it: {0}(…) rounds toward zero", statement.dtype));
      else
        report.help("compare it with something: `x != 0`");
      return {};
    }
    value = toFloat(value);
    if (value.getType() != wanted)
      value = wanted.isF64() ? arith::ExtFOp::create(builder, place, wanted, value).getResult()
                             : arith::TruncFOp::create(builder, place, wanted, value).getResult();
  }
  YieldOp::create(builder, place, value);
  op.getResult().setType(type.withElement(stored));
  // Literals that were converted or negated are left without a use.
  op.walk([](arith::ConstantOp literal) {
    if (literal.use_empty())
      literal.erase();
  });
  return op.getResult();
}

//===----------------------------------------------------------------------===//
// Leaves
//===----------------------------------------------------------------------===//

Value Emitter::constant(double value, Location place) {
  return arith::ConstantOp::create(builder, place, builder.getFloatAttr(computeType, value));
}

Value Emitter::integer(int64_t value, Location place) {
  return arith::ConstantOp::create(builder, place, builder.getI64IntegerAttr(value));
}

Value Emitter::emitSize(SizeAttr size, Location place) {
  return size.isConstant() ? integer(size.getValue(), place)
                           : SizeOp::create(builder, place, builder.getI64Type(), size);
}

Value Emitter::toFloat(Value value) {
  Location place = value.getLoc();
  if (isInteger(value)) {
    // A literal becomes the number it stands for.
    if (auto literal = value.getDefiningOp<arith::ConstantOp>())
      return constant(static_cast<double>(cast<IntegerAttr>(literal.getValue()).getInt()), place);
    return arith::SIToFPOp::create(builder, place, computeType, value);
  }
  return value;
}

void Emitter::unify(Value &lhs, Value &rhs) {
  if (isFloat(lhs) || isFloat(rhs)) {
    lhs = toFloat(lhs);
    rhs = toFloat(rhs);
  }
}

Value Emitter::emitNumber(const Expression &expression, const llvm::Twine &user) {
  Value value = emit(expression);
  if (!value || !isBool(value))
    return value;
  error(expression.text, formatv("{0} needs a number, but this is a bool", user.str()))
      .help("`bool` is not a number: write select(condition, 1, 0)");
  return {};
}

Value Emitter::emitFloat(const Expression &expression, const llvm::Twine &user) {
  Value value = emitNumber(expression, user);
  return value ? toFloat(value) : value;
}

Value Emitter::emitInteger(const Expression &expression, const llvm::Twine &user) {
  Value value = emitNumber(expression, user);
  if (!value || isInteger(value))
    return value;
  language::Diagnostic &report =
      error(expression.text, formatv("{0} must be an integer, but this is a float", user.str()));
  report.help("`//` divides and rounds down; i64(x) rounds toward zero");
  return {};
}

Value Emitter::emitBool(const Expression &expression, const llvm::Twine &user) {
  Value value = emit(expression);
  if (!value || isBool(value))
    return value;
  error(expression.text, formatv("{0} must be a bool, but this is {1}", user.str(), describe(value)))
      .help("write a comparison: `x != 0`");
  return {};
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

Value Emitter::emit(const Expression &expression) {
  switch (expression.kind) {
  case Expression::Kind::Integer:
    return integer(cast<IntegerExpression>(expression).value, location(expression.text));
  case Expression::Kind::Float:
    return constant(cast<FloatExpression>(expression).value, location(expression.text));
  case Expression::Kind::Name:
    return emitName(cast<NameExpression>(expression));
  case Expression::Kind::Unary:
    return emitUnary(cast<UnaryExpression>(expression));
  case Expression::Kind::Binary:
    return emitBinary(cast<BinaryExpression>(expression));
  case Expression::Kind::Call:
    return emitCall(cast<CallExpression>(expression));
  case Expression::Kind::Subscript:
    return emitSubscript(cast<SubscriptExpression>(expression));
  case Expression::Kind::Reduction:
    return emitReduction(cast<ReductionExpression>(expression));
  }
  llvm_unreachable("unknown expression");
}

Value Emitter::emitName(const NameExpression &expression) {
  const Binding &binding = resolver.binding(expression);
  Location place = location(expression.name);
  if (binding.parameter)
    return arguments[*binding.parameter];
  if (binding.variable)
    return current.lookup(binding.variable);
  if (binding.size)
    return emitSize(binding.size, place);
  if (binding.tensor)
    return emitRead(*binding.tensor, {}, place);
  if (binding.constant == "inf")
    return constant(std::numeric_limits<double>::infinity(), place);
  if (binding.constant == "pi")
    return constant(3.14159265358979323846, place);
  if (binding.constant == "true" || binding.constant == "false")
    return arith::ConstantOp::create(builder, place, builder.getBoolAttr(binding.constant == "true"));
  return {};
}

Value Emitter::emitRead(const Tensor &tensor, ValueRange subscripts, Location place) {
  if (!tensor.value)
    return {};
  Value value = ReadOp::create(builder, place, tensor.value, subscripts);
  if (!isFloat(value) || value.getType() == computeType)
    return value;
  return computeType.isF64() ? arith::ExtFOp::create(builder, place, computeType, value).getResult()
                             : arith::TruncFOp::create(builder, place, computeType, value).getResult();
}

Value Emitter::emitSubscript(const SubscriptExpression &expression) {
  llvm::SmallVector<Value> subscripts;
  for (auto [dimension, subscript] : llvm::enumerate(expression.subscripts))
    subscripts.push_back(
        emitInteger(*subscript, "subscript " + llvm::Twine(dimension + 1) + " of `" + expression.name + "`"));
  Tensor *tensor = resolver.binding(expression).tensor;
  if (!tensor || llvm::is_contained(subscripts, Value()))
    return {};
  return emitRead(*tensor, subscripts, location(expression.text));
}

//===----------------------------------------------------------------------===//
// Operators
//===----------------------------------------------------------------------===//

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
  if (isFloat(lhs)) {
    arith::CmpFPredicate predicate;
    switch (expression.op) {
    case BinaryOperator::Equal:
      predicate = arith::CmpFPredicate::OEQ;
      break;
    case BinaryOperator::NotEqual:
      predicate = arith::CmpFPredicate::UNE;
      break;
    case BinaryOperator::Less:
      predicate = arith::CmpFPredicate::OLT;
      break;
    case BinaryOperator::LessEqual:
      predicate = arith::CmpFPredicate::OLE;
      break;
    case BinaryOperator::Greater:
      predicate = arith::CmpFPredicate::OGT;
      break;
    default:
      predicate = arith::CmpFPredicate::OGE;
      break;
    }
    return arith::CmpFOp::create(builder, place, predicate, lhs, rhs);
  }
  arith::CmpIPredicate predicate;
  switch (expression.op) {
  case BinaryOperator::Equal:
    predicate = arith::CmpIPredicate::eq;
    break;
  case BinaryOperator::NotEqual:
    predicate = arith::CmpIPredicate::ne;
    break;
  case BinaryOperator::Less:
    predicate = arith::CmpIPredicate::slt;
    break;
  case BinaryOperator::LessEqual:
    predicate = arith::CmpIPredicate::sle;
    break;
  case BinaryOperator::Greater:
    predicate = arith::CmpIPredicate::sgt;
    break;
  default:
    predicate = arith::CmpIPredicate::sge;
    break;
  }
  return arith::CmpIOp::create(builder, place, predicate, lhs, rhs);
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

//===----------------------------------------------------------------------===//
// Reductions
//===----------------------------------------------------------------------===//

Value Emitter::emitReduction(const ReductionExpression &expression) {
  Location place = location(expression.name);
  ReduceKind kind = *symbolizeReduceKind(expression.name);
  bool exponential = kind == ReduceKind::Softmax || kind == ReduceKind::LogSumExp;
  std::string user = ("`" + expression.name + "`").str();

  llvm::SmallVector<const Variable *> variables;
  llvm::SmallVector<SizeAttr> sizes;
  llvm::SmallVector<StringRef> names;
  llvm::SmallVector<Value> at, outer;
  for (const Index &index : expression.indices) {
    Variable *variable = resolver.variable(index);
    variables.push_back(variable);
    sizes.push_back(variable->range);
    names.push_back(index.name);
    outer.push_back(current.lookup(variable));
    if (kind == ReduceKind::Softmax)
      at.push_back(outer.back());
  }
  if (kind == ReduceKind::Softmax && llvm::is_contained(at, Value()))
    return {};
  Value sink;
  bool failed = false;
  if (expression.sink) {
    sink = emitFloat(*expression.sink, "the sink");
    failed = !sink;
  }

  auto op = ReduceOp::create(builder, place, kind, builder.getStrArrayAttr(names), sizes, computeType, at, sink,
                             expression.condition != nullptr);
  OpBuilder::InsertionGuard guard(builder);
  auto enter = [&](Region &region) {
    builder.setInsertionPointToStart(&region.front());
    for (auto [variable, argument] : llvm::zip(variables, region.getArguments()))
      current[variable] = argument;
  };
  enter(op.getBody());
  Value body = exponential ? emitFloat(*expression.body, user) : emitNumber(*expression.body, user);
  if (body) {
    YieldOp::create(builder, place, body);
    op.getResult().setType(body.getType());
  }
  failed |= !body;
  if (expression.condition) {
    enter(op.getWhere());
    Value condition = emitBool(*expression.condition, "the condition after `where`");
    if (condition)
      YieldOp::create(builder, place, condition);
    failed |= !condition;
  }
  for (auto [variable, value] : llvm::zip(variables, outer))
    current[variable] = value;
  return failed ? Value() : op.getResult();
}

//===- Emitter.cpp - Resolved statements to the dialect -------------------===//

#include "Emitter.h"
#include "Types.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/FormatVariadic.h"

#include <limits>
#include <numbers>

using namespace mlir;
using namespace attn;
using namespace attn::language;
using llvm::formatv;
using llvm::StringRef;

Location Emitter::location(StringRef text) const {
  unsigned file = sources.getMainFileID();
  auto [line, column] = sources.getLineAndColumn(llvm::SMLoc::getFromPointer(text.data()), file);
  return FileLineColLoc::get(builder.getContext(), sources.getMemoryBuffer(file)->getBufferIdentifier(), line, column);
}

language::SourceError &Emitter::error(StringRef where, std::string message) {
  SourceError &diagnostic = diagnostics.error(where, std::move(message));
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
  value = toAnnotated(statement, value, type.withElement(stored).getComputeType());
  if (!value)
    return {};
  YieldOp::create(builder, place, value);
  op.getResult().setType(type.withElement(stored));
  // Literals that were converted or negated are left without a use.
  op.walk([](arith::ConstantOp literal) {
    if (literal.use_empty())
      literal.erase();
  });
  return op.getResult();
}

/// The float `value` in the width of `type`.
static Value toWidth(OpBuilder &builder, Location place, Value value, Type type) {
  if (value.getType() == type)
    return value;
  return type.isF64() ? arith::ExtFOp::create(builder, place, type, value).getResult()
                      : arith::TruncFOp::create(builder, place, type, value).getResult();
}

Value Emitter::toAnnotated(const Statement &statement, Value value, Type wanted) {
  if (value.getType() == wanted)
    return value;
  bool same = isFloat(value) && isa<FloatType>(wanted);
  bool widened = isInteger(value) && isa<FloatType>(wanted);
  if (!same && !widened) {
    language::SourceError &report = error(statement.dtype, formatv("`{0}` is annotated {1}, but its value is {2}",
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
  return toWidth(builder, location(statement.name), toFloat(value), wanted);
}

//===----------------------------------------------------------------------===//
// Expressions
//===----------------------------------------------------------------------===//

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
    return constant(std::numbers::pi, place);
  if (binding.constant == "true" || binding.constant == "false")
    return arith::ConstantOp::create(builder, place, builder.getBoolAttr(binding.constant == "true"));
  return {};
}

Value Emitter::emitRead(const Tensor &tensor, ValueRange subscripts, Location place) {
  if (!tensor.value)
    return {};
  Value value = ReadOp::create(builder, place, tensor.value, subscripts);
  return isFloat(value) ? toWidth(builder, place, value, computeType) : value;
}

Value Emitter::emitSubscript(const SubscriptExpression &expression) {
  llvm::SmallVector<Value> subscripts;
  for (auto [dimension, subscript] : llvm::enumerate(expression.subscripts))
    subscripts.push_back(
        emitInteger(*subscript, "subscript " + llvm::Twine(dimension) + " of `" + expression.name + "`"));
  Tensor *tensor = resolver.binding(expression).tensor;
  if (!tensor || llvm::is_contained(subscripts, Value()))
    return {};
  return emitRead(*tensor, subscripts, location(expression.text));
}

//===----------------------------------------------------------------------===//
// Operands of a type that is needed
//===----------------------------------------------------------------------===//

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
  language::SourceError &report =
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

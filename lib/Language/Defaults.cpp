//===- Defaults.cpp - The default values of parameters --------------------===//
//
// A default is a constant expression: a bool, or a number that the parameter's dtype can hold.
//
//===----------------------------------------------------------------------===//

#include "Defaults.h"
#include "Types.h"

#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinTypes.h"
#include "llvm/ADT/StringSwitch.h"
#include "llvm/Support/FormatVariadic.h"

#include <cmath>
#include <limits>
#include <numbers>
#include <utility>

using namespace mlir;
using namespace attn::language;
using llvm::formatv;
using llvm::StringRef;

/// The value of a constant expression, or nothing.
static std::optional<double> evaluate(const Expression &expression) {
  if (const auto *integer = dyn_cast<IntegerExpression>(&expression))
    return static_cast<double>(integer->value);
  if (const auto *real = dyn_cast<FloatExpression>(&expression))
    return real->value;
  if (const auto *name = dyn_cast<NameExpression>(&expression)) {
    if (name->name == "inf")
      return std::numeric_limits<double>::infinity();
    if (name->name == "pi")
      return std::numbers::pi;
    return std::nullopt;
  }
  if (const auto *unary = dyn_cast<UnaryExpression>(&expression)) {
    std::optional<double> operand = evaluate(*unary->operand);
    return operand && !unary->isNot ? std::optional(-*operand) : std::nullopt;
  }
  if (const auto *binary = dyn_cast<BinaryExpression>(&expression)) {
    std::optional<double> lhs = evaluate(*binary->lhs), rhs = evaluate(*binary->rhs);
    if (!lhs || !rhs)
      return std::nullopt;
    switch (binary->op) {
    case BinaryOperator::Add:
      return *lhs + *rhs;
    case BinaryOperator::Sub:
      return *lhs - *rhs;
    case BinaryOperator::Mul:
      return *lhs * *rhs;
    case BinaryOperator::Div:
      return *lhs / *rhs;
    case BinaryOperator::Power:
      return std::pow(*lhs, *rhs);
    default:
      return std::nullopt;
    }
  }
  return std::nullopt;
}

/// Integers are evaluated exactly; `evaluate` would round those beyond 2^53.
static std::optional<int64_t> evaluateInteger(const Expression &expression) {
  if (const auto *integer = dyn_cast<IntegerExpression>(&expression))
    return integer->value;
  if (const auto *unary = dyn_cast<UnaryExpression>(&expression); unary && !unary->isNot)
    if (std::optional<int64_t> operand = evaluateInteger(*unary->operand))
      return -*operand;
  return std::nullopt;
}

/// The value of a constant expression that is an integer, or nothing.
static std::optional<int64_t> integerDefault(const Expression &value) {
  if (std::optional<int64_t> exact = evaluateInteger(value))
    return exact;
  std::optional<double> number = evaluate(value);
  if (number && std::abs(*number) < 0x1p53 && *number == std::trunc(*number))
    return static_cast<int64_t>(*number);
  return std::nullopt;
}

/// The least and the greatest value of an integer dtype.
static std::pair<int64_t, int64_t> rangeOf(StringRef dtype) {
  return llvm::StringSwitch<std::pair<int64_t, int64_t>>(dtype)
      .Case("i64", {INT64_MIN, INT64_MAX})
      .Case("i32", {INT32_MIN, INT32_MAX})
      .Case("i8", {INT8_MIN, INT8_MAX})
      .Default({0, UINT8_MAX});
}

static void notConstant(const Parameter &parameter, Diagnostics &diagnostics) {
  const Expression &value = *parameter.defaultValue;
  diagnostics
      .error(value.text, formatv("the default of `{0}` must be a constant, but is `{1}`", parameter.name, value.text))
      .help("a default is made of numbers, inf, pi, + - * / and **");
}

void attn::language::checkDefault(const Parameter &parameter, Diagnostics &diagnostics) {
  const Expression &value = *parameter.defaultValue;
  if (!parameter.shape.empty()) {
    diagnostics
        .error(value.text, formatv("`{0}` has {1} dimension{2} and cannot have a default", parameter.name,
                                   parameter.shape.size(), parameter.shape.size() == 1 ? "" : "s"))
        .help("only scalars have defaults");
    return;
  }
  const auto *name = dyn_cast<NameExpression>(&value);
  bool truth = name && (name->name == "true" || name->name == "false");
  if (truth != (parameter.dtype == "bool")) {
    if (truth || evaluate(value))
      diagnostics.error(value.text, formatv("the default of `{0}` must be {1}, but is `{2}`", parameter.name,
                                            truth ? "a number" : "true or false", value.text));
    else
      notConstant(parameter, diagnostics);
    return;
  }
  if (truth)
    return;
  std::optional<double> number = evaluate(value);
  if (!number)
    return notConstant(parameter, diagnostics);
  if (isFloatDtype(parameter.dtype))
    return;
  std::optional<int64_t> exact = integerDefault(value);
  auto [least, greatest] = rangeOf(parameter.dtype);
  if (!exact || *exact < least || *exact > greatest)
    diagnostics.error(value.text, formatv("the default of `{0}` must be an integer from {1} to {2}, but is `{3}`",
                                          parameter.name, least, greatest, value.text));
}

Attribute attn::language::defaultAttribute(Builder &builder, const Parameter &parameter, Type type) {
  if (!parameter.defaultValue || !parameter.shape.empty())
    return builder.getUnitAttr();
  const Expression &value = *parameter.defaultValue;
  if (type.isInteger(1))
    return builder.getBoolAttr(cast<NameExpression>(value).name == "true");
  if (isa<FloatType>(type))
    return builder.getFloatAttr(type, *evaluate(value));
  APInt bits(type.getIntOrFloatBitWidth(), static_cast<uint64_t>(*integerDefault(value)),
             /*isSigned=*/!type.isUnsignedInteger(), /*implicitTrunc=*/true);
  return IntegerAttr::get(type, bits);
}

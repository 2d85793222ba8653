//===- Floats.cpp - Floats and booleans of formulas -----------------------===//

#include "Formula.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "llvm/ADT/TypeSwitch.h"

#include <cmath>
#include <fmt/format.h>

using namespace attn;
using namespace attn::cuda;

/// A number as text from which the compiler reads the same bits.
static std::string literal(double value) {
  float narrow = value;
  if (std::isnan(narrow))
    return "__builtin_nanf(\"\")";
  if (std::isinf(narrow))
    return narrow < 0 ? "-infinity()" : "infinity()";
  std::string digits = fmt::format("{}", narrow);
  if (digits.find_first_of(".e") == std::string::npos)
    digits += ".0";
  return digits + "f";
}

static const char *signOf(mlir::arith::CmpIPredicate predicate) {
  using mlir::arith::CmpIPredicate;
  switch (predicate) {
  case CmpIPredicate::eq:
    return "==";
  case CmpIPredicate::ne:
    return "!=";
  case CmpIPredicate::slt:
    return "<";
  case CmpIPredicate::sle:
    return "<=";
  case CmpIPredicate::sgt:
    return ">";
  case CmpIPredicate::sge:
    return ">=";
  default:
    return nullptr;
  }
}

/// The comparison of two numbers, and whether its negation is meant: the unordered ones are negations of ordered ones.
static std::pair<const char *, bool> signOf(mlir::arith::CmpFPredicate predicate) {
  using mlir::arith::CmpFPredicate;
  switch (predicate) {
  case CmpFPredicate::OEQ:
    return {"==", false};
  case CmpFPredicate::UNE:
    return {"!=", false};
  case CmpFPredicate::OLT:
    return {"<", false};
  case CmpFPredicate::OLE:
    return {"<=", false};
  case CmpFPredicate::OGT:
    return {">", false};
  case CmpFPredicate::OGE:
    return {">=", false};
  case CmpFPredicate::ULT:
    return {">=", true};
  case CmpFPredicate::ULE:
    return {">", true};
  case CmpFPredicate::UGT:
    return {"<=", true};
  case CmpFPredicate::UGE:
    return {"<", true};
  default:
    return {nullptr, false};
  }
}

/// Functions of one number that C++ has.
static const char *functionOf(mlir::Operation *op) {
  using namespace mlir;
  return llvm::TypeSwitch<Operation *, const char *>(op)
      .Case([](math::ExpOp) { return "expf"; })
      .Case([](math::Exp2Op) { return "exp2f"; })
      .Case([](math::LogOp) { return "logf"; })
      .Case([](math::Log2Op) { return "log2f"; })
      .Case([](math::SqrtOp) { return "sqrtf"; })
      .Case([](math::RsqrtOp) { return "1.0f / sqrtf"; })
      .Case([](math::SinOp) { return "sinf"; })
      .Case([](math::CosOp) { return "cosf"; })
      .Case([](math::TanhOp) { return "tanhf"; })
      .Case([](math::ErfOp) { return "erff"; })
      .Case([](math::AbsFOp) { return "fabsf"; })
      .Case([](math::FloorOp) { return "floorf"; })
      .Case([](math::RoundEvenOp) { return "rintf"; })
      .Default([](Operation *) { return nullptr; });
}

Expression FormulaWriter::defineFloat(mlir::Operation *op) {
  using namespace mlir;
  auto operand = [&](unsigned index) { return write(op->getOperand(index)).operand(); };
  auto plain = [&](unsigned index) { return write(op->getOperand(index)).text; };
  auto infix = [&](const char *sign) -> Expression {
    return {fmt::format("{} {} {}", operand(0), sign, operand(1)), {}};
  };
  auto call = [&](const char *name) -> Expression { return {fmt::format("{}({}, {})", name, plain(0), plain(1)), {}}; };
  mlir::Type type = op->getResult(0).getType();
  // A number that the source rounds to a narrower type.
  auto rounded = [&](const std::string &text) -> Expression {
    if (type.isBF16() || type.isF16())
      return {fmt::format("to_float(from_float<{}>({}))", elementType(type), text), {}};
    return {text, {}};
  };
  if (const char *function = functionOf(op))
    return {fmt::format("{}({})", function, plain(0)), {}};
  return llvm::TypeSwitch<Operation *, Expression>(op)
      .Case([&](arith::ConstantOp constant) -> Expression {
        if (auto number = dyn_cast<FloatAttr>(constant.getValue()))
          return {literal(number.getValueAsDouble()), {}};
        return {cast<IntegerAttr>(constant.getValue()).getValue().isZero() ? "false" : "true", {}};
      })
      .Case([&](arith::AddFOp) { return infix("+"); })
      .Case([&](arith::SubFOp) { return infix("-"); })
      .Case([&](arith::MulFOp) { return infix("*"); })
      .Case([&](arith::DivFOp division) -> Expression {
        // A divisor that no query and no key changes is inverted once.
        Level divisor = formulas.levelOf(division.getRhs());
        if (divisor != Level::Block || level == Level::Block)
          return infix("/");
        FormulaWriter writer(formulas, Level::Block, false);
        std::string value = "1.0f / " + writer.write(division.getRhs()).operand();
        return {fmt::format("{} * {}", operand(0), formulas.field(Level::Block, "inverse", "float", value)), {}};
      })
      .Case([&](arith::RemFOp) { return call("fmodf"); })
      .Case([&](math::PowFOp) { return call("powf"); })
      .Case([&](arith::NegFOp) -> Expression { return {"-" + operand(0), {}}; })
      .Case([&](arith::MaximumFOp) { return call("maximum"); })
      .Case([&](arith::MinimumFOp) { return call("minimum"); })
      .Case([&](arith::SelectOp) -> Expression {
        return {fmt::format("{} ? {} : {}", operand(0), operand(1), operand(2)), {}};
      })
      .Case([&](arith::SIToFPOp) { return rounded(fmt::format("float({})", plain(0))); })
      .Case([&](arith::UIToFPOp) -> Expression { return {fmt::format("{} ? 1.0f : 0.0f", operand(0)), {}}; })
      .Case([&](arith::ExtFOp) -> Expression { return {plain(0), {}}; })
      .Case([&](arith::TruncFOp) { return rounded(plain(0)); })
      .Case([&](arith::CmpIOp comparison) {
        const char *sign = signOf(comparison.getPredicate());
        return sign ? infix(sign) : unsupported(op);
      })
      .Case([&](arith::CmpFOp comparison) -> Expression {
        auto [sign, negated] = signOf(comparison.getPredicate());
        if (!sign)
          return unsupported(op);
        return negated ? Expression{"!(" + infix(sign).text + ")", {}} : infix(sign);
      })
      // No branches, as && and || would be: both sides can always be evaluated.
      .Case([&](arith::AndIOp) { return infix("&"); })
      .Case([&](arith::OrIOp) { return infix("|"); })
      .Case([&](arith::XOrIOp) { return infix("!="); })
      .Case([&](DropoutOp dropout) -> Expression {
        std::string probability = plain(1);
        std::string words = fmt::format("dropped_words({})", probability),
                    scale = fmt::format("1.0f / (1.0f - {})", write(dropout.getProbability()).operand());
        if (formulas.levelOf(dropout.getProbability()) == Level::Block && level != Level::Block) {
          words = formulas.field(Level::Block, "dropped", "unsigned long long", words);
          scale = formulas.field(Level::Block, "scale_of_kept", "float", scale);
        }
        return {fmt::format("dropout({}, {}, {}, {}, {})", plain(0), scale, words, plain(2), plain(3)), {}};
      })
      .Default([&](Operation *) { return unsupported(op); });
}

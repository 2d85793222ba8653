//===- ElementFunctions.cpp - What is computed of each query and key ------===//

#include "Members.h"
#include "attn/Analysis/KeyRange.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/Matchers.h"

#include <fmt/format.h>

using namespace attn;
using namespace attn::cuda;

static constexpr const char *elementParameters =
    "const Arguments &arguments, const Block &block, const Row &row, float dot, const Position &at, int key";

/// Writes a function with these parameters.
static FormulaWriter elementWriter(Formulas &formulas) {
  FormulaWriter writer(formulas, Level::Element, /*hasRow=*/true);
  for (ReduceOp dot : formulas.attention.dots)
    writer.replace(dot.getResult(), "dot");
  return writer;
}

/// Whether `value` is positive whatever the parameters hold: made of constants, sizes and square roots of them.
static bool isPositive(mlir::Value value) {
  mlir::FloatAttr number;
  if (mlir::matchPattern(value, mlir::m_Constant(&number)))
    return number.getValueAsDouble() > 0;
  mlir::Operation *op = value.getDefiningOp();
  if (auto cast = mlir::dyn_cast_or_null<mlir::arith::SIToFPOp>(op)) {
    auto size = cast.getIn().getDefiningOp<SizeOp>();
    return size && size.getSize().isName();
  }
  return mlir::isa_and_nonnull<mlir::arith::MulFOp, mlir::arith::DivFOp, mlir::math::SqrtOp>(op) &&
         llvm::all_of(op->getOperands(), isPositive);
}

/// The score in units of log2(e), in which weights are powers of two. Its factors that no query and no key changes are
/// one; where nothing else than that and the product is left, the factor is applied with the maximum instead.
static std::string scoreFunctions(Formulas &formulas) {
  Attention &attention = formulas.attention;
  mlir::Value rest = attention.score();
  std::string factor = "1.44269504088896341f";
  bool positive = true, hasFactor = false;
  FormulaWriter block(formulas, Level::Block, /*hasRow=*/false);
  auto isUniform = [&](mlir::Value value) { return formulas.levelOf(value) == Level::Block; };
  while (true) {
    auto product = rest.getDefiningOp<mlir::arith::MulFOp>();
    auto quotient = rest.getDefiningOp<mlir::arith::DivFOp>();
    mlir::Value uniform;
    if (product && isUniform(product.getRhs()) != isUniform(product.getLhs())) {
      uniform = isUniform(product.getRhs()) ? product.getRhs() : product.getLhs();
      rest = isUniform(product.getRhs()) ? product.getLhs() : product.getRhs();
      factor += " * " + block.write(uniform).operand();
    } else if (quotient && isUniform(quotient.getRhs()) && !isUniform(quotient.getLhs())) {
      uniform = quotient.getRhs();
      rest = quotient.getLhs();
      factor += " / " + block.write(uniform).operand();
    } else {
      break;
    }
    hasFactor = true;
    positive &= isPositive(uniform);
  }
  if (hasFactor)
    factor = formulas.field(Level::Block, "scale", "float", factor);
  bool isFolded = rest == attention.dots.front().getResult() && positive && !attention.sink();
  FormulaWriter writer = elementWriter(formulas);
  std::string value = isFolded ? "dot" : writer.write(rest).operand() + " * " + factor;
  return "  // What a score is times this, is in units of log2(e).\n"
         "  static __device__ __forceinline__ float score_scale(const Block &block) {\n    return " +
         std::string(isFolded ? factor : "1.0f") + ";\n  }\n" +
         writer.function(fmt::format("float score({})", elementParameters), value);
}

/// The sum of a bound as an int64.
static std::string sumOf(const KeyBound &bound, FormulaWriter &writer) {
  std::string sum = fmt::format("int64({})", bound.constant), wide = fmt::format("WideSum{{{}, 0}}", bound.constant);
  bool isWide = false;
  for (auto [term, coefficient] : bound.terms) {
    Expression value = writer.write(term);
    isWide |= !value.range.fits32();
    wide += fmt::format(".plus({}, {})", value.text, coefficient);
    int64_t size = std::abs(coefficient);
    sum += coefficient < 0 ? " - " : " + ";
    sum += size == 1 ? value.operand() : fmt::format("int64({}) * {}", size, value.operand());
  }
  return isWide ? wide + ".limited()" : sum;
}

/// The bound as an int64.
static std::string textOf(const KeyBound &bound, FormulaWriter &writer) {
  auto both = [&](const char *name) {
    return fmt::format("{}({}, {})", name, textOf(*bound.lhs, writer), textOf(*bound.rhs, writer));
  };
  switch (bound.kind) {
  case KeyBound::Kind::Linear:
    return sumOf(bound, writer);
  case KeyBound::Kind::Min:
    return both("smaller");
  case KeyBound::Kind::Max:
    return both("larger");
  case KeyBound::Kind::Guard:
    return fmt::format("int64({} ? keys : 0)", writer.write(bound.condition).operand());
  case KeyBound::Kind::Times: // of no more than all keys, which have no more quotients than that
    return fmt::format("smaller(larger({}, int64(0)), int64(keys)) * {}", textOf(*bound.lhs, writer),
                       writer.write(bound.factor).operand());
  case KeyBound::Kind::Quotient: // rounded to 0, of what is below that
    return fmt::format("({}) / {}", textOf(*bound.lhs, writer), bound.constant);
  }
  llvm_unreachable("unknown kind of bound");
}

static std::string maskFunctions(Formulas &formulas) {
  mlir::Value mask = formulas.attention.mask();
  FormulaWriter writer = elementWriter(formulas);
  std::string value = mask ? writer.write(mask).text : "true";
  std::string text = writer.function(fmt::format("bool mask({})", elementParameters), value);
  if (!mask)
    return text;
  MaskRange range = maskRange(mask, mask.getParentRegion()->getArguments().back());
  FormulaWriter bounds(formulas, Level::Row, /*hasRow=*/false);
  std::string assignments;
  auto assign = [&](const char *member, const std::shared_ptr<const KeyBound> &limit) {
    if (limit)
      assignments += fmt::format("    range.{} = subscript({}, keys);\n", member, textOf(*limit, bounds));
  };
  assign("possible.lower", range.possible.lower);
  assign("possible.upper", range.possible.upper);
  assign("certain.lower", range.certain.lower);
  assign("certain.upper", range.certain.upper);
  text += fmt::format("  // Keys outside of `possible` are masked, those inside of `certain` are not.\n"
                      "  static __device__ MaskRange mask_range(const Arguments &arguments, const Block &block, "
                      "const Position &at, int keys) {{\n{}"
                      "    MaskRange range = {{{{0, keys}}, {{0, keys}}}};\n{}    return range;\n  }}\n",
                      bounds.statements(), assignments);
  return text;
}

static std::string weightFunction(Formulas &formulas) {
  FormulaWriter writer(formulas, Level::Element, /*hasRow=*/true);
  WeightedSumOp sum = formulas.attention.sum;
  writer.replace(formulas.attention.weight.getResult(), "weight");
  std::string value = writer.write(yielded(sum.getBody())).text;
  if (!sum.getWhere().empty())
    value = fmt::format("{} ? {} : 0.0f", writer.write(yielded(sum.getWhere())).operand(), value);
  return writer.function("float weight(const Arguments &arguments, const Block &block, const Row &row, float weight, "
                         "const Position &at, int key)",
                         value);
}

static std::string sinkFunction(Formulas &formulas) {
  FormulaWriter writer(formulas, Level::Row, /*hasRow=*/true);
  mlir::Value sink = formulas.attention.sink();
  std::string value =
      sink ? fmt::format("larger({} * 1.44269504088896341f, lowest())", writer.write(sink).operand()) : "lowest()";
  return writer.function(
      "float first_maximum(const Arguments &arguments, const Block &block, const Row &row, const Position &at)", value);
}

std::string cuda::elementFunctions(Formulas &formulas) {
  return "\n  // The formulas of an element.\n" + scoreFunctions(formulas) + maskFunctions(formulas) +
         weightFunction(formulas) + sinkFunction(formulas);
}

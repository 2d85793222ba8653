//===- TileSearch.cpp - What a mask says of a tile's rows and keys --------===//
//
// The mask as a formula of intervals. Its largest parts that only the query or only the key changes are terms, of which
// a tile has the least and the greatest: document[m] == document[n] is equal(row[0], key[0]).
//
//===----------------------------------------------------------------------===//

#include "Members.h"
#include "attn/Analysis/Dependence.h"
#include "attn/Analysis/KeyRange.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/Matchers.h"
#include "llvm/ADT/TypeSwitch.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

using namespace attn;
using namespace attn::cuda;

namespace {

class TileSearch {
public:
  explicit TileSearch(Formulas &formulas) : formulas(formulas) {}

  /// The members; nothing where it is not worth while.
  std::string run();

private:
  /// Numbers of a row or of a key.
  struct Terms {
    Terms(Formulas &formulas, Level level) : writer(formulas, level, /*hasRow=*/false) {}

    FormulaWriter writer;
    std::vector<std::string> texts;
    llvm::DenseMap<mlir::Value, Expression> known;
  };

  bool isWorthwhile(mlir::Value condition);
  std::string term(Terms &terms, const char *name, mlir::Value value, IntegerRange &range);
  std::optional<Expression> interval(mlir::Value value);
  std::optional<Expression> intervalOfPairs(mlir::Operation *op);
  std::optional<std::string> outcome(mlir::Value condition);
  std::optional<std::string> outcomeOfPairs(mlir::Operation *op);
  std::optional<std::string> comparison(mlir::arith::CmpIOp compare);
  std::optional<std::string> table(ReadOp read, bool wanted);
  std::string termsFunction(const char *name, const char *parameter, const Terms &terms);

  Formulas &formulas;
  FormulaWriter block{formulas, Level::Block, /*hasRow=*/false};
  Terms ofRow{formulas, Level::Row}, ofKey{formulas, Level::Key};
  bool isWide = false; ///< Whether a term has 64 bits.
};

} // namespace

/// Between which numbers a term is, with the range of each of them.
std::string TileSearch::term(Terms &terms, const char *name, mlir::Value value, IntegerRange &range) {
  auto [found, isNew] = terms.known.try_emplace(value);
  if (isNew) {
    Expression number = terms.writer.write(value);
    found->second = {fmt::format("{}[{}]", name, terms.texts.size()), number.range};
    if (value.getType().isSignlessInteger(1))
      found->second.range = {0, 1};
    isWide |= !found->second.range.fits32();
    terms.texts.push_back(number.text);
  }
  range = found->second.range;
  return found->second.text;
}

/// Between which numbers an integer or a truth is, with the range of each. Nothing where that is not known.
std::optional<Expression> TileSearch::interval(mlir::Value value) {
  switch (formulas.levelOf(value)) {
  case Level::Block: {
    Expression number = block.write(value);
    return Expression{fmt::format("exactly({})", number.text), number.range};
  }
  case Level::Row:
  case Level::Key: {
    bool isOfRow = formulas.levelOf(value) == Level::Row;
    Expression result;
    result.text = term(isOfRow ? ofRow : ofKey, isOfRow ? "row" : "key", value, result.range);
    return result;
  }
  case Level::Element:
    mlir::Operation *op = value.getDefiningOp();
    return op ? intervalOfPairs(op) : std::nullopt;
  }
  llvm_unreachable("unknown level");
}

/// What may not fit into 64 bits wraps, so that nothing is known.
std::optional<Expression> TileSearch::intervalOfPairs(mlir::Operation *op) {
  using namespace mlir;
  llvm::SmallVector<Expression, 2> operands;
  if (isa<arith::AddIOp, arith::SubIOp, arith::MulIOp, arith::MaxSIOp, arith::MinSIOp, math::AbsIOp, FloorDivOp>(op))
    for (Value operand : op->getOperands()) {
      std::optional<Expression> known = interval(operand);
      if (!known)
        return std::nullopt;
      operands.push_back(*known);
    }
  if (operands.empty())
    return std::nullopt;
  auto call = [&](const char *name, IntegerRange range) -> std::optional<Expression> {
    if (range.low == INT64_MIN)
      return std::nullopt;
    std::string text = operands.size() == 1 ? fmt::format("{}({})", name, operands[0].text)
                                            : fmt::format("{}({}, {})", name, operands[0].text, operands[1].text);
    return Expression{text, range};
  };
  return llvm::TypeSwitch<Operation *, std::optional<Expression>>(op)
      .Case([&](arith::AddIOp) { return call("add", add(operands[0], operands[1]).range); })
      .Case([&](arith::SubIOp) { return call("subtract", subtract(operands[0], operands[1]).range); })
      .Case([&](arith::MulIOp) { return call("multiply", multiply(operands[0], operands[1]).range); })
      .Case([&](arith::MaxSIOp) { return call("larger_of", extremum(operands[0], operands[1], true).range); })
      .Case([&](arith::MinSIOp) { return call("smaller_of", extremum(operands[0], operands[1], false).range); })
      .Case([&](math::AbsIOp) {
        return call("magnitude", extremum(operands[0], subtract(integer(0), operands[0]), true).range);
      })
      .Case([&](FloorDivOp) -> std::optional<Expression> {
        APInt divisor;
        if (!matchPattern(op->getOperand(1), m_ConstantInt(&divisor)) || !divisor.isStrictlyPositive())
          return std::nullopt;
        IntegerRange range = floorDivide(operands[0], operands[1]).range;
        operands[1].text = fmt::format("{}", divisor.getSExtValue());
        return call("floor_divide", range);
      });
}

std::optional<std::string> TileSearch::comparison(mlir::arith::CmpIOp compare) {
  using mlir::arith::CmpIPredicate;
  std::optional<Expression> a = interval(compare.getLhs()), b = interval(compare.getRhs());
  if (!a || !b)
    return std::nullopt;
  switch (compare.getPredicate()) {
  case CmpIPredicate::eq:
    return fmt::format("equal({}, {})", a->text, b->text);
  case CmpIPredicate::ne:
    return fmt::format("negated(equal({}, {}))", a->text, b->text);
  case CmpIPredicate::slt:
    return fmt::format("less({}, {})", a->text, b->text);
  case CmpIPredicate::sge:
    return fmt::format("negated(less({}, {}))", a->text, b->text);
  case CmpIPredicate::sgt:
    return fmt::format("less({}, {})", b->text, a->text);
  case CmpIPredicate::sle:
    return fmt::format("negated(less({}, {}))", b->text, a->text);
  default:
    return std::nullopt;
  }
}

/// Whether truths are as they are wanted that are read at subscripts of the row and one of the key.
std::optional<std::string> TileSearch::table(ReadOp read, bool wanted) {
  std::string tensor = formulas.tensor(read.getTensor()), first = tensor + ".data", key;
  std::vector<std::string> rows;
  for (auto [dimension, subscript] : llvm::enumerate(read.getSubscripts())) {
    Level level = formulas.levelOf(subscript);
    std::string stride = fmt::format("{}.stride[{}]", tensor, dimension);
    SizeAttr size = read.getTensor().getType().getShape()[dimension];
    if (level == Level::Block) {
      first += fmt::format(" + {} * {}", block.subscript(subscript, size), stride);
      continue;
    }
    std::optional<Expression> index = level == Level::Element ? std::nullopt : interval(subscript);
    if (!index || (level == Level::Key && !key.empty()))
      return std::nullopt;
    if (!isInRange(subscript, size))
      index->text = fmt::format("subscripts({}, {})", index->text, subtract(block.size(size), integer(1)).text);
    std::string axis = fmt::format("{{{}, {}}}", index->text, stride);
    if (level == Level::Key)
      key = axis;
    else
      rows.push_back(axis);
  }
  return fmt::format("outcome_of_table<{}>({}, {{{}}}, {}, {})", rows.size(), first, fmt::join(rows, ", "), key, wanted);
}

std::optional<std::string> TileSearch::outcomeOfPairs(mlir::Operation *op) {
  using namespace mlir;
  return llvm::TypeSwitch<Operation *, std::optional<std::string>>(op)
      .Case<arith::AndIOp, arith::OrIOp>([&](auto) -> std::optional<std::string> {
        std::optional<std::string> a = outcome(op->getOperand(0)), b = outcome(op->getOperand(1));
        bool isKnown = isa<arith::AndIOp>(op) ? a || b : a && b;
        if (!isKnown)
          return std::nullopt;
        return fmt::format("{}({}, {})", isa<arith::AndIOp>(op) ? "both" : "either", a.value_or("unknown()"),
                           b.value_or("unknown()"));
      })
      .Case([&](arith::XOrIOp exclusive) -> std::optional<std::string> {
        if (!matchPattern(exclusive.getRhs(), m_One()))
          return std::nullopt;
        if (auto read = exclusive.getLhs().getDefiningOp<ReadOp>())
          return table(read, false);
        std::optional<std::string> a = outcome(exclusive.getLhs());
        return a ? std::optional("negated(" + *a + ")") : std::nullopt;
      })
      .Case([&](arith::CmpIOp compare) { return comparison(compare); })
      .Case([&](ReadOp read) { return table(read, true); })
      .Default([](Operation *) { return std::nullopt; });
}

/// For which rows and keys `condition` is true; nothing where that is not known.
std::optional<std::string> TileSearch::outcome(mlir::Value condition) {
  if (formulas.levelOf(condition) == Level::Element) {
    mlir::Operation *op = condition.getDefiningOp();
    return op ? outcomeOfPairs(op) : std::nullopt;
  }
  return fmt::format("truth({})", interval(condition)->text);
}

/// Whether one of the conditions that `condition` joins by `and` is known here, and is not all in the range of keys.
bool TileSearch::isWorthwhile(mlir::Value condition) {
  if (auto both = condition.getDefiningOp<mlir::arith::AndIOp>())
    return isWorthwhile(both.getLhs()) || isWorthwhile(both.getRhs());
  return !isKeyRange(condition, condition.getParentRegion()->getArguments().back()) && outcome(condition);
}

std::string TileSearch::termsFunction(const char *name, const char *parameter, const Terms &terms) {
  std::string assignments;
  for (auto [number, text] : llvm::enumerate(terms.texts))
    assignments += fmt::format("    terms[{}] = {};\n", number, text);
  if (terms.texts.empty())
    assignments = "    terms[0] = 0;\n";
  return fmt::format(
      "  static __device__ __forceinline__ void terms_of_{}(const Arguments &arguments, const Block &block, "
      "{}, Term (&terms)[{}_terms]) {{\n{}{}  }}\n",
      name, parameter, name, terms.writer.statements(), assignments);
}

std::string TileSearch::run() {
  mlir::Value mask = formulas.attention.mask();
  if (!mask || !isWorthwhile(mask))
    return "";
  std::string whole = *outcome(mask);
  std::string text = fmt::format("\n  // What the mask compares, and what it says of a tile's rows and keys.\n"
                                 "  using Term = {};\n  static constexpr int row_terms = {}, key_terms = {};\n",
                                 isWide ? "int64" : "int", std::max<size_t>(ofRow.texts.size(), 1),
                                 std::max<size_t>(ofKey.texts.size(), 1));
  text += termsFunction("row", "const Position &at", ofRow) + termsFunction("key", "int key", ofKey);
  return text + fmt::format("  static __device__ __forceinline__ Outcome outcome(const Arguments &arguments, "
                            "const Block &block, const Extremes<Term, row_terms> &row, "
                            "const Extremes<Term, key_terms> &key) {{\n    return {};\n  }}\n",
                            whole);
}

std::string cuda::tileSearch(Formulas &formulas) { return TileSearch(formulas).run(); }

bool cuda::searchesTiles(Attention &attention) {
  Formulas formulas(attention);
  return !tileSearch(formulas).empty();
}

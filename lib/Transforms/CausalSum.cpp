//===- CausalSum.cpp - Sums over what comes before, or after --------------===//

#include "CausalSum.h"
#include "Scores.h"
#include "Slice.h"
#include "attn/Analysis/PairBlocks.h"
#include "attn/Analysis/PlacedSum.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace attn;

using Terms = std::vector<SeparableTerm>;

/// Each part costs as much as the sum of one: of more, pairs cost less.
static constexpr size_t mostTerms = 3;

/// Pairs that are made of pairs, many times over, have a formula that is far longer than the spec.
static constexpr unsigned mostPairs = 16;

namespace {
/// Finds the terms of a sum for one row index.
class Expansion {
public:
  Expansion(CausalSum &sum) : sum(sum) {}

  std::optional<Terms> of(Value value);
  /// Adds `condition` to each of `terms`. False where it is one of the pair, and no comparison of key and row.
  bool addCondition(Terms &terms, Value condition);

private:
  std::optional<Terms> ofDot(ReduceOp dot);
  std::optional<Terms> product(const Terms &a, const Terms &b);
  bool changesWithKey(const IndexSet &indices) const {
    return indices.contains(sum.key) || (sum.keyOfCondition && indices.contains(sum.keyOfCondition));
  }
  bool isOfPair(Value value) const {
    IndexSet indices = dependence(value);
    return changesWithKey(indices) && indices.contains(sum.row);
  }
  bool comparesKeyAndRow(Value condition);
  bool isDistance(Value value) const;
  bool isMultipleOfDistance(Value value) const;
  bool isDecay(Operation *op) const;

  CausalSum &sum;
  std::optional<std::pair<bool, bool>> order; ///< Whether reversed, and whether strict: the same for all terms.
};
} // namespace

/// Whether `condition` is key <= row, key < row, or one of these the other way round: the one that all have.
bool Expansion::comparesKeyAndRow(Value condition) {
  std::optional<IndexOrder> compared = IndexOrder::of(condition);
  if (!compared)
    return false;
  sum.isReversed = compared->smaller == sum.row;
  if ((sum.isReversed ? compared->smaller : compared->larger) != sum.row)
    return false;
  std::pair found(sum.isReversed, compared->isStrict);
  if (!order)
    order = found;
  return *order == found;
}

bool Expansion::addCondition(Terms &terms, Value condition) {
  for (Value each : conjunctsOf(condition)) {
    bool isOrder = isOfPair(each);
    if (isOrder && !comparesKeyAndRow(each))
      return false;
    bool isOfKey = changesWithKey(dependence(each));
    for (SeparableTerm &term : terms)
      if (isOrder)
        term.order = each;
      else
        (isOfKey ? term.keyConditions : term.rowConditions).push_back(each);
  }
  return true;
}

/// row − key, key − row or its magnitude, as a float or not.
bool Expansion::isDistance(Value value) const {
  Operation *op = value.getDefiningOp();
  if (isa_and_nonnull<arith::SIToFPOp, math::AbsIOp>(op))
    return isDistance(op->getOperand(0));
  if (!isa_and_nonnull<arith::SubIOp>(op))
    return false;
  Value first = op->getOperand(0), second = op->getOperand(1);
  return (first == sum.row && second == sum.key) || (first == sum.key && second == sum.row);
}

bool Expansion::isMultipleOfDistance(Value value) const {
  Product product = Product::of(value);
  unsigned distances = 0;
  for (const Factor &factor : product.factors) {
    bool isFixed = !factor.indices.contains(sum.row) && !factor.indices.contains(sum.key);
    if (!isFixed && (factor.inverse || !isDistance(factor.value)))
      return false;
    distances += !isFixed;
  }
  return distances == 1;
}

/// Whether `op` computes a decay: a power of what neither row nor key changes, whose exponent is a multiple of their
/// distance.
bool Expansion::isDecay(Operation *op) const {
  if (isa<math::ExpOp, math::Exp2Op>(op))
    return isMultipleOfDistance(op->getOperand(0));
  if (!isa<math::PowFOp>(op))
    return false;
  IndexSet ofBase = dependence(op->getOperand(0));
  return !ofBase.contains(sum.row) && !ofBase.contains(sum.key) && isMultipleOfDistance(op->getOperand(1));
}

std::optional<Terms> Expansion::ofDot(ReduceOp dot) {
  bool isSum = dot.getKind() == ReduceKind::Sum && dot.getSizes().size() == 1 && isa<FloatType>(dot.getType());
  if (!isSum || !dot.getBody().getOps<ReduceOp>().empty())
    return {};
  SeparableTerm term;
  term.dot = dot;
  Product product = Product::of(yielded(dot.getBody()));
  term.negative = product.negative;
  for (const Factor &factor : product.factors) {
    if (isOfPair(factor.value))
      return {};
    (factor.indices.contains(sum.key) ? term.keyFactorsOfDot : term.rowFactorsOfDot).push_back(factor);
  }
  Terms terms = {term};
  if (!dot.isConditional())
    return terms;
  Value condition = yielded(dot.getWhere());
  bool isOfTerms = dependence(condition).contains(dot.getWhere().getArgument(0));
  return !isOfTerms && addCondition(terms, condition) ? std::optional(terms) : std::nullopt;
}

std::optional<Terms> Expansion::product(const Terms &a, const Terms &b) {
  Terms terms;
  for (const SeparableTerm &first : a)
    for (const SeparableTerm &second : b) {
      if (first.dot && second.dot)
        return {};
      SeparableTerm both = first.dot ? first : second;
      const SeparableTerm &other = first.dot ? second : first;
      both.negative = first.negative != second.negative;
      both.rowFactors.append(other.rowFactors);
      both.keyFactors.append(other.keyFactors);
      both.decays.append(other.decays);
      both.rowConditions.append(other.rowConditions);
      both.keyConditions.append(other.keyConditions);
      both.order = both.order ? both.order : other.order;
      terms.push_back(both);
    }
  return terms;
}

std::optional<Terms> Expansion::of(Value value) {
  IndexSet indices = dependence(value);
  if (!isOfPair(value)) {
    SeparableTerm term;
    (indices.contains(sum.key) ? term.keyFactors : term.rowFactors).push_back({value, false, indices});
    return Terms{term};
  }
  Operation *op = value.getDefiningOp();
  if (auto dot = dyn_cast<ReduceOp>(op))
    return ofDot(dot);
  if (isDecay(op)) {
    SeparableTerm term;
    term.decays.push_back(value);
    return Terms{term};
  }
  if (auto choice = dyn_cast<arith::SelectOp>(op)) {
    std::optional<Terms> terms = choosesZero(choice) ? of(choice.getTrueValue()) : std::nullopt;
    return terms && addCondition(*terms, choice.getCondition()) ? terms : std::nullopt;
  }
  if (!isa<arith::AddFOp, arith::SubFOp, arith::NegFOp, arith::MulFOp, arith::DivFOp>(op))
    return {};
  std::optional<Terms> first = of(op->getOperand(0));
  if (!first || isa<arith::NegFOp>(op)) {
    for (SeparableTerm &term : first.value_or(Terms()))
      term.negative = !term.negative;
    return first;
  }
  Value operand = op->getOperand(1);
  if (isa<arith::DivFOp>(op)) {
    if (isOfPair(operand))
      return {};
    IndexSet ofOperand = dependence(operand);
    for (SeparableTerm &term : *first)
      (ofOperand.contains(sum.key) ? term.keyFactors : term.rowFactors).push_back({operand, true, ofOperand});
    return first;
  }
  std::optional<Terms> second = of(operand);
  if (!second)
    return {};
  if (isa<arith::MulFOp>(op))
    return product(*first, *second);
  for (SeparableTerm &term : *second) {
    term.negative = term.negative != isa<arith::SubFOp>(op);
    first->push_back(term);
  }
  return first;
}

/// Gives pairs that `sum` reads, of its key and `row`, their formula in its terms. False where there are very many.
static bool expandPairs(ReduceOp sum, BlockArgument row, llvm::SetVector<TensorOp> &found) {
  BlockArgument key = sum.getBody().getArgument(0);
  unsigned expanded = 0;
  for (bool changed = true; changed;) {
    changed = false;
    for (ReadOp read : llvm::to_vector(sum.getBody().getOps<ReadOp>())) {
      IndexSet indices = dependence(read.getResult());
      auto pairs = read.getTensor().getDefiningOp<TensorOp>();
      if (!pairs || !indices.contains(key) || !indices.contains(row) || !isInRange(read))
        continue;
      if (++expanded > mostPairs)
        return false;
      found.insert(pairs);
      substituteFormula(read, pairs);
      changed = true;
    }
  }
  return true;
}

std::optional<CausalSum> CausalSum::of(ReduceOp sum, TensorOp tensor) {
  if (sum.getKind() != ReduceKind::Sum || sum.getSizes().size() != 1 || !isa<FloatType>(sum.getType()))
    return {};
  unsigned position = std::distance(tensor.getBody().front().begin(), Block::iterator(sum));
  for (BlockArgument index : tensor.getBody().getArguments()) {
    if (indexSize(index) != indexSize(sum.getBody().getArgument(0)))
      continue;
    CausalSum found;
    found.copy = cast<TensorOp>(OpBuilder(tensor).clone(*tensor));
    Block &body = found.copy.getBody().front();
    found.row = body.getArgument(index.getArgNumber());
    auto copied = cast<ReduceOp>(*std::next(body.begin(), position));
    found.key = copied.getBody().getArgument(0);
    if (copied.isConditional())
      found.keyOfCondition = copied.getWhere().getArgument(0);
    Expansion expansion(found);
    std::optional<Terms> terms;
    if (expandPairs(copied, found.row, found.pairs))
      terms = expansion.of(yielded(copied.getBody()));
    bool isSeparable = terms && (!copied.isConditional() || expansion.addCondition(*terms, yielded(copied.getWhere())));
    if (isSeparable && terms->size() <= mostTerms &&
        llvm::all_of(*terms, [](const SeparableTerm &term) { return static_cast<bool>(term.order); }) &&
        llvm::any_of(*terms, [](const SeparableTerm &term) { return static_cast<bool>(term.dot); })) {
      found.terms = *terms;
      return found;
    }
    found.copy.erase();
  }
  return {};
}

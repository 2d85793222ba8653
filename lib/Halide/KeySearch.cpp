//===- KeySearch.cpp - Keys that a mask lets through -----------------------===//

#include "KeySearch.h"
#include "Hints.h"
#include "attn/Analysis/KeyRange.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using Halide::cast;
using Halide::Expr;
using Halide::Func;
using Halide::RDom;
using Halide::select;

namespace attn::lowering {

int keysInVector(mlir::Value condition, mlir::BlockArgument key, int lanes) {
  return std::min<int64_t>(keysSearchedAtOnce(condition, key), 4 * lanes);
}

std::vector<Expr> loopsOf(const RDom &domain, size_t first, size_t count) {
  std::vector<Expr> result;
  for (size_t dimension = first; dimension < first + count; ++dimension)
    result.push_back(domain[dimension]);
  return result;
}

static bool uses(const Expr &expr, const Expr &variable) {
  return Halide::Internal::expr_uses_var(expr, variable.as<Halide::Internal::Variable>()->name);
}

/// With keys in lanes, as they lie in memory: whole vectors, then one that ends with the last key.
KeySearch::KeySearch(StepLowering &kernel, const std::vector<Halide::Var> &groupVars, const Halide::Region &rows,
                     const Part &part, int inVector, mlir::Value condition, Lower lower)
    : kernel(kernel), rows(rows), part(part), inVector(inVector),
      key(condition.getParentRegion()->getArguments().back()), lastVector(part.keyCount - inVector),
      isEnough(lastVector >= 0), group(groupVars.begin(), groupVars.end()), seen(kernel.uniqueName("seen")),
      first(kernel.uniqueName("first_seen")), end(kernel.uniqueName("end_seen")) {
  std::vector<Expr> element = group;
  element.insert(element.begin(), {lane, vector});
  seen(element) = cast<uint8_t>(0);
  auto search = [&](const RDom &domain, Expr vector, Expr firstKey) {
    Expr key = Halide::unsafe_promise_clamped(firstKey + lane, 0, Halide::max(part.keyCount, 1) - 1);
    Expr isSeen = unconditional(lower(condition, loopsOf(domain, 0, rows.size()), {key, {lane}, false, {}}));
    element[1] = vector;
    seen(element) = select(isSeen, cast<uint8_t>(1), seen(element));
  };
  Halide::Region ranges = rows;
  ranges.push_back({0, part.vectors});
  RDom whole(ranges);
  Expr number = whole[rows.size()];
  Expr firstOfVector = part.first + number * inVector;
  whole.where(firstOfVector < part.most);
  if (!Halide::Internal::is_const_zero(part.least))
    whole.where(firstOfVector + inVector > part.least);
  whole.where(firstOfVector <= lastVector);
  if (Expr mayBeSeen = mayHold(condition, lower); mayBeSeen.defined()) {
    mayBeSeen = Halide::Internal::substitute(vector.name(), number, mayBeSeen);
    // As a bound of the loop over rows, rather than a condition in it.
    whole.where(rows.empty() ? mayBeSeen : whole.x < rows[0].min + select(mayBeSeen, rows[0].extent, 0));
  }
  search(whole, number, firstOfVector);
  ranges.back() = {0, 1};
  RDom rest(ranges);
  rest.where(rest[rows.size()] < select(isEnough && part.hasEnd && part.keyCount % inVector != 0, 1, 0));
  search(rest, part.vectors + rest[rows.size()], lastVector);

  all = RDom(0, inVector, 0, part.vectors + 1);
  element[0] = all.x;
  element[1] = all.y;
  Expr keyOf = select(all.y < part.vectors, part.first + all.y * inVector, lastVector) + all.x;
  Expr isSeen = seen(element) != 0;
  first(group) = part.keyCount;
  first(group) = Halide::min(first(group), select(isSeen, keyOf, part.keyCount));
  end(group) = 0;
  end(group) = Halide::max(end(group), select(isSeen, keyOf + 1, 0));
}

Expr KeySearch::mayHold(mlir::Value condition, Lower lower) {
  using mlir::arith::CmpIPredicate;
  mlir::Operation *op = condition.getDefiningOp();
  if (mlir::isa_and_nonnull<mlir::arith::AndIOp, mlir::arith::OrIOp>(op)) {
    Expr lhs = mayHold(op->getOperand(0), lower), rhs = mayHold(op->getOperand(1), lower);
    if (mlir::isa<mlir::arith::OrIOp>(op))
      return lhs.defined() && rhs.defined() ? lhs || rhs : Expr();
    return lhs.defined() && rhs.defined() ? lhs && rhs : lhs.defined() ? lhs : rhs;
  }
  // What no key changes, and what changes with its number alone, is not looked for.
  auto compare = mlir::dyn_cast_or_null<mlir::arith::CmpIOp>(op);
  auto readsKey = [&](mlir::Operation *inner) {
    return mlir::isa<ReadOp>(inner) && dependence(inner->getResult(0)).contains(key);
  };
  if (!compare || !compare.getLhs().getType().isInteger(64) || !anyInSlice(condition, readsKey))
    return {};
  std::optional<Extremes> lhs = extremes(compare.getLhs(), lower), rhs = extremes(compare.getRhs(), lower);
  if (!lhs || !rhs)
    return {};
  switch (compare.getPredicate()) {
  case CmpIPredicate::eq:
    return lhs->least <= rhs->greatest && rhs->least <= lhs->greatest;
  case CmpIPredicate::slt:
    return lhs->least < rhs->greatest;
  case CmpIPredicate::sle:
    return lhs->least <= rhs->greatest;
  case CmpIPredicate::sgt:
    return lhs->greatest > rhs->least;
  case CmpIPredicate::sge:
    return lhs->greatest >= rhs->least;
  default:
    return {};
  }
}

/// Nothing where a value is different for each row and key: for their last index, which is that of the queries.
std::optional<KeySearch::Extremes> KeySearch::extremes(mlir::Value value, Lower lower) {
  bool isOfKey = dependence(value).contains(key);
  Expr firstKey = Halide::min(part.first + vector * inVector, lastVector);
  auto keyAt = [&](Expr inLane) -> IndexBinding {
    Expr at = Halide::unsafe_promise_clamped(firstKey + inLane, 0, Halide::max(part.keyCount, 1) - 1);
    return {isOfKey ? at : Expr(0), {}, false, {}};
  };
  // Indices of rows that do not change the value have one turn.
  Halide::Region ranges = {{0, isOfKey ? inVector : 1}, {0, select(isEnough, 1, 0)}};
  RDom every(rows);
  std::vector<Expr> row = loopsOf(every, 0, rows.size());
  Expr each = lower(value, row, keyAt(0));
  bool isOfRow = false;
  for (auto [index, range] : llvm::zip(row, rows)) {
    bool isUsed = uses(each, index);
    isOfRow |= isUsed;
    ranges.push_back({range.min, isUsed ? range.extent : Expr(1)});
  }
  if (isOfKey && !row.empty() && uses(each, row.front()))
    return std::nullopt;
  if (!isOfKey && !isOfRow)
    return Extremes{each, each};
  RDom domain(ranges);
  each = lower(value, loopsOf(domain, 2, rows.size()), keyAt(domain.x));
  std::vector<Expr> at = group;
  if (isOfKey)
    at.insert(at.begin(), vector);
  auto over = [&](const char *name, bool largest) {
    Func result(kernel.uniqueName(name));
    result(at) = largest ? each.type().min() : each.type().max();
    result(at) = largest ? Halide::max(result(at), each) : Halide::min(result(at), each);
    (isOfKey ? ofVectors : ofRows).push_back(result);
    return Expr(result(at));
  };
  return Extremes{over("least", false), over("greatest", true)};
}

void KeySearch::computeAt(const Halide::LoopLevel &level, const Halide::LoopLevel &rowLevel, int lanes) {
  int inParts = std::min(lanes, inVector);
  for (Func each : ofRows)
    each.compute_at(rowLevel);
  for (Func each : ofVectors)
    each.compute_at(level).update().atomic().vectorize(each.rvars()[0], inParts);
  seen.compute_at(level).bound(lane, 0, inVector).vectorize(lane);
  seen.update(0).vectorize(lane);
  seen.update(1).vectorize(lane);
  for (Func each : {first, end})
    each.compute_at(level).update().atomic().vectorize(all.x, inParts);
}

Expr KeySearch::firstOr(const Expr &otherwise, const std::vector<Expr> &at) const {
  return select(isEnough, first(at), otherwise);
}

Expr KeySearch::endOr(const Expr &otherwise, const std::vector<Expr> &at) const {
  return select(isEnough, end(at), otherwise);
}

} // namespace attn::lowering

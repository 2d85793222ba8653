//===- Scatter.cpp - Sums whose terms each have one place -----------------===//

#include "Scatter.h"

#include "Mathematics.h"
#include "Reduction.h"

using Halide::Expr;
using Halide::RDom;
using Halide::TailStrategy;
using Halide::Var;

namespace attn::lowering {

namespace {
/// The formula around the sum.
class AroundSum : public RegionLowering {
public:
  AroundSum(StepLowering &kernel, Environment &environment, Expr sum) : RegionLowering(kernel, environment), sum(sum) {}

protected:
  Expr reduce(ReduceOp) override { return sum; }

private:
  Expr sum;
};
} // namespace

Scatter::Scatter(StepLowering &kernel, DefinitionOpInterface op)
    : func(kernel.uniqueName(op.getName())), kernel(kernel), op(op), placed(*PlacedSum::of(op)), share("share$") {
  vars = loopsAlong(op.getIndices());
  unsigned rank = vars.size();
  for (unsigned position = rank; position-- > 0;)
    (placed.isPlace(position) ? along : other).push_back(vars[rank - 1 - position]);
  hasLanes = !placed.isPlace(rank - 1);
  isShared = kernel.isInBlocks() && !hasLanes && placed.sum.getSizes().size() > 1;
}

/// Adds up the terms; the sum at an element.
Expr Scatter::addTotals() {
  auto indices = placed.sum.getBody().getArguments();
  Halide::Region ranges; // the last index runs fastest
  for (mlir::BlockArgument index : llvm::reverse(indices)) {
    auto [first, count] = kernel.values(index);
    ranges.push_back({0, count});
  }
  // Blocks have many values of the index before the last, and maybe one of those before it.
  unsigned outer = indices.size() > 1 ? indices.size() - 2 : 0;
  Expr &shared = ranges[indices.size() - 1 - outer].extent;
  if (isShared)
    shared = (shared + shareCount - 1) / shareCount;
  terms = RDom(ranges);
  llvm::SmallVector<IndexBinding> at;
  for (unsigned position = 0; position < indices.size(); ++position) {
    Halide::RVar loop = terms[indices.size() - 1 - position];
    auto [first, count] = kernel.values(indices[position]);
    Expr index = first + loop;
    if (position == outer && isShared) {
      Expr within = share * shared + loop;
      terms.where(within < count);
      index = Halide::unsafe_promise_clamped(first + within, first, first + Halide::max(count, 1) - 1);
    }
    at.push_back({index, {}, false, loop});
  }
  // Of rows that take turns there may be fewer than have one: what the others add nobody reads. A vector may be longer
  // than the dimension: what decides whether a term is added is read before that is known.
  auto bindings = [&](bool decides) {
    Environment environment;
    for (auto [position, var] : llvm::enumerate(vars)) {
      bool isPast = hasLanes ? decides && var.same_as(vars[0]) : !other.empty() && var.same_as(other.front());
      environment.indices[op.getBody().getArgument(vars.size() - 1 - position)] = {var, {var}, isPast, {}};
    }
    bindReduction(placed.sum, environment, at);
    return environment;
  };
  Environment ofPlaces = bindings(true), ofTerm = bindings(false);
  for (mlir::Value condition : placed.conditions)
    terms.where(PlainRegion(kernel, ofPlaces).expression(condition));

  std::vector<Var> totalVars;
  std::vector<Expr> place;
  auto addOther = [&](const Var &var) {
    totalVars.push_back(var);
    place.push_back(var);
  };
  if (hasLanes)
    addOther(vars[0]); // first, so that lanes lie together
  for (const Var &var : along)
    for (auto [position, value] : placed.places)
      if (vars[vars.size() - 1 - position].same_as(var)) {
        totalVars.push_back(var);
        place.push_back(placeOf(value, op.getBody().getArgument(position), kernel, ofPlaces));
      }
  for (const Var &var : other)
    if (!var.same_as(vars[0]))
      addOther(var);
  std::vector<Expr> element(totalVars.begin(), totalVars.end());
  if (isShared)
    addOther(share);
  Expr term = PlainRegion(kernel, ofTerm).expression(yielded(placed.sum.getBody()));
  totals = Halide::Func(kernel.uniqueName(op.getName().str() + "_totals"));
  ReduceKind kind = placed.sum.getKind();
  totals(totalVars) = identity(kind, Halide::Float(64));
  totals(place) = combine(kind, totals(place), Halide::cast<double>(term));
  Expr sum;
  for (int number = 0; number < (isShared ? shareCount : 1); ++number) {
    std::vector<Expr> call = element;
    if (isShared)
      call.push_back(number);
    sum = sum.defined() ? combine(kind, sum, totals(call)) : Expr(totals(call));
  }
  return Halide::cast(term.type(), sum);
}

void Scatter::define() {
  Expr sum = addTotals();
  Environment environment;
  for (auto [position, var] : llvm::enumerate(vars))
    environment.bind(op.getBody().getArgument(vars.size() - 1 - position), var);
  Expr value = AroundSum(kernel, environment, sum).expression(yielded(op.getBody()));
  value = kernel.withEarlierBlocks(value, op.getDefinedTensor(), {vars.begin(), vars.end()});
  func(vars) = convert(value, kernel.typeInMemory(op.getDefinedTensor()));
}

void Scatter::schedule() {
  int width = kernel.plan.lanes;
  Var lanes("vector$"), lane("lane$");
  func.compute_root().split(vars[0], lanes, lane, width, TailStrategy::GuardWithIf).vectorize(lane);
  std::vector<Halide::VarOrRVar> order = {lane};
  std::vector<Var> outer;
  if (hasLanes)
    outer.push_back(lanes);
  else
    order.push_back(lanes);
  for (const Var &var : along)
    if (!var.same_as(vars[0]))
      order.push_back(var);
  for (const Var &var : other)
    if (!var.same_as(vars[0]))
      outer.push_back(var);
  Var rows("rows$"), row("row$");
  bool hasRows = !hasLanes && !outer.empty();
  if (hasRows) {
    func.split(outer.front(), rows, row, rowsAtOnce, TailStrategy::GuardWithIf);
    order.push_back(row);
    outer.front() = rows;
  }
  order.insert(order.end(), outer.begin(), outer.end());
  func.reorder(order);
  for (const Var &var : outer)
    func.parallel(var);
  if (outer.empty())
    totals.compute_root();
  else
    totals.compute_at(func, outer.front());

  Var first = totals.args().front();
  totals.vectorize(first, width, TailStrategy::GuardWithIf);
  if (hasLanes) {
    std::vector<Halide::VarOrRVar> inside = {lane};
    for (int dimension = 0; dimension < terms.dimensions(); ++dimension)
      inside.push_back(terms[dimension]);
    totals.bound_storage(first, width);
    totals.update().split(first, first, lane, width, TailStrategy::GuardWithIf).vectorize(lane).reorder(inside);
  }
  if (hasRows) {
    std::vector<Halide::VarOrRVar> inside = {other.front()};
    for (int dimension = 0; dimension < terms.dimensions(); ++dimension)
      inside.push_back(terms[dimension]);
    totals.update().reorder(inside).unroll(other.front(), rowsAtOnce, TailStrategy::GuardWithIf);
  }
  if (isShared) {
    totals.parallel(share);
    totals.update().parallel(share);
  }
}

} // namespace attn::lowering

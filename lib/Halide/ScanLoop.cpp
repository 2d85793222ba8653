//===- ScanLoop.cpp - Running totals --------------------------------------===//

#include "ScanLoop.h"

#include "Mathematics.h"
#include "Nest.h"

using Halide::Expr;
using Halide::TailStrategy;
using Halide::Var;

namespace attn::lowering {

ScanLoop::ScanLoop(StepLowering &kernel, DefinitionOpInterface op)
    : func(kernel.uniqueName(op.getName())), kernel(kernel), op(op), scan(*Scan::of(op)),
      totals(kernel.uniqueName(op.getName().str() + "_totals")) {
  vars = loopsAlong(op.getIndices());
  end = vars[vars.size() - 1 - scan.end.getArgNumber()];
}

/// That at `vars`, of which `end` is the index of the reduction.
Expr ScanLoop::term() {
  Environment environment;
  for (auto [index, var] : llvm::zip_equal(op.getBody().getArguments(), llvm::reverse(vars)))
    environment.indices[index] = kernel.storedIndex(index, var);
  bindReduction(scan.reduce, environment, {kernel.storedIndex(scan.end, end)});
  PlainRegion lowering(kernel, environment);
  Expr value = reductionTerm(scan.reduce, lowering, false);
  for (mlir::Value condition : scan.conditions)
    value = Halide::select(lowering.expression(condition), value, identity(scan.reduce.getKind(), value.type()));
  return value;
}

void ScanLoop::define() {
  ReduceKind kind = scan.reduce.getKind();
  // In terms of the variable.
  auto [start, count] = kernel.values(scan.reduce.getBody().getArgument(0));
  Expr first = Halide::Internal::simplify(start - kernel.origin(scan.end));
  Expr last = first + kernel.derivedSize("terms", count, 1) - 1;
  auto at = [&](Expr index) {
    std::vector<Expr> place(vars.begin(), vars.end());
    for (auto [position, var] : llvm::enumerate(vars))
      if (var.same_as(end))
        place[position] = index;
    return place;
  };
  Expr term = this->term();
  bool isWide = kind == ReduceKind::Sum && term.type() == Halide::Float(32);
  totals(vars) = isWide ? Halide::cast<double>(term) : term;
  steps = Halide::RDom(1, Halide::max(count - 1, 0));
  Expr step = scan.isReversed ? last - steps : first + steps;
  Expr before = scan.isReversed ? step + 1 : step - 1;
  totals(at(step)) = combine(kind, totals(at(before)), totals(at(step)));

  // The last of the terms at `end`, which may lie before all of them or after.
  int sign = scan.isReversed ? 1 : -1;
  Expr latest = end + (scan.isExclusive ? sign : 0);
  Expr hasNone = count == 0 || (scan.isReversed ? latest > last : latest < first);
  Expr total = totals(at(Halide::clamp(latest, first, last)));
  Expr value = Halide::select(hasNone, identity(kind, total.type()), total);
  std::vector<Expr> element(vars.begin(), vars.end());
  value = kernel.withEarlierBlocks(Halide::cast(term.type(), value), op.getDefinedTensor(), element);
  func(vars) = convert(value, kernel.typeInMemory(op.getDefinedTensor()));
}

void ScanLoop::schedule() {
  func.compute_root();
  if (end.same_as(vars[0]))
    scheduleRows();
  else
    scheduleLanes();
}

void ScanLoop::scheduleRows() {
  int width = kernel.plan.lanes;
  func.vectorize(end, width, TailStrategy::GuardWithIf);
  totals.vectorize(end, width, TailStrategy::GuardWithIf);
  if (vars.size() == 1) {
    totals.compute_root();
    return;
  }
  Var rows("rows$"), row("row$");
  func.split(vars[1], rows, row, rowsAtOnce, TailStrategy::GuardWithIf).reorder(end, row, rows);
  std::vector<Var> loops = {rows};
  loops.insert(loops.end(), vars.begin() + 2, vars.end());
  totals.compute_at(func, inParallel(func, loops));
  totals.update().reorder(vars[1], steps.x).unroll(vars[1], rowsAtOnce, TailStrategy::GuardWithIf);
}

void ScanLoop::scheduleLanes() {
  int width = kernel.plan.lanes;
  Var lanes("vector$"), lane("lane$");
  func.split(vars[0], lanes, lane, width, TailStrategy::GuardWithIf).vectorize(lane).reorder(lane, end, lanes);
  std::vector<Var> loops = {lanes};
  for (const Var &var : llvm::ArrayRef(vars).drop_front())
    if (!var.same_as(end))
      loops.push_back(var);
  totals.compute_at(func, inParallel(func, loops));
  totals.bound_storage(vars[0], width).vectorize(vars[0], width, TailStrategy::GuardWithIf);
  totals.update()
      .split(vars[0], vars[0], lane, width, TailStrategy::GuardWithIf)
      .vectorize(lane)
      .reorder(lane, steps.x, vars[0]);
}

} // namespace attn::lowering

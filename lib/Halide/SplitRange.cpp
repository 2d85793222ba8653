//===- SplitRange.cpp - The split plan: rows that share keys, and which keys -===//

#include "KeyBounds.h"
#include "Mathematics.h"
#include "Split.h"
#include "attn/Analysis/SharedKeys.h"

using Halide::Expr;
using Halide::Func;
using Halide::RDom;
using Halide::select;
using Halide::Var;

namespace attn::lowering {

//===----------------------------------------------------------------------===//
// Which rows read the same keys
//===----------------------------------------------------------------------===//

void Split::findShared() {
  for (const SharedKeys &index : sharedKeys(op)) {
    Expr sharers;
    if (index.group)
      sharers = Halide::max(extent(kernel, index.group), 1);
    Expr inPass = index.group ? Halide::min(sharers, plan.rows) : Expr(plan.rows);
    shared.push_back({vars[vars.size() - 1 - index.position()], sharers, inPass});
  }
}

const Split::Shared *Split::sharing(const Var &row) const {
  auto found = llvm::find_if(shared, [&](const Shared &other) { return other.index.same_as(row); });
  return found == shared.end() ? nullptr : &*found;
}

//===----------------------------------------------------------------------===//
// Key ranges
//===----------------------------------------------------------------------===//

/// The bounds are those of all rows that share keys, so that all stages of a task have the same.
void Split::defineRange() {
  mlir::Region *condition = nullptr;
  if (softmax && softmax.getMask())
    condition = &definition(softmax.getMask());
  else if (!softmax && !op.getWhere().empty())
    condition = &op.getWhere();
  KeyRange range;
  if (condition)
    range = maskRange(yielded(*condition), condition->getArguments().back()).possible;

  // Shared indices become reduction variables.
  unsigned rank = vars.size();
  llvm::ArrayRef<SizeAttr> shape = op.getResult().getType().getShape();
  mlir::Region &region = softmax || !condition ? op.getBody() : *condition;
  Environment environment = bind(region, {Expr(0), {}, false, {}});
  Halide::Region sizes;
  tasks = rows;
  llvm::SmallVector<unsigned> positions;
  for (const Shared &index : shared) {
    llvm::erase_if(tasks, [&](const Var &var) { return var.same_as(index.index); });
    for (unsigned position = 0; position < rank; ++position)
      if (vars[rank - 1 - position].same_as(index.index))
        positions.push_back(position);
    sizes.push_back({0, extent(kernel, shape[positions.back()])});
  }
  RDom all = sizes.empty() ? RDom(0, 1) : RDom(sizes);
  for (auto [dimension, position] : llvm::enumerate(positions))
    environment.indices[region.getArgument(position)] = {all[dimension], {}, false, {}};
  if (softmax)
    bindScore(environment);
  PlainRegion lowering(kernel, environment);
  std::vector<Expr> task(tasks.begin(), tasks.end());
  auto overRows = [&](const char *name, const KeyBound &bound, bool largest) {
    Func keys(kernel.uniqueName(name));
    Expr key = boundOfKeys(bound, lowering, keyCount);
    keys(tasks) = largest ? Expr(0) : keyCount;
    // Halide takes an update for a reduction only if it mentions the variable.
    key += select(all[0] < 0, 1, 0);
    keys(task) = largest ? Halide::max(keys(task), key) : Halide::min(keys(task), key);
    rangeFuncs.push_back(keys);
    return Expr(keys(task));
  };
  upper = range.upper ? overRows("upper", *range.upper, true) : keyCount;
  if (range.lower)
    lower = overRows("lower", *range.lower, false);

  // Spans for as many tasks as keep many threads busy, none shorter than a chunk.
  int target = plan.tasks;
  Expr count = 1;
  for (const Var &row : rows) {
    auto isRow = [&](const Var &own) { return own.same_as(row); };
    Expr each = extent(kernel, shape[rank - 1 - (llvm::find_if(vars, isRow) - vars.begin())]);
    for (const Shared &index : shared)
      if (isRow(index.index))
        each = ceilDivide(each, index.group);
    count = Halide::min(count * Halide::clamp(each, 1, target), target);
  }
  int size = plan.span;
  Expr shortestOfAll = ceilDivide(Halide::max(keyCount, 1), size);
  spans = Halide::clamp(ceilDivide(target, count), 1, shortestOfAll);
  mostChunks = ceilDivide(ceilDivide(shortestOfAll, spans) * size, plan.chunk);
  // Of the keys in range. Funcs rather than formulas, for all stages' bounds have them in many places.
  Expr first = lower.defined() ? lower / size * size : Expr(0);
  Expr visited = Halide::max(ceilDivide(upper - first, size), 0);
  Func each(kernel.uniqueName("keys_of_span"));
  each(tasks) = ceilDivide(visited, spans) * size;
  Expr keysOfSpan = each(task);
  chunksOfSpan = ceilDivide(keysOfSpan, plan.chunk);
  start = Func(kernel.uniqueName("start"));
  std::vector<Var> startVars = {chunk, span}, endVars = {span};
  startVars.insert(startVars.end(), tasks.begin(), tasks.end());
  endVars.insert(endVars.end(), tasks.begin(), tasks.end());
  start(startVars) = first + span * keysOfSpan + chunk * plan.chunk;
  Func stop(kernel.uniqueName("end"));
  stop(endVars) = Halide::min(upper, first + (span + 1) * keysOfSpan);
  rangeFuncs.insert(rangeFuncs.end(), {each, stop});
  end = stop(std::vector<Expr>(endVars.begin(), endVars.end()));
}

} // namespace attn::lowering

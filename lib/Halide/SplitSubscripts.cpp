//===- SplitSubscripts.cpp - The split plan: where a key lies ---------------===//
//
// A cache in pages is read at k[page[b, n // S], n % S, g, d]. A division takes as long as a vector of products, so
// such subscripts are computed once for each key of a chunk.
//
//===----------------------------------------------------------------------===//

#include "Split.h"

using Halide::Expr;
using Halide::Func;
using Halide::Var;

namespace attn::lowering {

void Split::keepSubscripts(mlir::Value value, Environment &environment, Expr key) {
  mlir::Operation *op = value.getDefiningOp();
  if (!op || !environment.changesWith(value, k))
    return;
  // The same for all terms: it changes with the key and with rows alone.
  bool isOfKey = llvm::all_of(dependence(value), [&](mlir::Value index) {
    const IndexBinding &binding = environment.indices.find(index)->second;
    return binding.vars.size() == 1 &&
           (binding.has(k) || llvm::any_of(rows, [&](const Var &row) { return binding.has(row); }));
  });
  if (isOfKey && value.getType().isInteger(64) && mlir::isa<FloorDivOp, ModOp, ReadOp>(op)) {
    const Subscript &kept = subscript(value, environment);
    std::vector<Expr> element = {key};
    element.insert(element.end(), kept.rows.begin(), kept.rows.end());
    element.insert(element.end(), {chunk, span});
    environment.values[value] = {kept.func(element), kept.range};
    return;
  }
  for (mlir::Value operand : op->getOperands())
    keepSubscripts(operand, environment, key);
}

Split::Subscript &Split::subscript(mlir::Value value, const Environment &environment) {
  auto found = llvm::find_if(subscripts, [&](const Subscript &other) { return other.value == value; });
  if (found != subscripts.end())
    return *found;
  Subscript kept{value, Func(kernel.uniqueName(func.name() + "_subscript")), tiles(lanes, Expr(lanes)), {}, {}};
  // A chunk's first key is that of a task.
  for (const Var &row : rows)
    if (environment.changesWith(value, row) || llvm::any_of(tasks, [&](const Var &task) { return task.same_as(row); }))
      kept.rows.push_back(row);
  Environment inner;
  inner.indices = environment.indices;
  inner.rebind(k, keyBinding(keyOf(kept.keys)));
  Scalar lowered = PlainRegion(kernel, inner).lower(value);
  kept.range = lowered.range;
  std::vector<Var> funcVars = {k};
  funcVars.insert(funcVars.end(), kept.rows.begin(), kept.rows.end());
  funcVars.insert(funcVars.end(), {chunk, span});
  std::vector<Expr> element(funcVars.begin(), funcVars.end());
  element[0] = keyOf(kept.keys);
  kept.func(funcVars) = Halide::undef(lowered.expr.type());
  kept.func(element) = lowered.expr;
  subscripts.push_back(kept);
  return subscripts.back();
}

} // namespace attn::lowering

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
    return binding.has(k) || binding.has(task) || binding.has(row);
  });
  if (isOfKey && value.getType().isInteger(64) && mlir::isa<FloorDivOp, ModOp, ReadOp>(op)) {
    const Subscript &kept = subscript(value, environment);
    environment.values[value] = {kept.func(key, chunk, task), kept.range};
    return;
  }
  for (mlir::Value operand : op->getOperands())
    keepSubscripts(operand, environment, key);
}

Split::Subscript &Split::subscript(mlir::Value value, const Environment &environment) {
  auto found = llvm::find_if(subscripts, [&](const Subscript &other) { return other.value == value; });
  if (found != subscripts.end())
    return *found;
  Subscript kept{value, Func(kernel.uniqueName(func.name() + "_subscript")), tiles(lanes, Expr(lanes)), {}};
  Environment inner;
  inner.indices = ofBlock(environment, 0).indices;
  inner.rebind(k, keyBinding(keyOf(kept.keys)));
  Scalar lowered = PlainRegion(kernel, inner).lower(value);
  kept.range = lowered.range;
  kept.func(k, chunk, task) = Halide::undef(lowered.expr.type());
  kept.func(keyOf(kept.keys), chunk, task) = lowered.expr;
  subscripts.push_back(kept);
  return subscripts.back();
}

} // namespace attn::lowering

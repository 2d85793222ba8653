//===- SplitSubscripts.cpp - The split plan: where a key lies ---------------===//
//
// A cache in pages is read at k[page[b, n // S], n % S, h // g, d]. A division takes as long as a vector of products,
// so such subscripts are computed once, for each key of a chunk or for each row of a task, and clamped there.
//
//===----------------------------------------------------------------------===//

#include "Split.h"

using Halide::Expr;
using Halide::Func;
using Halide::Var;

namespace attn::lowering {

void Split::keepSubscripts(mlir::Value value, Environment &environment, Expr key, Expr ofRow) {
  mlir::Operation *op = value.getDefiningOp();
  if (!op || !environment.changesWith(value, k)) // what a row reads is its own
    return;
  auto read = mlir::dyn_cast<ReadOp>(op);
  if (read && keyTensor(read)) // is made, in loops of its own
    return;
  for (auto [position, operand] : llvm::enumerate(read ? read.getSubscripts() : op->getOperands())) {
    bool isOfKey = environment.changesWith(operand, k);
    if (!isKept(operand, environment) || !(read || isOfKey)) {
      keepSubscripts(operand, environment, key, ofRow);
      continue;
    }
    const Subscript &kept = subscript(operand, environment, read, position);
    Expr expr = isOfKey ? kept.func(key) : kept.func(ofRow);
    if (read)
      environment.subscripts[operand] = {expr, kept.top};
    else
      environment.values[operand] = {expr, kept.range};
  }
}

/// Whether `value` is dear, and the same for all terms of a key or of a row, whatever the other is.
bool Split::isKept(mlir::Value value, const Environment &environment) const {
  bool isOfKey = environment.changesWith(value, k), isOfRow = environment.changesWith(value, row);
  return value.getDefiningOp() && mlir::isa<FloorDivOp, ModOp, ReadOp>(value.getDefiningOp()) && isOfKey != isOfRow &&
         llvm::all_of(dependence(value), [&](mlir::Value index) {
           const IndexBinding &binding = environment.indices.find(index)->second;
           return binding.has(k) || binding.has(task) || binding.has(row);
         });
}

/// Where it is the subscript of a `read`, at `position`, it is clamped.
Split::Subscript &Split::subscript(mlir::Value value, const Environment &environment, ReadOp read, unsigned position) {
  Expr top = read ? kernel.lastIndex(read.getTensor(), position) : Expr();
  auto found = llvm::find_if(subscripts, [&](const Subscript &other) {
    return other.value == value && Halide::Internal::equal(other.top, top);
  });
  if (found != subscripts.end())
    return *found;
  bool isOfKey = environment.changesWith(value, k);
  Subscript kept{value, top, Func(kernel.uniqueName(func.name() + "_subscript")), {}, {}};
  Environment inner;
  inner.indices = ofBlock(environment, isOfKey ? Expr(0) : blockOfTile(1)).indices;
  if (isOfKey) {
    kept.keys = tiles(lanes, Expr(lanes));
    inner.rebind(k, keyBinding(keyOf(kept.keys)));
  }
  PlainRegion lowering(kernel, inner);
  Scalar lowered = read ? Scalar{lowering.subscript(read, position), {}} : lowering.lower(value);
  kept.range = lowered.range;
  if (isOfKey) {
    kept.func(k) = Halide::undef(lowered.expr.type());
    kept.func(keyOf(kept.keys)) = lowered.expr;
  } else {
    kept.func(row) = lowered.expr;
  }
  subscripts.push_back(kept);
  return subscripts.back();
}

} // namespace attn::lowering

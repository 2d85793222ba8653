//===- Rows.cpp - Rows of tensors that scores make -------------------------===//

#include "Rows.h"

using Halide::Expr;
using Halide::RDom;

namespace attn::lowering {

static TensorOp tensorOf(ReadOp read) { return read.getTensor().getDefiningOp<TensorOp>(); }

Environment bindRow(StepLowering &kernel, ReadOp read, const Environment &environment, Expr last) {
  Environment reading = environment, result;
  PlainRegion subscripts(kernel, reading);
  mlir::Block::BlockArgListType indices = tensorOf(read).getBody().getArguments();
  for (auto [position, index] : llvm::enumerate(indices.drop_back()))
    result.indices[index].expr = subscripts.subscript(read, position, lastIndex(kernel, indexSize(index)));
  result.indices[indices.back()].expr = std::move(last);
  return result;
}

std::vector<PartFormula> rowFormulas(StepLowering &kernel, ReadOp read, const Environment &environment) {
  TensorOp tensor = tensorOf(read);
  auto bind = [&](Expr last) { return bindRow(kernel, read, environment, std::move(last)); };
  std::vector<PartFormula> parts = partFormulas(kernel, tensor, bind);
  if (parts.empty()) {
    RDom all(0, extent(kernel, indexSize(tensor.getBody().getArguments().back())));
    Environment inner = bind(all.x);
    parts.push_back({all, all.x, PlainRegion(kernel, inner).expression(yielded(tensor.getBody()))});
  }
  return parts;
}

Expr elementOfRow(StepLowering &kernel, ReadOp read, const Environment &environment) {
  Expr last = environment.indices.find(read.getSubscripts().back())->second.expr;
  Environment inner = bindRow(kernel, read, environment, last);
  Expr value = PlainRegion(kernel, inner).expression(yielded(tensorOf(read).getBody()));
  mlir::Type element = read.getTensor().getType().getElementType();
  return Halide::cast(computeType(element), kernel.rounded(value, storageType(element)));
}

} // namespace attn::lowering

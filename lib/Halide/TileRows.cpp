//===- TileRows.cpp - The tiled plan: what is made of queries ---------------===//
//
// A tensor that scores alone read, a row of it at a query (attn/Analysis/KeyTensors.h), such as queries that are turned
// by their positions, is not stored: the rows of a tile's queries are made once a tile, before they are packed.
//
//===----------------------------------------------------------------------===//

#include "Rows.h"
#include "Tile.h"

using Halide::Expr;
using Halide::Func;

namespace attn::lowering {

Expr Tile::rowAt(ReadOp read, const Environment &environment) {
  auto tensor = read.getTensor().getDefiningOp<TensorOp>();
  if (!llvm::is_contained(kernel.plan.sum(op).queryTensors, tensor))
    return {};
  auto found = llvm::find_if(madeRows, [&](const auto &each) { return each.first == read; });
  if (found == madeRows.end()) {
    found = madeRows.insert(found, {read, Func(kernel.uniqueName(tensor.getName()))});
    defineByParts(found->second, rowFormulas(kernel, read, environment), {q},
                  storageType(tensor.getResult().getType().getElementType()));
  }
  Expr last = environment.indices.find(read.getSubscripts().back())->second.expr;
  return Halide::cast(computeType(read.getType()), found->second(last, q));
}

} // namespace attn::lowering

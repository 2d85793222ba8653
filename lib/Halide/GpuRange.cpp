//===- GpuRange.cpp - A weighted sum on a GPU: the keys of a block ----------===//

#include "GpuTile.h"
#include "KeyBounds.h"
#include "Mathematics.h"

using Halide::Expr;
using Halide::Func;
using Halide::RDom;

namespace attn::lowering {

void GpuTile::defineRange(mlir::Region *mask) {
  KeyRange possible;
  if (mask)
    possible = maskRange(yielded(*mask), mask->getArguments().back()).possible;
  Environment environment = bind({});
  PlainRegion lowering(kernel, environment);
  // The largest or smallest of a bound over the rows of the tile, between 0 and the number of keys.
  auto overRows = [&](const char *name, const KeyBound &bound, bool largest) -> Expr {
    Func each(kernel.uniqueName(std::string(name) + "_of")), all(kernel.uniqueName(name));
    each(q, block) = boundOfKeys(bound, lowering, keyCount);
    RDom tile(0, plan.rows);
    all(block) = inSharedMemory(largest ? Expr(0) : keyCount);
    Expr other = inSharedMemory(each(tile.x, block));
    all(block) = largest ? Halide::max(all(block), other) : Halide::min(all(block), other);
    bounds.push_back(all);
    return Halide::cast<int>(all(block));
  };
  if (possible.upper)
    upper = overRows("upper", *possible.upper, true);
  if (possible.lower)
    lower = overRows("lower", *possible.lower, false);
  if (!isSplit)
    return;
  // A part has as many of the chunks that meet the bounds as any other.
  Expr first = lower.defined() ? lower / plan.chunk : Expr(0);
  Expr end = ceilDivide(upper.defined() ? upper : keyCount, plan.chunk);
  Expr each = ceilDivide(Halide::max(end - first, 0), parts);
  range = Func(kernel.uniqueName("chunks"));
  range(part, block) =
      Halide::Tuple(inSharedMemory(first + part * each), inSharedMemory(Halide::min(first + (part + 1) * each, end)));
  bounds.push_back(range);
}

void GpuTile::defineChunks() {
  Expr count = ceilDivide(Halide::max(keyCount, 1), plan.chunk);
  if (isSplit) {
    chunks = RDom(0, ceilDivide(count, parts));
    chunks.where(Halide::cast<int>(range(part, block)[0]) + chunks.x < Halide::cast<int>(range(part, block)[1]));
    return;
  }
  chunks = RDom(0, count);
  if (upper.defined())
    chunks.where(chunks.x * plan.chunk < upper);
  if (lower.defined())
    chunks.where(chunks.x * plan.chunk + plan.chunk > lower);
}

} // namespace attn::lowering

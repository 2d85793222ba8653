//===- TileRange.cpp - The tiled plan: which keys are visited ---------------===//

#include "KeyBounds.h"
#include "Tile.h"

using Halide::Expr;
using Halide::Func;
using Halide::RDom;
using Halide::select;
using Halide::Var;

namespace attn::lowering {

void Tile::defineRange(mlir::Region *mask, Environment environment) {
  MaskRange range;
  if (mask)
    range = maskRange(yielded(*mask), mask->getArguments().back());
  ranged = range.possible.lower || range.possible.upper;

  // The last tile's surplus queries repeat the last query.
  SizeAttr querySize = op.getResult().getType().getShape()[op.getQuery()];
  for (auto &[index, binding] : environment.indices)
    if (binding.has(q))
      binding.expr = Halide::min(binding.expr, lastIndex(kernel, querySize));
  PlainRegion lowering(kernel, environment);

  // The largest or smallest of a bound over the queries of the tile, between 0 and the number of keys.
  auto overQueries = [&](const char *name, const std::shared_ptr<const KeyBound> &bound, bool largest) {
    Func each(kernel.uniqueName(std::string(name) + "_of")), all(kernel.uniqueName(name));
    each(q) = boundOfKeys(*bound, lowering, keyCount);
    RDom queries(0, static_cast<int>(plan.queries));
    all() = largest ? Expr(0) : keyCount;
    all() = largest ? Halide::max(all(), each(queries.x)) : Halide::min(all(), each(queries.x));
    rangeFuncs.push_back(all);
    return Expr(all());
  };
  upper = range.possible.upper ? overQueries("upper", range.possible.upper, true) : keyCount;
  lower = range.possible.lower ? overQueries("lower", range.possible.lower, false) : Expr(0);
  visitedLower = lower;
  visitedUpper = upper;
  wholeUpper = range.certain.upper ? overQueries("certain_upper", range.certain.upper, false) : keyCount;
  wholeLower = range.certain.lower ? overQueries("certain_lower", range.certain.lower, true) : Expr(0);
  if (int inVector = mask ? keysInVector(yielded(*mask), mask->getArguments().back(), plan.lanes) : 0)
    searchChunk(*mask, environment, inVector);
}

void Tile::searchChunk(mlir::Region &mask, const Environment &environment, int inVector) {
  int size = plan.chunk, queries = plan.queries;
  Expr lastQuery = lastIndex(kernel, op.getResult().getType().getShape()[op.getQuery()]);
  Halide::Region rows = {{0, environment.changesWith(yielded(mask), q) ? queries : 1}};
  KeySearch::Part chunkKeys{firstKey, size / inVector, firstKey + size >= keyCount, keyCount, lower, upper};
  auto atRow = [&](mlir::Value value, llvm::ArrayRef<Expr> row, const IndexBinding &key) {
    Environment inner;
    inner.indices = environment.indices;
    inner.rebind(q, {Halide::min(firstQuery + row[0], lastQuery), {task}, false, {}});
    inner.rebind(k, key);
    return PlainRegion(kernel, inner).expression(value);
  };
  search.emplace(kernel, std::vector<Var>(), rows, chunkKeys, inVector, yielded(mask), atRow);
  visitedLower = search->firstOr(lower);
  visitedUpper = search->endOr(upper);
}

Expr Tile::isWhole(Expr first, int size) const { return first >= wholeLower && first + size <= wholeUpper; }

RDom Tile::keys(llvm::ArrayRef<Expr> inner) const { return keyTiles(plan.keyUnroll, plan.keyUnroll, inner); }

RDom Tile::keysOfForm(bool whole) const {
  RDom domain = keys();
  int unroll = plan.keyUnroll;
  Expr isOfForm = isWhole(firstKey + domain[1] * unroll, unroll);
  domain.where(whole ? isOfForm : !isOfForm);
  return domain;
}

RDom Tile::keyTiles(int size, int points, llvm::ArrayRef<Expr> inner) const {
  int chunkSize = plan.chunk;
  llvm::SmallVector<Expr> counts(inner);
  counts.append({points, chunkSize / size});
  RDom domain = loopOver(counts);
  visitRange(domain, domain[inner.size() + 1] * size, size);
  return domain;
}

void Tile::visitRange(RDom &domain, Expr key, int size) const {
  Expr first = firstKey + key;
  domain.where(first < visitedUpper);
  if (ranged || search)
    domain.where(first + size > visitedLower);
}

RDom Tile::blocksOfChunk(int size) const {
  int chunkSize = plan.chunk;
  RDom domain(0, chunkSize / size);
  visitRange(domain, domain.x * size, size);
  return domain;
}

RDom Tile::keysOfBlock(int size, int points, llvm::ArrayRef<Expr> inner) const {
  int unroll = plan.keyUnroll;
  llvm::SmallVector<Expr> counts(inner);
  counts.append({points, size / unroll});
  RDom domain = loopOver(counts);
  visitRange(domain, block * size + domain[inner.size() + 1] * unroll, unroll);
  return domain;
}

Expr Tile::keyOf(const RDom &domain) const {
  int last = domain.dimensions() - 1;
  return domain[last] * domain[last - 1].extent() + domain[last - 1];
}

} // namespace attn::lowering

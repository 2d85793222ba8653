//===- TileRange.cpp - The tiled plan: which keys are visited ---------------===//

#include "KeyBounds.h"
#include "Tile.h"

using Halide::cast;
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
  if (mask)
    searchedAtOnce = std::min<int64_t>(keysSearchedAtOnce(yielded(*mask), mask->getArguments().back()), 4 * plan.lanes);
  if (searchedAtOnce)
    searchChunk(*mask, environment);
}

/// With keys in lanes, as they lie in memory: vectors of the chunk, then one that ends with the last key. Where all keys
/// are fewer than a vector has, none is looked for.
void Tile::searchChunk(mlir::Region &mask, const Environment &environment) {
  int size = plan.chunk, lanes = searchedAtOnce, vectors = size / lanes, queries = plan.queries;
  Expr last = keyCount - lanes, isEnough = last >= 0, end = firstKey + size;
  Expr rows = 1;
  if (environment.changesWith(yielded(mask), q))
    rows = Halide::min(extent(kernel, op.getResult().getType().getShape()[op.getQuery()]) - firstQuery, queries);
  seen = Func(kernel.uniqueName(func.name() + "_seen"));
  seen(k, block) = cast<uint8_t>(0);
  auto search = [&](const RDom &domain, Expr vector, Expr first) {
    Environment inner;
    inner.indices = environment.indices;
    inner.rebind(q, {firstQuery + domain.x, {task}, true, {}});
    inner.rebind(k, {Halide::unsafe_promise_clamped(first + k, 0, Halide::max(keyCount, 1) - 1), {k}, false, {}});
    Expr isSeen = PlainRegion(kernel, inner).expression(yielded(mask));
    seen(k, vector) = select(unconditional(isSeen), cast<uint8_t>(1), seen(k, vector));
  };
  RDom whole(0, rows, 0, vectors);
  visitRange(whole, whole.y * lanes, lanes);
  whole.where(firstKey + whole.y * lanes <= last);
  search(whole, whole.y, firstKey + whole.y * lanes);
  RDom rest(0, rows);
  rest.where(rest.x < select(isEnough && end > keyCount && keyCount % lanes != 0, queries, 0));
  search(rest, vectors + Halide::min(rest.x, 0), last);

  searchedKeys = RDom(0, lanes, 0, vectors + 1);
  Expr key = select(searchedKeys.y < vectors, firstKey + searchedKeys.y * lanes, last) + searchedKeys.x;
  Expr isSeen = seen(searchedKeys.x, searchedKeys.y) != 0;
  firstSeen = Func(kernel.uniqueName(func.name() + "_first_seen"));
  firstSeen() = end;
  firstSeen() = Halide::min(firstSeen(), select(isSeen, key, end));
  endSeen = Func(kernel.uniqueName(func.name() + "_end_seen"));
  endSeen() = firstKey;
  endSeen() = Halide::max(endSeen(), select(isSeen, key + 1, firstKey));
  visitedLower = select(isEnough, firstSeen(), lower);
  visitedUpper = select(isEnough, endSeen(), upper);
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
  if (ranged || searchedAtOnce)
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

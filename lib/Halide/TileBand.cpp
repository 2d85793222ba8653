//===- TileBand.cpp - The tiled plan: products with rows of a table --------===//
//
//   by_position[m, n] = sum[d](q[m, d] * r[m - n + N - 1, d])
//
// reads the row of a table that a query and a key have together, which is another one for each lane. But the pairs of a
// tile and a chunk have few such rows: m − n takes less than as many values as there are queries and keys. So it is a
// product of the queries with that band of the table, like one with keys, and each pair looks up its element:
//
//   band[m, j]        = sum[d](q[m, d] * r[first + j, d])        first: the least m − n + N − 1 of the pairs
//   by_position[m, n] = band[m, m − n + N − 1 − first]
//
//===----------------------------------------------------------------------===//

#include "Tile.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using Halide::Expr;
using Halide::Func;
using Halide::RDom;
using Halide::Var;

namespace attn::lowering {

namespace {
/// By how much an integer grows with the query and with the key.
struct Slope {
  int query = 0, key = 0;
  bool clamped = false; ///< Or not at all, beyond some bounds.

  bool isConstant() const { return query == 0 && key == 0; }
};
} // namespace

/// Of a sum, a difference or a clamped number of such; nothing where `value` may grow now and shrink then.
static std::optional<Slope> slopeOf(mlir::Value value, const Environment &environment, const Var &q, const Var &k) {
  bool ofQuery = environment.changesWith(value, q), ofKey = environment.changesWith(value, k);
  if (!ofQuery && !ofKey)
    return Slope();
  if (mlir::isa<mlir::BlockArgument>(value))
    return Slope{ofQuery, ofKey};
  mlir::Operation *op = value.getDefiningOp();
  bool isSum = mlir::isa<mlir::arith::AddIOp>(op), isDifference = mlir::isa<mlir::arith::SubIOp>(op);
  bool isClamp = mlir::isa<mlir::arith::MaxSIOp, mlir::arith::MinSIOp>(op);
  if (!isSum && !isDifference && !isClamp)
    return std::nullopt;
  std::optional<Slope> lhs = slopeOf(op->getOperand(0), environment, q, k);
  std::optional<Slope> rhs = slopeOf(op->getOperand(1), environment, q, k);
  if (!lhs || !rhs)
    return std::nullopt;
  int sign = isDifference ? -1 : 1;
  Slope sum{lhs->query + sign * rhs->query, lhs->key + sign * rhs->key, lhs->clamped || rhs->clamped || isClamp};
  // The sum of two that are clamped elsewhere is not monotone, nor is the larger of two that change.
  bool bothChange = !lhs->isConstant() && !rhs->isConstant();
  return bothChange && sum.clamped ? std::nullopt : std::optional(sum);
}

/// Whether `value` changes with the key through nothing but `row`.
static bool isThrough(mlir::Value value, mlir::Value row, const Environment &environment, const Var &k) {
  if (value == row || !environment.changesWith(value, k))
    return true;
  mlir::Operation *op = value.getDefiningOp();
  return op && op->getNumRegions() == 0 &&
         llvm::all_of(op->getOperands(), [&](mlir::Value operand) { return isThrough(operand, row, environment, k); });
}

std::optional<Tile::Band> Tile::bandOf(ReduceOp reduce, const Environment &environment) const {
  if (reduce.getKind() != ReduceKind::Sum || reduce.isConditional())
    return std::nullopt;
  Band band;
  SizeAttr rows;
  bool isOne = true;
  reduce.getBody().walk([&](ReadOp read) {
    for (auto [dimension, subscript] : llvm::enumerate(read.getSubscripts())) {
      if (!environment.changesWith(subscript, q) || !environment.changesWith(subscript, k))
        continue;
      SizeAttr size = read.getTensor().getType().getShape()[dimension];
      isOne &= !band.row || (band.row == subscript && rows == size);
      rows = size;
      band.row = subscript;
      band.read = read;
      band.dimension = dimension;
    }
  });
  if (!band.row || !isOne || !isThrough(yielded(reduce.getBody()), band.row, environment, k))
    return std::nullopt;
  std::optional<Slope> slope = slopeOf(band.row, environment, q, k);
  if (!slope || std::abs(slope->query) != 1 || std::abs(slope->key) != 1)
    return std::nullopt;
  band.growsWithQuery = slope->query > 0;
  band.growsWithKey = slope->key > 0;
  return band;
}

bool Tile::hasBand(mlir::Region &region, const Environment &environment) const {
  return region
      .walk([&](ReduceOp reduce) {
        return bandOf(reduce, environment) ? mlir::WalkResult::interrupt() : mlir::WalkResult::advance();
      })
      .wasInterrupted();
}

int Tile::bandSize() const {
  int unroll = plan.keyUnroll, pairs = plan.queries + plan.chunk - 1;
  return (pairs + unroll - 1) / unroll * unroll;
}

/// The least row of the pairs that are in range, or the largest.
Expr Tile::endOfBand(Band &band, const Environment &environment, bool largest) {
  int queries = plan.queries, chunkSize = plan.chunk;
  Expr end = Halide::min(firstKey + chunkSize, visitedUpper);
  Environment inner;
  inner.indices = environment.indices;
  for (auto &[index, binding] : inner.indices)
    if (binding.has(q))
      binding.expr = firstQuery + (largest == band.growsWithQuery ? queries - 1 : 0);
  inner.rebind(k, {largest == band.growsWithKey ? end - 1 : Halide::max(firstKey, visitedLower), {k}, true, {}});
  Func row(kernel.uniqueName(func.name() + (largest ? "_last_row" : "_first_row")));
  row() = PlainRegion(kernel, inner).subscript(band.read, band.dimension);
  bandRows.push_back(row);
  return row();
}

/// The rows of the table that a register tile of the band is of.
Environment::Subscript Tile::rowsOfTile(Band &band) const {
  Expr top = kernel.lastIndex(band.read.getTensor(), band.dimension);
  return {Halide::min(band.first + keyTile * static_cast<int>(plan.keyUnroll) + k, top), top};
}

RDom Tile::keysOfBand(const Band &band) const {
  int unroll = plan.keyUnroll;
  RDom domain = loopOver({unroll, bandSize() / unroll});
  domain.where(band.first + domain.y * unroll <= band.last);
  return domain;
}

Expr Tile::productAt(Product &product, Environment &environment) {
  Expr key = keyInChunk(environment);
  if (product.band) {
    Expr row = PlainRegion(kernel, environment).subscript(product.band->read, product.band->dimension);
    key = Halide::clamp(row - product.band->first, 0, bandSize() - 1);
  }
  return whereFlagged(product.reduction.getDefiningOp<ReduceOp>(), kernel, product.func(q, key));
}

} // namespace attn::lowering

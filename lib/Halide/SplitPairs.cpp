//===- SplitPairs.cpp - The split plan: products of bf16 tensors ------------===//
//
// Where the processor multiplies pairs of bf16 numbers (Pairs.h), a score of bf16 queries and keys is made of pairs
// along the reduction, as they lie in memory. A bf16 output of bf16 values, weighted by a softmax alone, is made of
// pairs of neighbouring keys, as in the tiled plan (TilePairs.cpp), but that they are paired where they are used: a
// tile has all rows of most tasks.
//
//===----------------------------------------------------------------------===//

#include "Pairs.h"
#include "SplitRegions.h"

using Halide::Expr;
using Halide::Func;

namespace attn::lowering {

//===----------------------------------------------------------------------===//
// Scores
//===----------------------------------------------------------------------===//

/// Whether `op` multiplies bf16 numbers of a row by those of a key.
bool Split::isPaired(ReduceOp op, const Environment &environment) const {
  auto factors = plan.bf16Pairs ? bf16Factors(op) : std::nullopt;
  return factors && environment.changesWith(factors->first, k) != environment.changesWith(factors->second, k);
}

/// The product of the pairs of both factors at `position`.
Expr Split::pairedTerm(const Environment &environment, ReduceOp op, const Halide::RDom &vectors, Expr position,
                       const TileKey &key) {
  Environment low = bindTerm(environment, op, vectors, position * 2, key),
              high = bindTerm(environment, op, vectors, position * 2 + 1, key);
  auto pair = [&](mlir::Value factor) {
    if (!environment.changesWith(factor, k)) {
      PackedFormula pairs = packedPairs(kernel, factor, op, vectors, environment, queryRows());
      pairs.at.front() = position;
      return addPack(factor, pairs);
    }
    return pairOf(KeyRegion(*this, low, key).expression(factor), KeyRegion(*this, high, key).expression(factor));
  };
  auto [first, second] = *bf16Factors(op);
  return productOfPairs(pair(first), pair(second));
}

//===----------------------------------------------------------------------===//
// Outputs
//===----------------------------------------------------------------------===//

void Split::defineWeightPairs() {
  weightPairKeys = tiles(2 * lanes, Expr(lanes));
  Expr pair = keyOf(weightPairKeys);
  weightPairs = Func(kernel.uniqueName(func.name() + "_weight_pairs"));
  weightPairs(k, row) = Halide::undef(Halide::UInt(32));
  weightPairs(pair, row) = pairOf(weights(2 * pair, row), weights(2 * pair + 1, row));
}

} // namespace attn::lowering

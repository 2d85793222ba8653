//===- SplitPairs.cpp - The split plan: products of bf16 tensors ------------===//
//
// Where the processor multiplies pairs of bf16 numbers (Pairs.h), a score of bf16 queries and keys is made of pairs
// along the reduction, as they lie in memory. A bf16 output of bf16 values, weighted by a softmax alone, is made of
// pairs of neighbouring keys, as in the tiled plan (TilePairs.cpp): the values of a tile of keys are packed once for
// all rows that share them.
//
//===----------------------------------------------------------------------===//

#include "Pairs.h"
#include "Split.h"

using Halide::Expr;
using Halide::Func;
using Halide::Var;

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
                       Expr key, int rows) {
  Environment low = bindTerm(environment, op, vectors, position * 2, key, rows),
              high = bindTerm(environment, op, vectors, position * 2 + 1, key, rows);
  auto pair = [&](mlir::Value factor) {
    if (!environment.changesWith(factor, k)) {
      PackedFormula pairs = packedPairs(kernel, factor, op, vectors, environment);
      pairs.at.front() = position;
      return addPack(factor, pairs);
    }
    return pairOf(KeyRegion(*this, low, rows).expression(factor), KeyRegion(*this, high, rows).expression(factor));
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
  weightPairs(stageVars({k})) = Halide::undef(Halide::UInt(32));
  weightPairs(at({pair})) = pairOf(weights(at({2 * pair})), weights(at({2 * pair + 1})));
}

/// What the pairs of a tile's keys add. Rows that share keys have one copy of the values.
Expr Split::productOfKeys(ColumnTile &tile, Expr ofTile) {
  Expr pair = ofTile * (plan.keyTile / 2) + tile.keys.x;

  mlir::Value value = yielded(op.getBody(), 1);
  Environment first = ofBlock(bind(op.getBody(), keyBinding(k)), keyBlock);
  auto number = [&](Expr key) {
    Environment environment;
    environment.indices = first.indices;
    environment.rebind(k, keyBinding(key));
    keepSubscripts(value, environment, key, rowsOfKey.defined() ? keyBlock * rowsOfKey : Expr(0));
    return PlainRegion(kernel, environment).expression(value);
  };
  tile.valuePairs = Func(kernel.uniqueName(func.name() + "_value_pairs"));
  tile.valuePairs(e, k, keyBlock, chunk, task) =
      atKey(2 * k, 2, tile.rows, [&](Expr key) { return pairOf(number(key), number(key + 1)); });
  return productOfPairs(weightPairs(at({pair})), tile.valuePairs(e, pair, blockOfTile(tile.rows), chunk, task));
}

} // namespace attn::lowering

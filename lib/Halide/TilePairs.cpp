//===- TilePairs.cpp - The tiled plan: products of bf16 tensors ------------===//
//
// Where the processor multiplies pairs of bf16 numbers (Pairs.h), a score of bf16 queries and keys is made of pairs
// along the reduction: those of a key are read as they lie in memory, those of the queries packed once a tile.
//
// A bf16 output of bf16 values, weighted by a softmax alone, is made of pairs of neighbouring keys: their weights,
// rounded to bf16, and their values, packed once a block. Rounding a weight changes it by 2^-9 of itself at most, as
// rounding the output does.
//
//===----------------------------------------------------------------------===//

#include "Pairs.h"
#include "Tile.h"

using Halide::Expr;
using Halide::Func;
using Halide::Var;

namespace attn::lowering {

//===----------------------------------------------------------------------===//
// Scores
//===----------------------------------------------------------------------===//

std::optional<Tile::PairFactors> Tile::pairFactors(ReduceOp op, const Environment &environment) const {
  auto factors = bf16Factors(op);
  if (!plan.bf16Pairs || !factors)
    return std::nullopt;
  auto isOf = [&](mlir::Value value, const Var &own, const Var &other) {
    return environment.changesWith(value, own) && !environment.changesWith(value, other);
  };
  auto [lhs, rhs] = *factors;
  if (isOf(lhs, q, k) && isOf(rhs, k, q))
    return PairFactors{lhs, rhs};
  if (isOf(rhs, q, k) && isOf(lhs, k, q))
    return PairFactors{rhs, lhs};
  return std::nullopt;
}

/// What a pair of `product.domain` adds to the product.
Expr Tile::pairedTerm(const Product &product, ReduceOp op, const PairFactors &factors, const Environment &environment) {
  Environment both[2];
  for (int position : {0, 1}) {
    both[position].indices = environment.indices;
    llvm::SmallVector<IndexBinding> indices = loopBindings(product.domain, product.domain.dimensions());
    indices.back().expr = indices.back().expr * 2 + position;
    bindReduction(op, both[position], indices);
  }
  PlainRegion first(kernel, both[0]), second(kernel, both[1]);
  Expr key = pairOf(first.expression(factors.key), second.expression(factors.key));
  PackedFormula query = packedPairs(kernel, factors.query, op, product.domain, environment, rowsMade());
  return productOfPairs(addPack("_query_pairs", query), key);
}

//===----------------------------------------------------------------------===//
// Outputs
//===----------------------------------------------------------------------===//

int Tile::outputBlockSize() const {
  int size = plan.block, chunkSize = plan.chunk;
  return pairsWeights && chunkSize % (2 * size) == 0 ? 2 * size : size;
}

void Tile::definePairedOutput() {
  int size = outputBlockSize(), pairsOfTile = plan.keyUnroll / 2;
  weightPairKeys = keysOfBlock(size, pairsOfTile);
  Expr pair = keyOf(weightPairKeys), key = block * size + 2 * pair;
  weightPairs = Func(kernel.uniqueName(func.name() + "_weight_pairs"));
  defineOnKeys(weightPairs, {q, k, block}, {q, pair, block}, pairOf(weights(q, key), weights(q, key + 1)));

  // The columns there are; the surplus ones of a register tile are not defined, and nobody reads what they become.
  valuePairKeys = keysOfBlock(size, pairsOfTile, {extent(kernel, op.getResult().getType().getShape().back())});
  pair = keyOf(valuePairKeys);
  Expr numbers[2];
  for (int position : {0, 1}) {
    Environment environment = bind(op.getBody(), keyBinding(block * size + 2 * pair + position));
    environment.indices[valueArgument] = {valuePairKeys[0], {}, false, {}};
    numbers[position] = PlainRegion(kernel, environment).expression(yielded(op.getBody(), 1));
  }
  valuePairs = Func(kernel.uniqueName(func.name() + "_value_pairs"));
  defineOnKeys(valuePairs, {e, k, block}, {valuePairKeys[0], pair, block}, pairOf(numbers[0], numbers[1]));

  outputKeys = keysOfBlock(size, pairsOfTile);
  pair = keyOf(outputKeys);
  outputBlock(q, e, block) += productOfPairs(weightPairs(q, pair, block), valuePairs(e, pair, block));
}

/// Once for a block of keys: what the register tiles of its output read is in the first cache.
void Tile::schedulePairs() {
  int lanes = plan.lanes, queries = plan.queries, pairsOfBlock = outputBlockSize() / 2;
  for (Func &pairs : {std::ref(weightPairs), std::ref(valuePairs)})
    pairs.compute_at(output, outputBlocks.x).bound_extent(k, pairsOfBlock).bound_extent(block, 1);
  weightPairs.bound(q, 0, queries)
      .update()
      .reorder(q, weightPairKeys[0], weightPairKeys[1])
      .vectorize(q, lanes)
      .unroll(q);
  valuePairs.update()
      .reorder(valuePairKeys[0], valuePairKeys[1], valuePairKeys[2])
      .allow_race_conditions()
      .vectorize(valuePairKeys[0], 2 * lanes, Halide::TailStrategy::GuardWithIf);
}

} // namespace attn::lowering

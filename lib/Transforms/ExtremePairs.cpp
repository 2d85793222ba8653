//===- ExtremePairs.cpp - Products that a maximum is over are stored -------===//
//
//   best[c, m] = max[n](sum[d](q[m, d] * k[c, n, d]) where n < length[c])
//
// becomes
//
//   best_pairs[c, m, n] = sum[d](q[m, d] * k[c, n, d])              attn.pairs
//   best[c, m]          = max[n](best_pairs[c, m, n] where n < length[c])
//
// for a block of rows at a time, in which the pairs are a product of matrices.
//
//===----------------------------------------------------------------------===//

#include "PairTensors.h"
#include "Scores.h"

using namespace mlir;
using namespace attn;

/// Whether some factor of the terms of `sum` has rows and not the key, and each that has the key lacks some of those.
static bool isMatrixProduct(ReduceOp sum, BlockArgument key) {
  Product product = Product::of(yielded(sum.getBody()));
  IndexSet rows;
  for (const Factor &factor : product.factors)
    if (!factor.indices.contains(key))
      for (BlockArgument index : factor.indices)
        if (index.getOwner() != &sum.getBody().front())
          rows.insert(index);
  return llvm::any_of(rows, [&](BlockArgument row) {
    return llvm::all_of(product.factors, [&](const Factor &factor) {
      return !factor.indices.contains(key) || !factor.indices.contains(row);
    });
  });
}

/// The only sum in the terms of `extreme`, a maximum or minimum over one index, if it is a product of rows and keys.
static ReduceOp productIn(ReduceOp extreme) {
  bool isExtreme = extreme.getKind() == ReduceKind::Max || extreme.getKind() == ReduceKind::Min;
  if (!isExtreme || !isa<FloatType>(extreme.getType()) || extreme.getSizes().size() != 1)
    return {};
  auto sums = llvm::to_vector(extreme.getBody().getOps<ReduceOp>());
  if (sums.size() != 1 || sums.front().getKind() != ReduceKind::Sum || sums.front().isConditional())
    return {};
  BlockArgument key = extreme.getBody().getArgument(0);
  bool isOfKey = dependence(sums.front().getResult()).contains(key);
  return isOfKey && isMatrixProduct(sums.front(), key) ? sums.front() : ReduceOp();
}

bool attn::storeProductsOfExtremes(TensorOp tensor) {
  bool changed = false;
  for (ReduceOp extreme : llvm::to_vector(tensor.getBody().getOps<ReduceOp>()))
    if (ReduceOp product = productIn(extreme)) {
      OpBuilder builder(product);
      Value read = hoist(product.getResult(), tensor, (tensor.getName() + "_pairs").str(), builder,
                         extreme.getBody().getArgument(0));
      TensorOp pairs = definitionOf(cast<ReadOp>(read.getDefiningOp()).getTensor());
      pairs->setAttr(TensorOp::pairsName, UnitAttr::get(tensor.getContext()));
      product.getResult().replaceAllUsesWith(read);
      product->erase();
      changed = true;
    }
  return changed;
}

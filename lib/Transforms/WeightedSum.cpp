//===- WeightedSum.cpp - Splits a sum over keys into two factors ----------===//
//
//   out[b, m, e] = sum[n](-(weight[b, m, n] * gate[b, n]) / 3.0 * v[b, n, e])
//
// has the factors −1, weight, gate, 1 / 3.0 and v. Those that depend on the last index (e) make the value. The query
// is the last of the other indices that the rest depends on and the value does not (m). Of the rest, what
// depends on the key and not on the query joins the value (gate); the others make the weight.
//
//===----------------------------------------------------------------------===//

#include "WeightedSum.h"
#include "Form.h"
#include "Slice.h"
#include "attn/Analysis/Dependence.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace attn;

namespace {
/// A factor of a product: `value`, or 1 / `value`.
struct Factor {
  Value value;
  bool inverse;
  IndexSet indices;
};

/// A sum's terms as a product, and what the product needs.
struct Product {
  SmallVector<Factor> factors;
  bool negative = false;
};
} // namespace

static void collectFactors(Value value, bool inverse, Product &product) {
  Operation *op = value.getDefiningOp();
  if (isa_and_nonnull<arith::MulFOp>(op)) {
    collectFactors(op->getOperand(0), inverse, product);
    collectFactors(op->getOperand(1), inverse, product);
  } else if (isa_and_nonnull<arith::DivFOp>(op)) {
    collectFactors(op->getOperand(0), inverse, product);
    collectFactors(op->getOperand(1), !inverse, product);
  } else if (isa_and_nonnull<arith::NegFOp>(op)) {
    collectFactors(op->getOperand(0), inverse, product);
    product.negative = !product.negative;
  } else {
    product.factors.push_back({value, inverse, dependence(value)});
  }
}

/// Calls `visit` on the operations that compute `value` inside the regions of its graph op, until it returns true.
/// Returns whether it did.
static bool anyInSlice(Value value, llvm::function_ref<bool(Operation *)> visit) {
  llvm::DenseSet<Operation *> seen;
  SmallVector<Value> todo{value};
  while (!todo.empty()) {
    Value next = todo.pop_back_val();
    Operation *owner = next.getDefiningOp();
    if (!owner || isa<AttnTensorType>(next.getType()) || !seen.insert(owner).second)
      continue;
    WalkResult walk = owner->walk([&](Operation *op) {
      if (visit(op))
        return WalkResult::interrupt();
      llvm::append_range(todo, op->getOperands());
      return WalkResult::advance();
    });
    if (walk.wasInterrupted())
      return true;
  }
  return false;
}

/// Whether `factors` are worth computing tile by tile: they read a weight; or the key enters through a reduction (a dot
/// product), or through a function of the key that no tensor holds for each query (a Gaussian of a distance).
static bool isWeight(ArrayRef<Factor> factors, BlockArgument key, BlockArgument query,
                     const llvm::DenseSet<Value> &weights) {
  return llvm::any_of(factors, [&](const Factor &factor) {
    if (!factor.indices.contains(key))
      return false;
    bool reduces = false, transcendental = false, stored = false;
    bool reads = anyInSlice(factor.value, [&](Operation *op) {
      if (auto read = dyn_cast<ReadOp>(op)) {
        IndexSet indices = dependence(read.getSubscripts());
        stored |= indices.contains(key) && (!query || indices.contains(query));
        return indices.contains(key) && weights.contains(read.getTensor());
      }
      reduces |= isa<ReduceOp>(op);
      transcendental |= isa<math::MathDialect>(op->getDialect());
      return false;
    });
    return reads || (query && !stored && (reduces || transcendental)) || (query && reduces);
  });
}

/// The product of `factors` at the builder's place.
static Value multiply(ArrayRef<Factor> factors, bool negative, Type type, IRMapping &mapping, OpBuilder &builder,
                      Location location) {
  Value product;
  for (bool inverse : {false, true})
    for (const Factor &factor : factors) {
      if (factor.inverse != inverse)
        continue;
      Value value = cloneSlice(factor.value, mapping, builder);
      if (!product && inverse)
        product = arith::ConstantOp::create(builder, location, builder.getFloatAttr(type, 1.0));
      if (!product)
        product = value;
      else if (inverse)
        product = arith::DivFOp::create(builder, location, product, value);
      else
        product = arith::MulFOp::create(builder, location, product, value);
    }
  if (!product)
    product = arith::ConstantOp::create(builder, location, builder.getFloatAttr(type, 1.0));
  return negative ? arith::NegFOp::create(builder, location, product) : product;
}

void attn::raiseWeightedSum(TensorOp tensor, const llvm::DenseSet<Value> &weights) {
  ReduceOp reduce = soleReduction(tensor);
  if (!reduce || reduce.getKind() != ReduceKind::Sum || !isa<FloatType>(reduce.getType()) ||
      tensor.getResult().getType().getRank() == 0)
    return;
  Block::BlockArgListType indices = tensor.getBody().getArguments();
  BlockArgument valueIndex = indices.back(), key = reduce.getBody().getArgument(0);
  Block &terms = reduce.getBody().front();
  Product product;
  collectFactors(cast<YieldOp>(terms.getTerminator()).getValues().front(), false, product);

  auto contains = [](ArrayRef<Factor> factors, BlockArgument index) {
    return llvm::any_of(factors, [&](const Factor &factor) { return factor.indices.contains(index); });
  };
  SmallVector<Factor> value, rest, weight;
  for (const Factor &factor : product.factors)
    (factor.indices.contains(valueIndex) ? value : rest).push_back(factor);
  BlockArgument query;
  for (BlockArgument index : indices.drop_back())
    if (contains(rest, index) && !contains(value, index))
      query = index;
  for (const Factor &factor : rest)
    (query && factor.indices.contains(key) && !factor.indices.contains(query) ? value : weight).push_back(factor);
  if (value.empty() || !isWeight(weight, key, query, weights))
    return;
  if (reduce.isConditional() &&
      dependence(cast<YieldOp>(reduce.getWhere().front().getTerminator()).getValues()).contains(valueIndex))
    return;

  OpBuilder builder(tensor);
  int64_t position = query ? int64_t(query.getArgNumber()) : -1;
  auto sum = WeightedSumOp::create(builder, tensor.getLoc(), tensor.getResult().getType(), tensor.getName(),
                                   tensor.getIndices(), cast<StringAttr>(reduce.getIndices()[0]).getValue(),
                                   reduce.getSize(0), position);
  // Both regions have the tensor's indices and then the key.
  auto enter = [&](Region &region, Block &source, IRMapping &mapping) {
    Block &block = region.emplaceBlock();
    for (BlockArgument index : indices)
      mapping.map(index, block.addArgument(index.getType(), index.getLoc()));
    mapping.map(source.getArgument(0), block.addArgument(key.getType(), key.getLoc()));
    builder.setInsertionPointToEnd(&block);
  };
  IRMapping mapping;
  enter(sum.getBody(), terms, mapping);
  Type type = reduce.getType();
  Value weightProduct = multiply(weight, product.negative, type, mapping, builder, reduce.getLoc());
  Value valueProduct = multiply(value, false, type, mapping, builder, reduce.getLoc());
  YieldOp::create(builder, reduce.getLoc(), ValueRange{weightProduct, valueProduct});
  if (reduce.isConditional()) {
    Block &condition = reduce.getWhere().front();
    IRMapping conditionMapping;
    enter(sum.getWhere(), condition, conditionMapping);
    SmallVector<Value> results = cloneBlock(condition, conditionMapping, builder);
    YieldOp::create(builder, reduce.getLoc(), results);
  }
  tensor.getResult().replaceAllUsesWith(sum.getResult());
  tensor.erase();
}

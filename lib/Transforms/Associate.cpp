//===- Associate.cpp - Products of three matrices become two products -----===//
//
//   grad_c[s] = sum[t, e](pairs[t, s] * grad_out[t, e] * v[s, e] where s <= t)
//
// becomes
//
//   grad_c_product[s, e] = sum[t](pairs[t, s] * grad_out[t, e] where s <= t)
//   grad_c[s]            = sum[e](grad_c_product[s, e] * v[s, e])
//
// A sum over several indices visits all their combinations, one after the other; a product of two matrices is computed
// in register tiles, and is often one that another gradient needs as well. The same goes for a factor that is such a
// product, or a sum of them:
//
//   grad_norm[n] = sum[e](grad_out[n, e] * sum[d](q[n, d] * state[d, e]))
//
// What is stored has no more elements than an input that stands beside it in the product: no tensor of queries by keys
// comes of it.
//
//===----------------------------------------------------------------------===//

#include "Conjunction.h"
#include "Form.h"
#include "Product.h"
#include "Rewrites.h"
#include "Scores.h"
#include "Slice.h"
#include "attn/Transforms/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace attn;

namespace attn {
#define GEN_PASS_DEF_ATTNASSOCIATE
#include "attn/Transforms/Passes.h.inc"
} // namespace attn

/// Whether `tensor` is an input of the kernel, or has the shape of one.
static bool hasInputsShape(Value tensor) {
  KernelOp kernel = isa<BlockArgument>(tensor) ? KernelOp() : tensor.getDefiningOp()->getParentOfType<KernelOp>();
  auto shapeOf = [](Value value) { return cast<AttnTensorType>(value.getType()).getShape(); };
  return !kernel ||
         llvm::any_of(kernel.getParameters(), [&](Value parameter) { return shapeOf(parameter) == shapeOf(tensor); });
}

/// Whether one of `factors` is an element of an input, or of a tensor as large, which has one for each combination of
/// `indices`.
static bool readsInputByAll(ArrayRef<Factor> factors, const IndexSet &indices) {
  return llvm::any_of(factors, [&](const Factor &factor) {
    auto read = factor.value.getDefiningOp<ReadOp>();
    return read && isReadByAll(read, indices) && hasInputsShape(read.getTensor());
  });
}

namespace {
/// What of a sum's terms changes with an index, and what does not.
struct Parts {
  Product inside;
  SmallVector<Factor> outside;
  SmallVector<Value> insideConditions, outsideConditions;
  IndexSet indices; ///< Of the sum over that index alone.

  Parts(ReduceOp sum, BlockArgument index);
};
} // namespace

Parts::Parts(ReduceOp sum, BlockArgument index) {
  inside = Product::of(yielded(sum.getBody()));
  for (const Factor &factor : std::exchange(inside.factors, {}))
    (factor.indices.contains(index) ? inside.factors : outside).push_back(factor);
  for (const Factor &factor : inside.factors)
    indices.insert_range(factor.indices);
  indices.remove(index);
  if (!sum.isConditional())
    return;
  // The index variables of a condition are its own.
  BlockArgument own = sum.getWhere().getArgument(index.getArgNumber());
  for (Value condition : conjunctsOf(yielded(sum.getWhere()))) {
    bool isInside = dependence(condition).contains(own);
    (isInside ? insideConditions : outsideConditions).push_back(condition);
    if (isInside)
      for (BlockArgument used : dependence(condition))
        if (used != own)
          indices.insert(used.getOwner() == own.getOwner() ? sum.getBody().getArgument(used.getArgNumber()) : used);
  }
}

/// Puts a sum over `index` into the terms of a sum over the other indices, in the place of `sum`. Returns the outer
/// one.
static ReduceOp nest(ReduceOp sum, BlockArgument index, const Parts &parts) {
  OpBuilder builder(sum);
  Location location = sum.getLoc();
  unsigned position = index.getArgNumber();
  SmallVector<StringRef> names;
  SmallVector<SizeAttr> sizes;
  for (BlockArgument each : sum.getBody().getArguments())
    if (each != index) {
      names.push_back(indexName(each));
      sizes.push_back(indexSize(each));
    }
  auto outer = ReduceOp::create(builder, location, ReduceKind::Sum, builder.getStrArrayAttr(names), sizes,
                                sum.getType(), ValueRange(), Value(), !parts.outsideConditions.empty());
  // `from`, with one more index, to `to`; the inner sum's region is mapped beside it.
  auto mapOthers = [&](Region &from, Region &to, IRMapping &mapping) {
    Block &around = *sum->getBlock();
    mapping.map(around.getArguments(), around.getArguments());
    for (BlockArgument each : from.getArguments())
      if (unsigned number = each.getArgNumber(); number != position)
        mapping.map(each, to.getArgument(number - (number > position)));
  };
  auto fillCondition = [&](Region &to, ArrayRef<Value> conditions, IRMapping &mapping) {
    OpBuilder inside = OpBuilder::atBlockEnd(&to.front());
    SmallVector<Value> copies;
    for (Value condition : conditions)
      copies.push_back(cloneSlice(condition, mapping, inside));
    YieldOp::create(inside, location, conjunction(copies, inside));
  };
  if (!parts.outsideConditions.empty()) {
    IRMapping mapping;
    mapOthers(sum.getWhere(), outer.getWhere(), mapping);
    fillCondition(outer.getWhere(), parts.outsideConditions, mapping);
  }
  OpBuilder terms = OpBuilder::atBlockEnd(&outer.getBody().front());
  auto inner =
      ReduceOp::create(terms, location, ReduceKind::Sum, builder.getStrArrayAttr({indexName(index)}),
                       {indexSize(index)}, sum.getType(), ValueRange(), Value(), !parts.insideConditions.empty());
  if (!parts.insideConditions.empty()) {
    IRMapping mapping;
    mapOthers(sum.getWhere(), outer.getBody(), mapping);
    mapping.map(sum.getWhere().getArgument(position), inner.getWhere().getArgument(0));
    fillCondition(inner.getWhere(), parts.insideConditions, mapping);
  }
  IRMapping mapping;
  mapOthers(sum.getBody(), outer.getBody(), mapping);
  IRMapping innerMapping = mapping;
  innerMapping.map(index, inner.getBody().getArgument(0));
  OpBuilder inside = OpBuilder::atBlockEnd(&inner.getBody().front());
  YieldOp::create(inside, location,
                  multiply(parts.inside.factors, false, sum.getType(), innerMapping, inside, location));
  Value others = multiply(parts.outside, parts.inside.negative, sum.getType(), mapping, terms, location);
  Value term = arith::MulFOp::create(terms, location, inner.getResult(), others);
  YieldOp::create(terms, location, term);
  sum.getResult().replaceAllUsesWith(outer.getResult());
  sum.erase();
  return outer;
}

/// Makes a factor of the terms of `sum`, over several indices, of the product of two matrices. Null where there is
/// none.
static ReduceOp nest(ReduceOp sum) {
  if (sum.getSizes().size() < 2)
    return {};
  for (BlockArgument index : sum.getBody().getArguments()) {
    Parts parts(sum, index);
    bool isProduct = llvm::count_if(parts.inside.factors, [](const Factor &factor) { return !factor.inverse; }) > 1;
    if (isProduct && readsInputByAll(parts.outside, parts.indices))
      return nest(sum, index, parts);
  }
  return {};
}

/// Whether `factor` is made of sums, one for each term of a sum over `summed`.
static bool isNested(const Factor &factor, Block::BlockArgListType summed) {
  return factor.changesWith(summed) && reduces(factor.value) && !anyInSlice(factor.value, [](Operation *op) {
           auto reduce = dyn_cast<ReduceOp>(op);
           return reduce && reduce.getKind() != ReduceKind::Sum;
         });
}

/// Takes what is the same for all terms of `inner`, a sum that stands in the terms of another, out of it, if that
/// leaves a matrix product.
static void takeFactorsOut(ReduceOp inner) {
  if (inner.getKind() != ReduceKind::Sum || !isa<FloatType>(inner.getType()) || inner.getSizes().size() != 1)
    return;
  Parts parts(inner, inner.getBody().getArgument(0));
  if (parts.inside.factors.empty() || !parts.outsideConditions.empty() ||
      !readsInputByAll(parts.outside, parts.indices))
    return;
  Operation *yield = inner.getBody().front().getTerminator();
  auto product = [&](ArrayRef<Factor> factors, bool negative, OpBuilder builder) {
    IRMapping same;
    for (const Factor &factor : factors)
      for (BlockArgument index : factor.indices)
        same.map(index, index);
    return multiply(factors, negative, inner.getType(), same, builder, inner.getLoc());
  };
  OpBuilder after(inner->getBlock(), std::next(Block::iterator(inner)));
  Value others = product(parts.outside, parts.inside.negative, after);
  yield->setOperand(0, product(parts.inside.factors, false, OpBuilder(yield)));
  eraseUnused(inner.getBody().front());
  after.setInsertionPointAfterValue(others);
  auto all = arith::MulFOp::create(after, inner.getLoc(), inner.getResult(), others);
  inner.getResult().replaceAllUsesExcept(all, all);
}

/// Makes tensors of the factors of a sum's terms that are sums themselves.
static bool storeFactors(ReduceOp sum, TensorOp tensor) {
  for (ReduceOp inner : llvm::to_vector(sum.getBody().getOps<ReduceOp>()))
    takeFactorsOut(inner);
  Product product = Product::of(yielded(sum.getBody()));
  bool changed = false;
  for (Factor factor : product.factors) {
    if (!isNested(factor, sum.getBody().getArguments()) || !readsInputByAll(product.factors, factor.indices))
      continue;
    OpBuilder builder(sum.getContext());
    builder.setInsertionPointAfterValue(factor.value);
    Value element = hoist(factor.value, tensor, (tensor.getName() + "_product").str(), builder);
    factor.value.replaceAllUsesWith(element);
    changed = true;
  }
  if (changed)
    eraseUnused(sum.getBody().front());
  return changed;
}

namespace {
struct Associate : attn::impl::AttnAssociateBase<Associate> {
  void runOnOperation() override {
    if (!isBackward(getOperation()))
      return;
    for (TensorOp tensor : llvm::to_vector(getOperation().getBody().front().getOps<TensorOp>())) {
      if (PlacedSum::of(tensor))
        continue;
      for (ReduceOp sum : llvm::to_vector(tensor.getBody().front().getOps<ReduceOp>())) {
        if (sum.getKind() != ReduceKind::Sum || !isa<FloatType>(sum.getType()))
          continue;
        if (ReduceOp outer = nest(sum))
          sum = outer;
        if (storeFactors(sum, tensor))
          noteRewrite(tensor, "associate",
                      "a sum of products of three factors in '" + tensor.getName() +
                          "' is a product of matrices, which is stored, and one more");
      }
    }
  }
};
} // namespace

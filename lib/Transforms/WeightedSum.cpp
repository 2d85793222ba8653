//===- WeightedSum.cpp - Splits a sum over keys into two factors ----------===//
//
//   out[b, m, e] = sum[n](-(weight[b, m, n] * gate[b, n]) / 3.0 * v[b, n, e])
//
// has the factors −1, weight, gate, 1 / 3.0 and v. Those that depend on the last index (e) make the value. The query
// is the last of the other indices that the rest depends on and the value does not (m); one for which the rest's
// reductions do not have keys of their own, if there is one. Of the rest, what depends on the key and not on the query
// joins the value (gate); the others make the weight.
//
//   out[b, m, e] = sum[n](weight[b, m, n] * (v[b, n, e] + r[n - m + M - 1, e]))
//
// has a query as well, though the value depends on it: through rows of a table alone, which the distance of query and
// key chooses.
//
//   out[b, m] = sum[n](weight[b, m, n] * y[b, n])
//
// has no value index, and gets one of size 1:
//
//   out_sum[b, m, one: 1] = sum[n](weight[b, m, n] * y[b, n])
//   out[b, m]             = out_sum[b, m, 0]
//
// So does a total that weights are divided by, total[b, m] = sum[n](exp(score[b, m, n])), whose value is 1.
//
// One whose value index is not the last becomes a copy, too: out[b, e, m] = out_sum[b, m, e].
//
//===----------------------------------------------------------------------===//

#include "WeightedSum.h"
#include "Form.h"
#include "Product.h"
#include "Slice.h"
#include "attn/Analysis/Cost.h"
#include "attn/Analysis/Dependence.h"
#include "attn/Analysis/Distance.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

#include <optional>

using namespace mlir;
using namespace attn;

/// Whether `factor` reads the weights of a softmax at another key than the sum's: a sum over heads, for example. Each
/// of its terms is of a row of its own, so the weights are stored.
static bool readsOtherKeys(const Factor &factor, BlockArgument key) {
  return anyInSlice(factor.value, [&](Operation *op) {
    auto read = dyn_cast<ReadOp>(op);
    auto softmax = read ? read.getTensor().getDefiningOp<SoftmaxOp>() : SoftmaxOp();
    return softmax && read.getTensor() == softmax.getWeight() && read.getSubscripts().back() != key;
  });
}

/// Whether `factors` are worth computing tile by tile: they read a weight; or the key enters through a reduction (a dot
/// product), or through a function of the key that no tensor holds for each query (a Gaussian of a distance).
static bool isWeight(ArrayRef<Factor> factors, BlockArgument key, BlockArgument query,
                     const llvm::DenseSet<Value> &weights) {
  if (llvm::any_of(factors, [&](const Factor &factor) { return readsOtherKeys(factor, key); }))
    return false;
  return llvm::any_of(factors, [&](const Factor &factor) {
    if (!factor.indices.contains(key))
      return false;
    bool reduces = false, calls = false, stored = false;
    bool reads = anyInSlice(factor.value, [&](Operation *op) {
      if (auto read = dyn_cast<ReadOp>(op)) {
        IndexSet indices = dependence(read.getSubscripts());
        stored |= indices.contains(key) && (!query || indices.contains(query));
        return indices.contains(key) && weights.contains(read.getTensor());
      }
      reduces |= isa<ReduceOp>(op);
      calls |= isFunction(op);
      return false;
    });
    return reads || (query && !stored && (reduces || calls)) || (query && reduces);
  });
}

bool attn::sumsScores(ReduceOp reduce, TensorOp tensor, function_ref<bool(Operation *)> isScore) {
  Block::BlockArgListType indices = tensor.getBody().getArguments();
  if (reduce.getKind() != ReduceKind::Sum || reduce.getSizes().size() != 1 || !isa<FloatType>(reduce.getType()) ||
      indices.empty() || !dependence(yielded(reduce.getBody())).contains(indices.back()))
    return false;
  BlockArgument key = reduce.getBody().getArgument(0);
  return llvm::any_of(Product::of(yielded(reduce.getBody())).factors, [&](const Factor &factor) {
    return factor.indices.contains(key) && !factor.indices.contains(indices.back()) &&
           anyInSlice(factor.value, isScore);
  });
}

/// Whether a reduction of `factors` reads something that changes with both: then it has keys of its own for each value
/// of `index`.
static bool hasOwnKeys(ArrayRef<Factor> factors, BlockArgument key, BlockArgument index) {
  return llvm::any_of(factors, [&](const Factor &factor) {
    return anyInSlice(factor.value, [&](Operation *op) {
      auto read = dyn_cast<ReadOp>(op);
      if (!read || !isa<ReduceOp>(read->getParentOp()) || read->getParentOp() == key.getOwner()->getParentOp())
        return false;
      IndexSet used = dependence(read.getSubscripts());
      return used.contains(key) && used.contains(index);
    });
  });
}

/// A sum's factors, by what they make.
struct Split {
  SmallVector<Factor> weight, value;
  BlockArgument query; ///< Null where there is none.
};

/// The factors of a sum for each of `indices` over `key`; nothing where they are no weight times a value. `valueIndex`
/// is one of the indices, or null: then no factor needs one.
static std::optional<Split> split(const Product &product, Block::BlockArgListType indices, BlockArgument key,
                                  BlockArgument valueIndex, const llvm::DenseSet<Value> &weights) {
  auto contains = [](ArrayRef<Factor> factors, BlockArgument index) {
    return llvm::any_of(factors, [&](const Factor &factor) { return factor.indices.contains(index); });
  };
  Split result;
  SmallVector<Factor> rest;
  for (const Factor &factor : product.factors)
    (valueIndex && factor.indices.contains(valueIndex) ? result.value : rest).push_back(factor);
  SmallVector<BlockArgument> queries;
  for (BlockArgument index : llvm::reverse(indices))
    if (index != valueIndex && contains(rest, index) && !contains(result.value, index))
      queries.push_back(index);
  auto choosesRows = [&](BlockArgument index) {
    Distance distance(index, key);
    return llvm::all_of(result.value, [&](const Factor &factor) { return distance.choosesRows(factor.value); });
  };
  if (queries.empty())
    for (BlockArgument index : llvm::reverse(indices))
      if (valueIndex && index != valueIndex && contains(rest, index) && choosesRows(index))
        queries.push_back(index);
  auto *shares = llvm::find_if(queries, [&](BlockArgument index) { return !hasOwnKeys(rest, key, index); });
  if (!queries.empty())
    result.query = shares != queries.end() ? *shares : queries.front();
  for (const Factor &factor : rest)
    (result.query && factor.indices.contains(key) && !factor.indices.contains(result.query) ? result.value
                                                                                            : result.weight)
        .push_back(factor);
  if ((valueIndex && result.value.empty()) || !isWeight(result.weight, key, result.query, weights))
    return std::nullopt;
  return result;
}

/// The terms of a tensor that is a sum over one index as a whole; nothing where it is none.
static std::optional<Product> termsOf(TensorOp tensor) {
  ReduceOp reduce = soleReduction(tensor);
  if (!reduce || reduce.getKind() != ReduceKind::Sum || !isa<FloatType>(reduce.getType()) ||
      tensor.getResult().getType().getRank() == 0)
    return std::nullopt;
  return Product::of(yielded(reduce.getBody()));
}

bool attn::valuesDependOnQueries(TensorOp tensor, const llvm::DenseSet<Value> &weights) {
  bool hasRecomputed = llvm::any_of(tensor->getBlock()->getOps<TensorOp>(),
                                    [](TensorOp other) { return other->hasAttr(TensorOp::weightsName); });
  std::optional<Product> product = hasRecomputed ? termsOf(tensor) : std::nullopt;
  if (!product)
    return false;
  Block::BlockArgListType indices = tensor.getBody().getArguments();
  BlockArgument key = soleReduction(tensor).getBody().getArgument(0);
  std::optional<Split> factors = split(*product, indices, key, indices.back(), weights);
  bool isComputed = factors && llvm::any_of(factors->value, [&](const Factor &factor) {
                      return factor.indices.contains(key) && !factor.value.getDefiningOp<ReadOp>();
                    });
  return isComputed && !factors->query;
}

namespace {
/// A sum, split, and the indices of the weighted sum that it becomes, the value index last. Where they are those of the
/// tensor, in their order, it takes the tensor's place; otherwise the tensor reads it.
struct RaisedSum {
  Split factors;
  SmallVector<BlockArgument> order;
  bool addsIndex = false; ///< The value index is none of these, and has size 1.
};
} // namespace

/// The value index is the last, as a rule. It may be another (out[b, e, m]); or none, where weights or the scores of a
/// total are summed that have all of the indices. Otherwise weights are stored: those that are summed up to a key
/// (where n <= j), for example.
static std::optional<RaisedSum> raised(TensorOp tensor, const Product &product, const llvm::DenseSet<Value> &weights) {
  ReduceOp reduce = soleReduction(tensor);
  Block::BlockArgListType indices = tensor.getBody().getArguments();
  BlockArgument key = reduce.getBody().getArgument(0);
  IndexSet inCondition;
  if (reduce.isConditional())
    inCondition = dependence(yielded(reduce.getWhere()));
  if (std::optional<Split> factors = split(product, indices, key, indices.back(), weights)) {
    if (inCondition.contains(indices.back()))
      return std::nullopt;
    return RaisedSum{std::move(*factors), llvm::to_vector_of<BlockArgument>(indices)};
  }
  if (!sumsWeights(reduce, weights) && !tensor->hasAttr(TensorOp::totalName))
    return std::nullopt;
  for (BlockArgument valueIndex : llvm::reverse(indices.drop_back())) {
    std::optional<Split> factors = split(product, indices, key, valueIndex, weights);
    if (!factors || !factors->query || inCondition.contains(valueIndex))
      continue;
    SmallVector<BlockArgument> order(indices.begin(), indices.end());
    llvm::erase(order, valueIndex);
    order.push_back(valueIndex);
    return RaisedSum{std::move(*factors), std::move(order)};
  }
  // Scores would be computed again for each value of an index that the weight does not have.
  IndexSet ofWeight;
  std::optional<Split> factors = split(product, indices, key, nullptr, weights);
  if (factors)
    for (const Factor &factor : factors->weight)
      ofWeight.insert_range(factor.indices);
  if (factors && llvm::all_of(indices, [&](BlockArgument index) { return ofWeight.contains(index); }))
    return RaisedSum{std::move(*factors), llvm::to_vector_of<BlockArgument>(indices), /*addsIndex=*/true};
  return std::nullopt;
}

/// Whether each key has weights of another row: such weights are stored.
static bool readsRowsOfKeys(TensorOp tensor, const llvm::DenseSet<Value> &weights) {
  BlockArgument key = soleReduction(tensor).getBody().getArgument(0);
  return anyInSlice(soleReduction(tensor).getResult(), [&](Operation *op) {
    auto read = dyn_cast<ReadOp>(op);
    return read && weights.contains(read.getTensor()) && dependence(read.getSubscripts().drop_back()).contains(key);
  });
}

void attn::raiseWeightedSum(TensorOp tensor, const llvm::DenseSet<Value> &weights) {
  std::optional<Product> terms = termsOf(tensor);
  if (!terms || isStoredWithPairs(tensor) || valuesDependOnQueries(tensor, weights) || readsRowsOfKeys(tensor, weights))
    return;
  std::optional<RaisedSum> sumOf = raised(tensor, *terms, weights);
  if (!sumOf)
    return;
  ReduceOp reduce = soleReduction(tensor);
  const Split &factors = sumOf->factors;
  ArrayRef<BlockArgument> order = sumOf->order;
  bool takesPlace = !sumOf->addsIndex && llvm::equal(order, tensor.getBody().getArguments());

  OpBuilder builder(tensor);
  MLIRContext *context = builder.getContext();
  SmallVector<SizeAttr> shape;
  SmallVector<Attribute> names;
  for (BlockArgument index : order) {
    shape.push_back(tensor.getResult().getType().getShape()[index.getArgNumber()]);
    names.push_back(tensor.getIndices()[index.getArgNumber()]);
  }
  if (sumOf->addsIndex) {
    shape.push_back(SizeAttr::constant(context, 1));
    names.push_back(builder.getStringAttr("one"));
  }
  std::string name = tensor.getName().str();
  if (!takesPlace)
    name = freshName(tensor->getParentOfType<KernelOp>(), name + "_sum");
  auto type = AttnTensorType::get(context, shape, tensor.getResult().getType().getElementType());
  int64_t position = factors.query ? llvm::find(order, factors.query) - order.begin() : -1;
  auto sum = WeightedSumOp::create(builder, tensor.getLoc(), type, name, builder.getArrayAttr(names),
                                   cast<StringAttr>(reduce.getIndices()[0]).getValue(), reduce.getSize(0), position);
  // Both regions have the sum's indices and then the key.
  auto enter = [&](Region &region, Block &source, IRMapping &mapping) {
    Block &block = region.emplaceBlock();
    for (BlockArgument index : order)
      mapping.map(index, block.addArgument(index.getType(), index.getLoc()));
    BlockArgument key = source.getArgument(0);
    if (sumOf->addsIndex)
      block.addArgument(key.getType(), tensor.getLoc());
    mapping.map(key, block.addArgument(key.getType(), key.getLoc()));
    builder.setInsertionPointToEnd(&block);
  };
  IRMapping mapping;
  enter(sum.getBody(), reduce.getBody().front(), mapping);
  Type scalar = reduce.getType();
  Value weight = multiply(factors.weight, terms->negative, scalar, mapping, builder, reduce.getLoc());
  Value value = multiply(factors.value, false, scalar, mapping, builder, reduce.getLoc());
  YieldOp::create(builder, reduce.getLoc(), ValueRange{weight, value});
  if (reduce.isConditional()) {
    Block &condition = reduce.getWhere().front();
    IRMapping conditionMapping;
    enter(sum.getWhere(), condition, conditionMapping);
    SmallVector<Value> results = cloneBlock(condition, conditionMapping, builder);
    YieldOp::create(builder, reduce.getLoc(), results);
  }
  if (takesPlace) {
    tensor.getResult().replaceAllUsesWith(sum.getResult());
    tensor.erase();
    return;
  }
  builder.setInsertionPoint(reduce);
  SmallVector<Value> subscripts(order.begin(), order.end());
  if (sumOf->addsIndex)
    subscripts.push_back(arith::ConstantOp::create(builder, tensor.getLoc(), builder.getI64IntegerAttr(0)));
  Value element = ReadOp::create(builder, tensor.getLoc(), sum.getResult(), subscripts);
  reduce.getResult().replaceAllUsesWith(element);
  reduce->erase();
}

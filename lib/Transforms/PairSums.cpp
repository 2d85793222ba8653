//===- PairSums.cpp - Sums of pairs become products of matrices -----------===//

#include "Conjunction.h"
#include "Form.h"
#include "PairTensors.h"
#include "Scores.h"
#include "Slice.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace attn;

/// The sum of floats that `value` is, or null.
static ReduceOp asSum(Value value) {
  auto reduce = value.getDefiningOp<ReduceOp>();
  bool is = reduce && reduce.getKind() == ReduceKind::Sum && isa<FloatType>(reduce.getType());
  return is ? reduce : ReduceOp();
}

/// The sum that is all of the formula, over any number of indices; or null.
ReduceOp attn::wholeSum(TensorOp tensor) { return asSum(yielded(tensor.getBody())); }

ReduceOp attn::sumIn(TensorOp tensor) {
  Value value = yielded(tensor.getBody());
  while (Operation *op = value.getDefiningOp()) {
    if (isa<ReduceOp>(op))
      break;
    if (!isa<arith::MulFOp, arith::NegFOp>(op) || llvm::count_if(op->getOperands(), reduces) != 1)
      return {};
    value = *llvm::find_if(op->getOperands(), reduces);
  }
  return asSum(value);
}

/// Whether one index of `part` decides about the places, and is the row of a product of pairs: what these are
/// multiplied with does not change with it, as with heads. Such rows, of keys that are gathered, are added up before
/// they are placed.
bool PairTensors::placesRows(const PlacedSum &placed, ReadOp read, TensorOp part) {
  SmallVector<unsigned> deciding = placed.deciding();
  if (deciding.size() != 1)
    return false;
  Value index = ReduceOp(placed.sum).getBody().getArgument(deciding.front());
  auto at = llvm::find(read.getSubscripts(), index);
  if (at == read.getSubscripts().end())
    return false;
  BlockArgument row = part.getBody().getArgument(at - read.getSubscripts().begin());
  ReduceOp sum = wholeSum(part);
  SmallVector<Value> ofPair = pairOf(sum);
  auto isOfPairs = [&](const Factor &factor) {
    auto element = factor.value.getDefiningOp<ReadOp>();
    auto changes = [&](Value index) { return factor.indices.contains(cast<BlockArgument>(index)); };
    return (element && contains(element.getTensor())) ||
           (!ofPair.empty() && changes(ofPair.back()) && llvm::all_of(sum.getBody().getArguments(), changes));
  };
  return llvm::none_of(Product::of(yielded(sum.getBody())).factors,
                       [&](const Factor &factor) { return factor.indices.contains(row) && !isOfPairs(factor); });
}

/// Makes `statement` one sum over pairs, if it adds up elsewhere what a sum over pairs gives: that would be stored as a
/// whole.
///
///   part[h, n, d] = sum[m](pairs[h, m, n] * q[h, m, d])
///   out[g, n, d]  = sum[h](part[h, n, d] where clamp(h // c) == g)
void PairTensors::joinPlaced(TensorOp statement) {
  ReduceOp outer = wholeSum(statement);
  auto read = outer ? yielded(outer.getBody()).getDefiningOp<ReadOp>() : ReadOp();
  TensorOp part = read ? definitionOf(read.getTensor()) : TensorOp();
  bool isSum = part && !contains(read.getTensor()) && read.getTensor().hasOneUse() && isInRange(read) &&
               wholeSum(part) && readsPairs(part);
  if (!isSum || !PlacedSum::of(statement) || placesRows(*PlacedSum::of(statement), read, part))
    return;
  substituteFormula(read, part);
  part.erase();
  auto inner = cast<ReduceOp>(yielded(outer.getBody()).getDefiningOp());
  // In the order that pairs have: the key runs fastest.
  SmallVector<Value> pair = pairOf(inner);
  SmallVector<BlockArgument> indices(outer.getBody().getArguments());
  llvm::append_range(indices, inner.getBody().getArguments());
  llvm::stable_sort(indices, [&](Value a, Value b) { return llvm::find(pair, a) < llvm::find(pair, b); });
  OpBuilder builder(outer);
  Location location = outer.getLoc();
  SmallVector<Attribute> names;
  for (BlockArgument index : indices) {
    Attribute name = builder.getStringAttr(indexName(index));
    for (int number = 1; llvm::is_contained(names, name) || llvm::is_contained(statement.getIndices(), name); ++number)
      name = builder.getStringAttr(indexName(index) + "_" + llvm::Twine(number));
    names.push_back(name);
  }
  auto joined = ReduceOp::create(builder, location, ReduceKind::Sum, builder.getArrayAttr(names),
                                 llvm::map_to_vector(indices, indexSize), outer.getType(), ValueRange(), Value(),
                                 /*conditional=*/true);
  auto enter = [&](Region &region) {
    IRMapping mapping;
    mapping.map(statement.getBody().getArguments(), statement.getBody().getArguments());
    for (auto [index, argument] : llvm::zip_equal(indices, region.getArguments()))
      for (Region &own : index.getOwner()->getParentOp()->getRegions())
        if (!own.empty())
          mapping.map(own.getArgument(index.getArgNumber()), argument);
    builder.setInsertionPointToEnd(&region.front());
    return mapping;
  };
  IRMapping inTerm = enter(joined.getBody()), inWhere = enter(joined.getWhere());
  SmallVector<Value> conditions{cloneSlice(yielded(outer.getWhere()), inWhere, builder)};
  if (inner.isConditional())
    conditions.push_back(cloneSlice(yielded(inner.getWhere()), inWhere, builder));
  YieldOp::create(builder, location, conjunction(conditions, builder));
  builder.setInsertionPointToEnd(&joined.getBody().front());
  YieldOp::create(builder, location, cloneSlice(yielded(inner.getBody()), inTerm, builder));
  outer.replaceAllUsesWith(joined.getResult());
  outer.erase();
}

/// The index variables by which `reduce` reads a pair, in its body; none where it reads pairs in no such way.
SmallVector<Value> PairTensors::pairOf(ReduceOp reduce) {
  SmallVector<Value> pair;
  reduce.getBody().walk([&](ReadOp read) {
    llvm::SmallDenseSet<Value> distinct(read.getSubscripts().begin(), read.getSubscripts().end());
    if (contains(read.getTensor()) && distinct.size() == read.getSubscripts().size() &&
        llvm::all_of(read.getSubscripts(), llvm::IsaPred<BlockArgument>) && isInRange(read))
      pair.assign(read.getSubscripts().begin(), read.getSubscripts().end());
    return pair.empty() ? WalkResult::advance() : WalkResult::interrupt();
  });
  return pair;
}

/// The product of `factors`, which depend on the indices `pair` alone, as a tensor of pairs before `sum`; read there if
/// it is one already.
Value PairTensors::pairFactor(ArrayRef<Factor> factors, ArrayRef<Value> pair, ReduceOp reduce, TensorOp sum) {
  auto read = factors.front().value.getDefiningOp<ReadOp>();
  if (factors.size() == 1 && !factors.front().inverse && read && contains(read.getTensor()) &&
      llvm::equal(read.getSubscripts(), pair))
    return read.getTensor();
  OpBuilder builder(sum);
  auto kernel = sum->getParentOfType<KernelOp>();
  auto tensor = TensorOp::create(builder, reduce.getLoc(), freshName(kernel, (sum.getName() + "_pairs").str()),
                                 weights.getIndices(), weights.getResult().getType());
  Block &body = tensor.getBody().front();
  builder.setInsertionPointToEnd(&body);
  IRMapping mapping;
  for (auto [index, argument] : llvm::zip_equal(pair, body.getArguments()))
    mapping.map(index, argument);
  Value product = multiply(factors, false, reduce.getType(), mapping, builder, reduce.getLoc());
  YieldOp::create(builder, reduce.getLoc(), product);
  if (TensorOp same = earlierCopy(tensor)) {
    tensor.erase();
    return same.getResult();
  }
  tensors.insert(tensor.getResult());
  return tensor.getResult();
}

/// Rewrites the terms of a sum: a factor that is read from a tensor of pairs, others, those of the columns last; what
/// no index of the sum changes is multiplied outside.
void PairTensors::normalise(TensorOp sum) {
  ReduceOp reduce = sumIn(sum);
  SmallVector<Value> pair = pairOf(reduce);
  Block::BlockArgListType indices = sum.getBody().getArguments(), summed = reduce.getBody().getArguments();
  auto isOwn = [&](Value index) { return llvm::is_contained(indices, index) || llvm::is_contained(summed, index); };
  if (pair.empty() || !llvm::all_of(pair, isOwn) || // a sum within the terms has the pair
      reduce.getType() != weights.getResult().getType().getElementType())
    return;
  Product product = Product::of(yielded(reduce.getBody()));
  SmallVector<Factor> outside, ofPairs, others, columns;
  for (const Factor &factor : product.factors) {
    auto has = [&](Value index) { return factor.indices.contains(cast<BlockArgument>(index)); };
    bool ofPair = has(pair.back()) && factor.indices.size() > 1 &&
                  llvm::all_of(factor.indices, [&](Value index) { return llvm::is_contained(pair, index); });
    if (llvm::none_of(summed, has))
      outside.push_back(factor);
    else if (ofPair)
      ofPairs.push_back(factor);
    else
      (!indices.empty() && has(indices.back()) ? columns : others).push_back(factor);
  }
  if (ofPairs.empty())
    return;
  Value pairs = pairFactor(ofPairs, pair, reduce, sum);

  OpBuilder builder(reduce);
  Location location = reduce.getLoc();
  SmallVector<SizeAttr> sizes(reduce.getSizes().getAsRange<SizeAttr>());
  auto terms = ReduceOp::create(builder, location, ReduceKind::Sum, reduce.getIndices(), sizes, reduce.getType(),
                                ValueRange(), Value(), reduce.isConditional());
  auto enter = [&](Region &from, Region &to) {
    IRMapping mapping;
    mapping.map(indices, indices);
    mapping.map(from.getArguments(), to.getArguments());
    builder.setInsertionPointToEnd(&to.front());
    return mapping;
  };
  IRMapping mapping = enter(reduce.getBody(), terms.getBody());
  SmallVector<Value> subscripts = llvm::map_to_vector(pair, [&](Value index) { return mapping.lookup(index); });
  Value term = ReadOp::create(builder, location, pairs, subscripts);
  for (ArrayRef<Factor> factors : {ArrayRef<Factor>(others), ArrayRef<Factor>(columns)})
    if (!factors.empty())
      term = arith::MulFOp::create(builder, location, term,
                                   multiply(factors, false, reduce.getType(), mapping, builder, location));
  YieldOp::create(builder, location, term);
  if (reduce.isConditional()) {
    IRMapping inCondition = enter(reduce.getWhere(), terms.getWhere());
    YieldOp::create(builder, location, cloneBlock(reduce.getWhere().front(), inCondition, builder));
  }
  builder.setInsertionPointAfter(terms);
  Value total = terms;
  if (!outside.empty() || product.negative) {
    IRMapping outsideMapping; // what factors of the terms use, too, is copied again
    outsideMapping.map(indices, indices);
    Value factor = multiply(outside, product.negative, reduce.getType(), outsideMapping, builder, location);
    total = arith::MulFOp::create(builder, location, total, factor);
  }
  reduce.replaceAllUsesWith(total);
  reduce.erase();
  eraseUnused(sum.getBody().front());
}

//===- PairSums.cpp - Sums of pairs become products of matrices -----------===//

#include "Contribution.h"
#include "Form.h"
#include "PairTensors.h"
#include "Scores.h"
#include "Slice.h"
#include "attn/Analysis/PairBlocks.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace attn;

/// The sum that is all of the formula, over any number of indices; or null.
ReduceOp attn::wholeSum(TensorOp tensor) {
  auto reduce = formulaOf(tensor).getDefiningOp<ReduceOp>();
  bool is = reduce && reduce.getKind() == ReduceKind::Sum && isa<FloatType>(reduce.getType());
  return is ? reduce : ReduceOp();
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
  ReduceOp reduce = wholeSum(sum);
  SmallVector<Value> pair = pairOf(reduce);
  if (pair.empty() || reduce.getType() != weights.getResult().getType().getElementType())
    return;
  Block::BlockArgListType indices = sum.getBody().getArguments(), summed = reduce.getBody().getArguments();
  Product product = Product::of(reduce.getBody().front().getTerminator()->getOperand(0));
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

//===----------------------------------------------------------------------===//
// Masks
//===----------------------------------------------------------------------===//

/// What must all hold for `condition` to.
static SmallVector<Value> conjunctsOf(Value condition) {
  SmallVector<Value> conjuncts{condition};
  for (size_t position = 0; position < conjuncts.size();)
    if (auto both = conjuncts[position].getDefiningOp<arith::AndIOp>()) {
      conjuncts[position] = both.getLhs();
      conjuncts.insert(conjuncts.begin() + position + 1, both.getRhs());
    } else {
      ++position;
    }
  return conjuncts;
}

/// Whether all of `conditions` hold; there is one at least.
static Value conjunction(ArrayRef<Value> conditions, OpBuilder &builder) {
  Value all = conditions.front();
  for (Value condition : conditions.drop_front())
    all = arith::AndIOp::create(builder, condition.getLoc(), all, condition);
  return all;
}

/// The masks, tensors of the same shape, that `tensor` is 0 outside of, as its formula says.
SmallVector<Value> PairTensors::masksOf(TensorOp tensor) {
  SmallVector<Value> masks;
  Block::BlockArgListType indices = tensor.getBody().getArguments();
  Value formula = formulaOf(tensor);
  if (Value mask = maskOf(tensor)) {
    for (Value condition : conjunctsOf(mask))
      if (auto read = condition.getDefiningOp<ReadOp>(); read && llvm::equal(read.getSubscripts(), indices))
        masks.push_back(read.getTensor());
    formula = formula.getDefiningOp<arith::SelectOp>().getTrueValue();
  }
  for (ReadOp read : tensor.getBody().getOps<ReadOp>())
    if (contains(read.getTensor()) && llvm::equal(read.getSubscripts(), indices) && isMultipleOf(formula, read))
      llvm::append_range(masks, masksOf(definitionOf(read.getTensor())));
  return masks;
}

/// Makes a tensor that is a multiple of one that is masked 0 where that is, whatever it is multiplied by.
void PairTensors::mask(TensorOp tensor) {
  Value formula = formulaOf(tensor);
  SmallVector<Value> masks = masksOf(tensor);
  if (masks.empty() || formula.getDefiningOp<arith::SelectOp>())
    return;
  OpBuilder builder(tensor.getBody().front().getTerminator());
  Location location = tensor.getLoc();
  SmallVector<Value> conditions;
  llvm::SmallSetVector<Value, 2> distinct(masks.begin(), masks.end());
  for (Value mask : distinct)
    conditions.push_back(ReadOp::create(builder, location, mask, ValueRange(tensor.getBody().getArguments())));
  Value isVisible = conjunction(conditions, builder), zero = floatConstant(0, formula.getType(), builder, location);
  Value masked = arith::SelectOp::create(builder, location, isVisible, formula, zero);
  tensor.getBody().front().getTerminator()->setOperand(0, masked);
}

/// Drops the choice of 0 where `tensor` is another tensor's elements that are 0 there anyway.
void PairTensors::dropChoice(TensorOp tensor) {
  auto choice = formulaOf(tensor).getDefiningOp<arith::SelectOp>();
  auto read = choice ? choice.getTrueValue().getDefiningOp<ReadOp>() : ReadOp();
  if (!read || !stored.contains(read.getTensor()) ||
      !llvm::equal(read.getSubscripts(), tensor.getBody().getArguments()))
    return;
  auto mask = choice.getCondition().getDefiningOp<ReadOp>();
  if (mask && choosesZero(choice) && llvm::equal(mask.getSubscripts(), read.getSubscripts()) &&
      llvm::is_contained(masksOf(definitionOf(read.getTensor())), mask.getTensor()))
    tensor.getBody().front().getTerminator()->setOperand(0, read);
  eraseUnused(tensor.getBody().front());
}

/// Drops what the condition of a sum asks for and the pairs that it reads are 0 without.
void PairTensors::dropConditions(TensorOp sum) {
  SmallVector<ReduceOp> sums(sum.getBody().getOps<ReduceOp>());
  if (sums.size() != 1 || !sums.front().isConditional())
    return;
  ReduceOp reduce = sums.front();
  Block &body = reduce.getBody().front(), &where = reduce.getWhere().front();
  // Masks and where they are read.
  SmallVector<std::pair<Value, SmallVector<Value>>> known;
  for (ReadOp read : body.getOps<ReadOp>())
    if (stored.contains(read.getTensor()) && isMultipleOf(body.getTerminator()->getOperand(0), read))
      for (Value mask : masksOf(definitionOf(read.getTensor())))
        known.push_back({mask, SmallVector<Value>(read.getSubscripts())});
  auto isKnown = [&](Value condition) {
    auto read = condition.getDefiningOp<ReadOp>();
    return read && llvm::any_of(known, [&](auto &mask) {
             return mask.first == read.getTensor() &&
                    llvm::all_of_zip(mask.second, read.getSubscripts(), [&](Value inBody, Value inWhere) {
                      auto a = dyn_cast<BlockArgument>(inBody), b = dyn_cast<BlockArgument>(inWhere);
                      bool isSummed = a && b && a.getOwner() == &body && b.getOwner() == &where;
                      return inBody == inWhere || (isSummed && a.getArgNumber() == b.getArgNumber());
                    });
           });
  };
  SmallVector<Value> left = conjunctsOf(where.getTerminator()->getOperand(0));
  llvm::erase_if(left, isKnown);
  if (!left.empty()) {
    OpBuilder inCondition(where.getTerminator());
    where.getTerminator()->setOperand(0, conjunction(left, inCondition));
    eraseUnused(where);
    return;
  }
  OpBuilder builder(reduce);
  Value all = sumLike(reduce, {}, builder, [&](OpBuilder &inside, IRMapping &mapping) {
    return cloneSlice(body.getTerminator()->getOperand(0), mapping, inside);
  });
  reduce.replaceAllUsesWith(all);
  reduce.erase();
}

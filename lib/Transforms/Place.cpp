//===- Place.cpp - What is equal to a number that is read ------------------===//
//
// A sum whose terms a number says the places of, as in
//
//   copied[m, t] = sum[n](weight[m, n] where id[n] == t)
//
// visits each term at each place. What says that a number is inside of its dimension,
//
//   copied[m, t] = sum[n](weight[m, n] where clamp(id[n]) == t and 0 <= id[n] and id[n] < T)
//
// makes it a sum that visits each term once (attn/Analysis/PlacedSum.h). And of a sum over places
//
//   y[n] = sum[t](x[t] where id[n] == t)
//
// one term is left:
//
//   y[n] = select(0 <= id[n] and id[n] < T, x[clamp(id[n])], 0)
//
//===----------------------------------------------------------------------===//

#include "Conjunction.h"
#include "Equality.h"
#include "Rewrites.h"
#include "Scores.h"
#include "Slice.h"
#include "Subscripts.h"
#include "attn/Analysis/Dependence.h"
#include "attn/Analysis/PlacedSum.h"
#include "attn/Transforms/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace attn;

namespace attn {
#define GEN_PASS_DEF_ATTNPLACE
#include "attn/Transforms/Passes.h.inc"
} // namespace attn

/// Whether a term of `reduce`, or what asks for it, has a sum of its own, or reads weights at `index`: these are
/// computed where they are summed.
static bool isDear(ReduceOp reduce, unsigned index) {
  return reduce
      .walk([&](Operation *op) {
        if (op != reduce && isa<ReduceOp>(op))
          return WalkResult::interrupt();
        auto read = dyn_cast<ReadOp>(op);
        auto source = read ? read.getTensor().getDefiningOp<TensorOp>() : TensorOp();
        bool isOfWeights = source && source
                                         .walk([](ReduceOp inner) {
                                           return inner.getKind() == ReduceKind::Softmax ? WalkResult::interrupt()
                                                                                         : WalkResult::advance();
                                         })
                                         .wasInterrupted();
        Value own = reduce.getBody().getArgument(index);
        return isOfWeights && llvm::is_contained(read.getSubscripts(), own) ? WalkResult::interrupt()
                                                                            : WalkResult::advance();
      })
      .wasInterrupted();
}

/// Of a sum over an index that is equal to a number the terms where it is: one, or a sum over the other indices.
static bool takeTerms(ReduceOp reduce) {
  if (reduce.getKind() != ReduceKind::Sum)
    return false;
  std::optional<Equality> equality = equalityIn(reduce, reduce.getWhere().front());
  if (!equality)
    return false;
  unsigned position = equality->index.getArgNumber();
  if (isDear(reduce, position))
    return false;
  SmallVector<Value> others = conjunctsOf(yielded(reduce.getWhere()));
  llvm::erase(others, equality->condition);
  SizeAttr size = reduce.getSize(position);
  Location location = reduce.getLoc();

  SmallVector<Attribute> names(reduce.getIndices().getValue());
  SmallVector<SizeAttr> sizes(reduce.getSizes().getAsRange<SizeAttr>());
  names.erase(names.begin() + position);
  sizes.erase(sizes.begin() + position);
  OpBuilder builder(reduce);
  // The number's place at `inside`, where the other indices are `indices`.
  auto enter = [&](OpBuilder &inside, ValueRange indices) {
    IRMapping mapping;
    for (BlockArgument index : dependence(reduce.getResult()))
      mapping.map(index, index);
    for (Region *region : {&reduce.getBody(), &reduce.getWhere()})
      for (unsigned number = 0; number < indices.size(); ++number)
        mapping.map(region->getArgument(number < position ? number : number + 1), indices[number]);
    Value place = placeIn(cloneSlice(equality->value, mapping, inside), size, inside);
    for (Region *region : {&reduce.getBody(), &reduce.getWhere()})
      mapping.map(region->getArgument(position), place);
    return mapping;
  };
  auto conditionsAt = [&](OpBuilder &inside, IRMapping &mapping) {
    SmallVector<Value> conditions = insideOf(mapping.lookup(equality->value), size, inside);
    for (Value condition : others)
      conditions.push_back(cloneSlice(condition, mapping, inside));
    return conditions;
  };
  Value result;
  if (sizes.empty()) {
    IRMapping mapping = enter(builder, {});
    SmallVector<Value> conditions = conditionsAt(builder, mapping);
    result = cloneBlock(reduce.getBody().front(), mapping, builder).front();
    Value zero = isa<FloatType>(reduce.getType())
                     ? floatConstant(0, reduce.getType(), builder, location)
                     : arith::ConstantOp::create(builder, location, builder.getIntegerAttr(reduce.getType(), 0));
    if (!conditions.empty())
      result = arith::SelectOp::create(builder, location, conjunction(conditions, builder), result, zero);
  } else {
    auto sum = ReduceOp::create(builder, location, ReduceKind::Sum, builder.getArrayAttr(names), sizes,
                                reduce.getType(), ValueRange(), Value(), /*conditional=*/true);
    OpBuilder inTerm = OpBuilder::atBlockEnd(&sum.getBody().front());
    IRMapping ofTerm = enter(inTerm, sum.getBody().getArguments());
    YieldOp::create(inTerm, location, cloneBlock(reduce.getBody().front(), ofTerm, inTerm));
    eraseUnused(sum.getBody().front());
    OpBuilder inWhere = OpBuilder::atBlockEnd(&sum.getWhere().front());
    IRMapping ofWhere = enter(inWhere, sum.getWhere().getArguments());
    SmallVector<Value> conditions = conditionsAt(inWhere, ofWhere);
    Value yes = arith::ConstantOp::create(inWhere, location, inWhere.getBoolAttr(true));
    YieldOp::create(inWhere, location, conditions.empty() ? yes : conjunction(conditions, inWhere));
    conditions.empty() ? setConditions(sum, {}) : eraseUnused(sum.getWhere().front());
    result = sum;
  }
  reduce.replaceAllUsesWith(result);
  reduce.erase();
  return true;
}

/// Makes the sum of `tensor` one whose terms have places, if it is one but for numbers that may be outside.
static bool clampPlaces(TensorOp tensor) {
  SmallVector<ReduceOp> sums;
  tensor.walk([&](ReduceOp reduce) { sums.push_back(reduce); });
  if (sums.size() != 1 || !sums.front().isConditional() || PlacedSum::of(tensor))
    return false;
  ReduceOp reduce = sums.front();
  std::optional<Equality> equality = equalityIn(reduce, tensor.getBody().front());
  if (!equality)
    return false;
  SizeAttr size = indexSize(equality->index);
  Operation *yield = reduce.getWhere().front().getTerminator();
  Value before = yield->getOperand(0);
  OpBuilder builder(yield);
  Location location = equality->condition.getLoc();
  SmallVector<Value> conditions = conjunctsOf(before);
  Value &condition = *llvm::find(conditions, equality->condition);
  condition = arith::CmpIOp::create(builder, location, arith::CmpIPredicate::eq,
                                    clamp(equality->value, size, builder, location), equality->index);
  llvm::append_range(conditions, insideOf(equality->value, size, builder));
  yield->setOperand(0, conjunction(conditions, builder));
  bool isPlaced = PlacedSum::of(tensor).has_value();
  if (!isPlaced)
    yield->setOperand(0, before);
  eraseUnused(reduce.getWhere().front());
  return isPlaced;
}

namespace {
struct Place : attn::impl::AttnPlaceBase<Place> {
  void runOnOperation() override {
    for (TensorOp tensor : llvm::to_vector(getOperation().getBody().front().getOps<TensorOp>())) {
      SmallVector<ReduceOp> reductions; // the innermost first
      tensor.walk([&](ReduceOp reduce) { reductions.push_back(reduce); });
      for (ReduceOp reduce : reductions)
        if (reduce.isConditional() && takeTerms(reduce))
          noteRewrite(tensor, "place",
                      "of a sum in '" + tensor.getName() + "' the term is taken whose index a number says");
      while (clampPlaces(tensor))
        noteRewrite(tensor, "place",
                    "each term of the sum in '" + tensor.getName() +
                        "' is visited once, and added at the place that a number says");
    }
  }
};
} // namespace

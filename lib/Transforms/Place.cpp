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

namespace {
/// `condition` says that `index` is `value`, which is read from a tensor.
struct Equality {
  Value condition;
  BlockArgument index;
  Value value;
};
} // namespace

static bool readsTensor(Value value) {
  return anyInSlice(value, [](Operation *op) { return isa<ReadOp>(op); });
}

/// What is asked of the terms of `reduce` that is an equality with an index of `block`, the first one.
static std::optional<Equality> equalityIn(ReduceOp reduce, Block &block) {
  for (Value condition : conjunctsOf(yielded(reduce.getWhere()))) {
    auto compare = condition.getDefiningOp<arith::CmpIOp>();
    if (!compare || compare.getPredicate() != arith::CmpIPredicate::eq)
      continue;
    for (auto [side, value] :
         {std::pair(compare.getLhs(), compare.getRhs()), std::pair(compare.getRhs(), compare.getLhs())}) {
      auto index = dyn_cast<BlockArgument>(side);
      if (index && index.getOwner() == &block && readsTensor(value) && !dependence(value).contains(index))
        return Equality{condition, index, value};
    }
  }
  return std::nullopt;
}

/// That `value` is a place in a dimension of `size`; nothing where it always is, as one that is clamped.
static SmallVector<Value> insideOf(Value value, SizeAttr size, OpBuilder &builder) {
  if (isClamped(value, size) || isInRange(value, size))
    return {};
  Location location = value.getLoc();
  Value zero = arith::ConstantOp::create(builder, location, builder.getI64IntegerAttr(0));
  Value end = SizeOp::create(builder, location, size);
  return {arith::CmpIOp::create(builder, location, arith::CmpIPredicate::sge, value, zero),
          arith::CmpIOp::create(builder, location, arith::CmpIPredicate::slt, value, end)};
}

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

/// Of a sum over one index, which is equal to a number, the one term.
static bool takeTerm(ReduceOp reduce) {
  if (reduce.getKind() != ReduceKind::Sum || reduce.getSizes().size() != 1)
    return false;
  std::optional<Equality> equality = equalityIn(reduce, reduce.getWhere().front());
  if (!equality || isDear(reduce, 0))
    return false;
  SmallVector<Value> others = conjunctsOf(yielded(reduce.getWhere()));
  llvm::erase(others, equality->condition);
  OpBuilder builder(reduce);
  SizeAttr size = reduce.getSize(0);
  IRMapping mapping;
  for (BlockArgument index : dependence(reduce.getResult()))
    mapping.map(index, index);
  Value value = cloneSlice(equality->value, mapping, builder);
  SmallVector<Value> conditions = insideOf(value, size, builder);
  Value place = isClamped(value, size) || conditions.empty() ? value : clamp(value, size, builder, value.getLoc());
  mapping.map(reduce.getWhere().getArgument(0), place);
  mapping.map(reduce.getBody().getArgument(0), place);
  for (Value condition : others)
    conditions.push_back(cloneSlice(condition, mapping, builder));
  Value term = cloneBlock(reduce.getBody().front(), mapping, builder).front();
  if (!conditions.empty()) {
    Location location = reduce.getLoc();
    Value zero = isa<FloatType>(reduce.getType())
                     ? floatConstant(0, reduce.getType(), builder, location)
                     : arith::ConstantOp::create(builder, location, builder.getIntegerAttr(reduce.getType(), 0));
    term = arith::SelectOp::create(builder, location, conjunction(conditions, builder), term, zero);
  }
  reduce.replaceAllUsesWith(term);
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
        if (reduce.isConditional() && takeTerm(reduce))
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

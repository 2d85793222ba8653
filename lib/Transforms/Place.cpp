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
#include "Form.h"
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
        Value own = reduce.getBody().getArgument(index);
        bool readsWeights = source && isSoftmax(source) && llvm::is_contained(read.getSubscripts(), own);
        return readsWeights ? WalkResult::interrupt() : WalkResult::advance();
      })
      .wasInterrupted();
}

namespace {
/// A sum over an index that is equal to a number: of its terms those are left where it is, one, or a sum over the other
/// indices.
class TakenTerms {
public:
  static std::optional<TakenTerms> of(ReduceOp reduce);
  void rewrite();

private:
  TakenTerms(ReduceOp reduce, const Equality &equality)
      : reduce(reduce), equality(equality), position(equality.index.getArgNumber()), size(reduce.getSize(position)),
        location(reduce.getLoc()) {}

  IRMapping enter(OpBuilder &builder, ValueRange others);
  SmallVector<Value> conditionsAt(OpBuilder &builder, IRMapping &mapping);
  Value oneTerm();
  Value sumOfOthers();

  ReduceOp reduce;
  Equality equality;
  unsigned position; ///< Among the indices of `reduce`.
  SizeAttr size;
  Location location;
};
} // namespace

std::optional<TakenTerms> TakenTerms::of(ReduceOp reduce) {
  if (reduce.getKind() != ReduceKind::Sum || !reduce.isConditional())
    return std::nullopt;
  std::optional<Equality> equality = equalityIn(reduce, reduce.getWhere().front());
  if (!equality || isDear(reduce, equality->index.getArgNumber()))
    return std::nullopt;
  return TakenTerms(reduce, *equality);
}

/// What the indices of the sum's formulas are at the builder's place, where the other ones are `others`.
IRMapping TakenTerms::enter(OpBuilder &builder, ValueRange others) {
  IRMapping mapping;
  for (BlockArgument index : dependence(reduce.getResult()))
    mapping.map(index, index);
  for (Region *region : {&reduce.getBody(), &reduce.getWhere()})
    for (auto [number, other] : llvm::enumerate(others))
      mapping.map(region->getArgument(number < position ? number : number + 1), other);
  Value place = placeIn(cloneSlice(equality.value, mapping, builder), size, builder);
  for (Region *region : {&reduce.getBody(), &reduce.getWhere()})
    mapping.map(region->getArgument(position), place);
  return mapping;
}

/// What is asked of a term there.
SmallVector<Value> TakenTerms::conditionsAt(OpBuilder &builder, IRMapping &mapping) {
  SmallVector<Value> conditions = insideOf(mapping.lookup(equality.value), size, builder);
  for (Value condition : conjunctsOf(yielded(reduce.getWhere())))
    if (condition != equality.condition)
      conditions.push_back(cloneSlice(condition, mapping, builder));
  return conditions;
}

Value TakenTerms::oneTerm() {
  OpBuilder builder(reduce);
  IRMapping mapping = enter(builder, {});
  SmallVector<Value> conditions = conditionsAt(builder, mapping);
  Value term = cloneSlice(yielded(reduce.getBody()), mapping, builder);
  if (conditions.empty())
    return term;
  Value zero = isa<FloatType>(reduce.getType())
                   ? floatConstant(0, reduce.getType(), builder, location)
                   : arith::ConstantOp::create(builder, location, builder.getIntegerAttr(reduce.getType(), 0));
  return arith::SelectOp::create(builder, location, conjunction(conditions, builder), term, zero);
}

Value TakenTerms::sumOfOthers() {
  SmallVector<Attribute> names(reduce.getIndices().getValue());
  SmallVector<SizeAttr> sizes(reduce.getSizes().getAsRange<SizeAttr>());
  names.erase(names.begin() + position);
  sizes.erase(sizes.begin() + position);
  OpBuilder builder(reduce);
  auto sum = ReduceOp::create(builder, location, ReduceKind::Sum, builder.getArrayAttr(names), sizes, reduce.getType(),
                              ValueRange(), Value(), /*conditional=*/true);
  builder.setInsertionPointToEnd(&sum.getBody().front());
  IRMapping inTerm = enter(builder, sum.getBody().getArguments());
  Value term = cloneSlice(yielded(reduce.getBody()), inTerm, builder);
  YieldOp::create(builder, location, term);
  eraseUnused(sum.getBody().front());
  builder.setInsertionPointToEnd(&sum.getWhere().front());
  IRMapping inWhere = enter(builder, sum.getWhere().getArguments());
  SmallVector<Value> conditions = conditionsAt(builder, inWhere);
  Value yes = arith::ConstantOp::create(builder, location, builder.getBoolAttr(true));
  YieldOp::create(builder, location, yes);
  setConditions(sum, conditions);
  return sum;
}

void TakenTerms::rewrite() {
  reduce.replaceAllUsesWith(reduce.getSizes().size() == 1 ? oneTerm() : sumOfOthers());
  reduce.erase();
}

/// Clamps the number in a condition of the sum of `tensor`, if that makes it one whose terms have places along `index`.
static bool clampPlace(TensorOp tensor, ReduceOp reduce, const Equality &equality) {
  SizeAttr size = indexSize(equality.index);
  SmallVector<Value> conditions = conjunctsOf(yielded(reduce.getWhere())), before = conditions;
  OpBuilder builder(reduce.getWhere().front().getTerminator());
  Location location = equality.condition.getLoc();
  *llvm::find(conditions, equality.condition) = arith::CmpIOp::create(
      builder, location, arith::CmpIPredicate::eq, clamp(equality.value, size, builder, location), equality.index);
  llvm::append_range(conditions, insideOf(equality.value, size, builder));
  Operation *yield = reduce.getWhere().front().getTerminator();
  yield->setOperand(0, conjunction(conditions, builder));
  std::optional<PlacedSum> placed = PlacedSum::of(tensor);
  bool isPlaced = placed && placed->isPlace(equality.index.getArgNumber());
  setConditions(reduce, isPlaced ? conditions : before);
  return isPlaced;
}

/// Makes the sum of `tensor` one whose terms have places, as far as it is one but for numbers that may be outside.
static bool clampPlaces(TensorOp tensor) {
  SmallVector<ReduceOp> sums;
  tensor.walk([&](ReduceOp reduce) { sums.push_back(reduce); });
  if (sums.size() != 1 || !sums.front().isConditional())
    return false;
  bool isChanged = false;
  for (Value condition : conjunctsOf(yielded(sums.front().getWhere())))
    if (std::optional<Equality> equality = equalityOf(condition, tensor.getBody().front());
        equality && !isClamped(equality->value, indexSize(equality->index)))
      isChanged |= clampPlace(tensor, sums.front(), *equality);
  return isChanged;
}

namespace {
struct Place : attn::impl::AttnPlaceBase<Place> {
  void runOnOperation() override {
    for (TensorOp tensor : llvm::to_vector(getOperation().getBody().front().getOps<TensorOp>())) {
      SmallVector<ReduceOp> reductions; // the innermost first
      tensor.walk([&](ReduceOp reduce) { reductions.push_back(reduce); });
      for (ReduceOp reduce : reductions)
        if (std::optional<TakenTerms> terms = TakenTerms::of(reduce)) {
          terms->rewrite();
          noteRewrite(tensor, "place",
                      "of a sum in '" + tensor.getName() + "' the term is taken whose index a number says");
        }
      if (clampPlaces(tensor))
        noteRewrite(tensor, "place",
                    "each term of the sum in '" + tensor.getName() +
                        "' is visited once, and added at the place that a number says");
    }
  }
};
} // namespace

//===- ExpandDistances.cpp - Squared distances become dot products --------===//
//
//   score[m, n] = -0.5 * sum[d]((q[m, d] - k[n, d]) ** 2)
//
// becomes
//
//   query_norm[m] = sum[d](q[m, d] ** 2)
//   key_norm[n]   = sum[d](k[n, d] ** 2)
//   score[m, n]   = -0.5 * (query_norm[m] + key_norm[n] - 2 * sum[d](q[m, d] * k[n, d]))
//
// so that a pair costs one multiply-add a dimension instead of two operations, and shift invariance drops the query's
// norm.
//
// Rounding. The difference cancels where both norms are large and the distance is not. Its error is about
// 2^−23 · scale · norm, the scale being what the distance is multiplied by. So the norms are expanded only
// where scale · norm ≤ 128 for all of them, which keeps the error of a score below 3e-5; otherwise (NaN included) the
// distance is computed as it was written. The choice is one flag a call, and what it rules out is not computed. What is
// another function of a distance is left, a root above all: a distance of 0 may come out below it.
//
//===----------------------------------------------------------------------===//

#include "Rewrites.h"
#include "Scores.h"
#include "Slice.h"
#include "attn/Transforms/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/Builders.h"

using namespace mlir;
using namespace attn;

namespace attn {
#define GEN_PASS_DEF_ATTNEXPANDDISTANCES
#include "attn/Transforms/Passes.h.inc"
} // namespace attn

/// Whether `reduce` has so few terms that norms would save nothing.
static bool isShort(ReduceOp reduce) {
  return llvm::all_of(reduce.getSizes().getAsRange<SizeAttr>(),
                      [](SizeAttr size) { return size.getKind() == SizeKind::Constant && size.getValue() <= 3; });
}

/// The difference whose squares `reduce` sums, or null.
static arith::SubFOp differenceOf(ReduceOp reduce) {
  if (reduce.getKind() != ReduceKind::Sum || reduce.isConditional() || isShort(reduce))
    return {};
  auto square = yielded(reduce.getBody()).getDefiningOp<arith::MulFOp>();
  if (!square || square.getLhs() != square.getRhs())
    return {};
  return square.getLhs().getDefiningOp<arith::SubFOp>();
}

/// The largest magnitude among the elements of the tensor that `read` reads.
static Value largestOf(Value read, OpBuilder &builder) {
  Location location = read.getLoc();
  Value tensor = read.getDefiningOp<ReadOp>().getTensor();
  auto definition = cast<TensorOp>(tensor.getDefiningOp());
  auto largest =
      ReduceOp::create(builder, location, ReduceKind::Max, definition.getIndices(),
                       definition.getResult().getType().getShape(), read.getType(), ValueRange(), Value(), false);
  OpBuilder inside = OpBuilder::atBlockEnd(&largest.getBody().front());
  SmallVector<Value> at(largest.getBody().getArguments());
  Value element = ReadOp::create(inside, location, tensor, at);
  Value magnitude = math::AbsFOp::create(inside, location, element); // says that it is not −∞
  YieldOp::create(inside, location, magnitude);
  return largest.getResult();
}

/// `scale` times what multiplies or divides `value` in `user`; null where that is another for each pair.
static Value scaledBy(Operation *user, Value value, Value scale, const PairFormula &formula, OpBuilder &builder) {
  Location location = value.getLoc();
  bool isProduct = isa<arith::MulFOp>(user);
  Value other = user->getOperand(isProduct && user->getOperand(1) == value ? 0 : 1);
  IndexSet used = dependence(other);
  bool isOfQuery = llvm::any_of(queryIndices(formula), [&](BlockArgument row) { return used.contains(row); });
  if (other == value || (formula.dependsOnKey(other) && isOfQuery))
    return {};
  IRMapping same;
  for (BlockArgument index : used)
    same.map(index, index);
  Value factor = cloneSlice(other, same, builder);
  if (!isProduct && used.empty())
    return arith::DivFOp::create(builder, location, scale, factor);
  if (!isProduct)
    factor = arith::DivFOp::create(builder, location, floatConstant(1, value.getType(), builder, location), factor);
  if (!used.empty()) {
    StringRef name = cast<DefinitionOpInterface>(formula.op).getName();
    factor = largestOf(hoist(factor, formula.op, (name + "_scale").str(), builder), builder);
  }
  return arith::MulFOp::create(builder, location, scale, factor);
}

/// |scale|, the product of all that multiplies and divides `value` afterwards, the largest where there are several, at
/// the builder's place. Null where `value` goes several ways, or is more than a part of a score or of its exponential:
/// a root of a distance near 0 has no digit that is right, or is none.
static Value scaleOf(Value value, const PairFormula &formula, OpBuilder &builder) {
  Location location = value.getLoc();
  Value scale = floatConstant(1, value.getType(), builder, location);
  for (;;) {
    if (!value.hasOneUse())
      return {};
    Operation *user = *value.getUsers().begin();
    if (isa<YieldOp, math::ExpOp, math::Exp2Op>(user))
      return math::AbsFOp::create(builder, location, scale);
    if (isa<arith::MulFOp, arith::DivFOp>(user)) {
      scale = scaledBy(user, value, scale, formula, builder);
      if (!scale)
        return {};
    } else if (!isa<arith::NegFOp, arith::AddFOp, arith::SubFOp, arith::SelectOp>(user)) {
      return {};
    }
    value = user->getResult(0);
  }
}

/// Whether scale · (the largest element of the tensor that `norm` reads) is at most 128.
static Value isBounded(Value norm, Value scale, OpBuilder &builder) {
  Location location = norm.getLoc();
  Value scaled = arith::MulFOp::create(builder, location, largestOf(norm, builder), scale);
  Value limit = floatConstant(128, norm.getType(), builder, location);
  return arith::CmpFOp::create(builder, location, arith::CmpFPredicate::OLE, scaled, limit);
}

/// Expands `reduce` = Σ (lhs − rhs)².
static void expand(ReduceOp reduce, arith::SubFOp difference, const PairFormula &formula) {
  Location location = reduce.getLoc();
  OpBuilder builder(reduce);
  Value scale = scaleOf(reduce, formula, builder);
  if (!scale)
    return;
  StringRef name = cast<DefinitionOpInterface>(formula.op).getName();
  auto sumOfProducts = [&](Value lhs, Value rhs, Value condition) {
    return sumLike(reduce, condition, builder, [&](OpBuilder &inside, IRMapping &mapping) {
      Value a = cloneSlice(lhs, mapping, inside), b = cloneSlice(rhs, mapping, inside);
      return arith::MulFOp::create(inside, location, a, b).getResult();
    });
  };
  Value query = difference.getLhs(), key = difference.getRhs();
  if (formula.dependsOnKey(query))
    std::swap(query, key);
  Value queryNorm = hoist(sumOfProducts(query, query, Value()), formula.op, (name + "_query_norm").str(), builder);
  Value keyNorm = hoist(sumOfProducts(key, key, Value()), formula.op, (name + "_key_norm").str(), builder);
  Value queryBounded = isBounded(queryNorm, scale, builder), keyBounded = isBounded(keyNorm, scale, builder);
  Value bounded = arith::AndIOp::create(builder, location, queryBounded, keyBounded);
  bounded = hoist(bounded, formula.op, (name + "_bounded").str(), builder);

  Value two = floatConstant(2, reduce.getType(), builder, location);
  Value products = arith::MulFOp::create(builder, location, sumOfProducts(query, key, bounded), two);
  Value norms = arith::AddFOp::create(builder, location, queryNorm, keyNorm);
  Value expanded = arith::SubFOp::create(builder, location, norms, products);
  Value written = sumLike(reduce, negate(bounded, builder), builder, [&](OpBuilder &inside, IRMapping &mapping) {
    return cloneSlice(yielded(reduce.getBody()), mapping, inside);
  });
  Value result = arith::SelectOp::create(builder, location, bounded, expanded, written);
  reduce.getResult().replaceAllUsesWith(result);
  reduce->erase();
  noteRewrite(formula.op, "expand distances",
              "the squared distance in '" + name +
                  "' becomes a dot product and two norms, computed once for each query and each key; where norms "
                  "are so large that they would cancel, the distance is computed as written");
}

namespace {
struct ExpandDistances : attn::impl::AttnExpandDistancesBase<ExpandDistances> {
  void runOnOperation() override {
    for (const PairFormula &formula : pairFormulas(getOperation())) {
      IndexSet queries = queryIndices(formula);
      auto dependsOnQuery = [&](Value value) {
        IndexSet used = dependence(value);
        return llvm::any_of(queries, [&](BlockArgument row) { return used.contains(row); });
      };
      for (ReduceOp reduce : llvm::to_vector(formula.block->getOps<ReduceOp>())) {
        arith::SubFOp difference = differenceOf(reduce);
        if (!difference)
          continue;
        Value lhs = difference.getLhs(), rhs = difference.getRhs();
        if (formula.dependsOnKey(lhs))
          std::swap(lhs, rhs);
        if (!formula.dependsOnKey(lhs) && formula.dependsOnKey(rhs) && dependsOnQuery(lhs) && !dependsOnQuery(rhs))
          expand(reduce, difference, formula);
      }
    }
  }
};
} // namespace

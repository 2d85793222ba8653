//===- FactorOut.cpp - What is the same for all terms goes out of a sum ---===//
//
//   grad_x[t, s] = sum[e](grad_out[t, e] * exp(c[t] - c[s]) * v[s, e] where s <= t)
//   grad_q[m, d] = sum[e](select(q[m, d] > 0, 0, grad_out[m, e] * state[d, e]) * exp(q[m, d])
//                       + select(q[m, d] > 0, grad_out[m, e] * state[d, e], 0))
//   grad_k[n, d] = sum[r](grad_feature[n, r] * feature[n, r] * k[n, d])
//
// becomes
//
//   grad_x[t, s] = select(s <= t, sum[e](grad_out[t, e] * v[s, e]) * exp(c[t] - c[s]), 0)
//   grad_q[m, d] = select(q[m, d] > 0, 0, s) * exp(q[m, d]) + select(q[m, d] > 0, s, 0)
//                  where s = sum[e](grad_out[m, e] * state[d, e])
//   grad_k[n, d] = sum[r](grad_feature[n, r] * feature[n, r]) * k[n, d]
//
// The first two are products of matrices then, the last is one sum for a row. The chain rule makes such terms where
// what is differentiated stands inside a sum. The products of a layer become tensors of their own, for several
// gradients may have one in common:
//
//   grad_gate[b, t, f]  = sum[e](grad_out[b, t, e] * w[f, e] * value[b, t, f])
//   grad_value[b, t, f] = sum[e](grad_out[b, t, e] * w[f, e] * gate[b, t, f])
//
//===----------------------------------------------------------------------===//

#include "Form.h"
#include "InlineRules.h"
#include "Product.h"
#include "Rewrites.h"
#include "Scores.h"
#include "Slice.h"
#include "attn/Analysis/Cost.h"
#include "attn/Analysis/PlacedSum.h"
#include "attn/Transforms/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace attn;

namespace attn {
#define GEN_PASS_DEF_ATTNFACTOROUT
#include "attn/Transforms/Passes.h.inc"
} // namespace attn

namespace {
/// A sum whose terms are a multiple of one product, by factors and choices that are the same for all of them.
class CommonProduct {
public:
  explicit CommonProduct(ReduceOp sum) : sum(sum), builder(sum) {}

  /// Whether it is one, and a simpler sum without these.
  bool find();
  /// The sum of the product alone, with the factors and choices around it.
  Value write();
  ReduceOp sumAlone() const { return total.getDefiningOp<ReduceOp>(); }

private:
  /// Whether `factor` changes from term to term.
  bool changes(const Factor &factor) { return factor.changesWith(sum.getBody().getArguments()); }
  /// The only factor of `product` that changes from term to term, if it adds or chooses. Null otherwise.
  Operation *nested(const Product &product);
  bool visit(Value term);
  Value write(Value term);

  ReduceOp sum;
  OpBuilder builder;
  IRMapping outside;          ///< Of what is copied around the sum.
  SmallVector<Factor> common; ///< The product.
  bool isSimpler = false;
  Value total;                           ///< Its sum.
  llvm::DenseSet<Value> seen;            ///< Terms that are a multiple of it,
  llvm::DenseMap<Value, Value> multiple; ///< and what they become: a term may be used any number of times.
};
} // namespace

static bool isZero(Value value) { return matchPattern(value, m_AnyZeroFloat()); }

Operation *CommonProduct::nested(const Product &product) {
  Operation *only = nullptr;
  for (const Factor &factor : product.factors)
    if (changes(factor)) {
      if (only || factor.inverse)
        return nullptr;
      only = factor.value.getDefiningOp();
    }
  if (isa_and_nonnull<arith::AddFOp, arith::SubFOp>(only))
    return only;
  auto choice = dyn_cast_or_null<arith::SelectOp>(only);
  return choice && !changes({{}, false, dependence(choice.getCondition())}) ? only : nullptr;
}

/// Takes note of the product that `term` is a multiple of. False where it is of none, or another one.
bool CommonProduct::visit(Value term) {
  if (isZero(term) || !seen.insert(term).second)
    return true;
  Product product = Product::of(term);
  for (const Factor &factor : product.factors) {
    auto isOfFactor = [&](BlockArgument index) { return factor.indices.contains(index); };
    bool isOwn = llvm::all_of(dependence(sum.getResult()), isOfFactor); // an element for each of the sum's
    isSimpler |= !changes(factor) && !factor.indices.empty() && (isOwn || anyInSlice(factor.value, isFunction));
  }
  if (Operation *op = nested(product)) {
    isSimpler |= isa<arith::SelectOp>(op);
    return visit(op->getOperand(op->getNumOperands() - 2)) && visit(op->getOperand(op->getNumOperands() - 1));
  }
  IndexSet all = dependence(term), own;
  SmallVector<Factor> changing;
  for (const Factor &factor : product.factors)
    if (changes(factor)) {
      changing.push_back(factor);
      own.insert_range(factor.indices);
    }
  isSimpler |= own.size() < all.size();
  auto isSame = [](const Factor &a, const Factor &b) { return a.value == b.value && a.inverse == b.inverse; };
  if (common.empty())
    common = changing;
  return !changing.empty() && llvm::equal(common, changing, isSame);
}

bool CommonProduct::find() {
  Value condition = sum.isConditional() ? yielded(sum.getWhere()) : Value();
  if (condition)
    for (BlockArgument index : dependence(condition))
      if (index.getOwner()->getParent() == &sum.getWhere())
        return false;
  return visit(yielded(sum.getBody())) && isSimpler && !common.empty();
}

Value CommonProduct::write(Value term) {
  Location location = sum.getLoc();
  if (isZero(term))
    return cloneSlice(term, outside, builder);
  if (Value known = multiple.lookup(term))
    return known;
  Product product = Product::of(term);
  SmallVector<Factor> factors;
  llvm::copy_if(product.factors, std::back_inserter(factors), [&](const Factor &factor) { return !changes(factor); });
  Value value = total;
  if (Operation *op = nested(product)) {
    IRMapping mapping = outside;
    for (Value operand : op->getOperands())
      mapping.map(operand, isa<FloatType>(operand.getType()) ? write(operand) : cloneSlice(operand, outside, builder));
    value = builder.clone(*op, mapping)->getResult(0);
  }
  if (product.negative)
    value = arith::NegFOp::create(builder, location, value);
  if (!factors.empty())
    value = arith::MulFOp::create(builder, location, value,
                                  multiply(factors, false, sum.getType(), outside, builder, location));
  return multiple[term] = value;
}

Value CommonProduct::write() {
  Location location = sum.getLoc();
  Block::BlockArgListType around = sum->getBlock()->getArguments();
  outside.map(around, around);
  total = sumLike(sum, {}, builder, [&](OpBuilder &terms, IRMapping &mapping) {
    return multiply(common, false, sum.getType(), mapping, terms, location);
  });
  Value result = write(yielded(sum.getBody()));
  if (!sum.isConditional())
    return result;
  Value zero = floatConstant(0, sum.getType(), builder, location);
  return arith::SelectOp::create(builder, location, cloneSlice(yielded(sum.getWhere()), outside, builder), result,
                                 zero);
}

namespace {
struct FactorOut : attn::impl::AttnFactorOutBase<FactorOut> {
  void runOnOperation() override {
    if (!isBackward(getOperation()))
      return;
    for (TensorOp tensor : getOperation().getBody().front().getOps<TensorOp>()) {
      if (PlacedSum::of(tensor))
        continue;
      for (ReduceOp sum : llvm::to_vector(tensor.getBody().front().getOps<ReduceOp>())) {
        if (sum.getKind() != ReduceKind::Sum || !isa<FloatType>(sum.getType()))
          continue;
        CommonProduct product(sum);
        if (!product.find())
          continue;
        sum.replaceAllUsesWith(product.write());
        sum.erase();
        if (ReduceOp alone = product.sumAlone(); isOfLayers(tensor) && alone != soleReduction(tensor))
          splitOff(alone, tensor, "_product");
        noteRewrite(tensor, "factor out",
                    "the terms of a sum in '" + tensor.getName() +
                        "' have factors in common, which it is multiplied by instead");
      }
    }
  }
};
} // namespace

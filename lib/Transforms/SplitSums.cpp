//===- SplitSums.cpp - A sum of several weights becomes several sums ------===//
//
//   out[m, e] = sum[n]((first[m, n] - lambda[] * second[m, n]) * v[n, e])
//
// becomes
//
//   out_first[m, e]  = sum[n](first[m, n] * v[n, e])
//   out_second[m, e] = sum[n](second[m, n] * v[n, e])
//   out[m, e]        = out_first[m, e] - lambda[] * out_second[m, e]
//
// A sum of one softmax's weights is computed with them, one tile of keys after the other; a sum of two needs both
// whole.
//
//===----------------------------------------------------------------------===//

#include "Form.h"
#include "Product.h"
#include "Scores.h"
#include "Slice.h"
#include "attn/Transforms/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace attn;

namespace attn {
#define GEN_PASS_DEF_ATTNSPLITSUMS
#include "attn/Transforms/Passes.h.inc"
} // namespace attn

namespace {
/// A term of what several softmaxes' weights are added to.
struct Addend {
  Term term;
  TensorOp weights; ///< The only ones that it reads.
};

struct SplitSums : attn::impl::AttnSplitSumsBase<SplitSums> {
  void runOnOperation() override;

private:
  llvm::SmallSetVector<Value, 2> weightsIn(Value value) const;
  void expandMixtures(ReduceOp reduce);
  bool findAddends(const Product &product, size_t &factor, SmallVectorImpl<Addend> &addends) const;
  Value partOf(const Addend &addend, ArrayRef<Factor> others, ReduceOp reduce, TensorOp tensor);
  void split(TensorOp tensor, ReduceOp reduce);

  llvm::DenseSet<Value> weights; ///< Tensors that hold some.
};
} // namespace

/// The weights that are read in `value`.
llvm::SmallSetVector<Value, 2> SplitSums::weightsIn(Value value) const {
  llvm::SmallSetVector<Value, 2> found;
  anyInSlice(value, [&](Operation *op) {
    if (auto read = dyn_cast<ReadOp>(op); read && weights.contains(read.getTensor()))
      found.insert(read.getTensor());
    return false;
  });
  return found;
}

/// Puts into the terms of a sum what several softmaxes were mixed in before, element by element.
void SplitSums::expandMixtures(ReduceOp reduce) {
  for (bool changed = true; changed;) {
    changed = false;
    for (ReadOp read : llvm::to_vector(reduce.getBody().getOps<ReadOp>())) {
      auto tensor = read.getTensor().getDefiningOp<TensorOp>();
      bool isMixture = tensor && weights.contains(read.getTensor()) && tensor.getBody().getOps<ReduceOp>().empty() &&
                       isInRange(read) && !isReturned(read.getTensor()) &&
                       weightsIn(yielded(tensor.getBody())).size() > 1;
      if (!isMixture)
        continue;
      substituteFormula(read, tensor);
      changed = true;
    }
  }
}

/// Finds the factor that adds the weights of several softmaxes, and what it adds; false where there is none.
bool SplitSums::findAddends(const Product &product, size_t &factor, SmallVectorImpl<Addend> &addends) const {
  SmallVector<size_t> withWeights;
  for (auto [position, each] : llvm::enumerate(product.factors))
    if (!weightsIn(each.value).empty())
      withWeights.push_back(position);
  if (withWeights.size() != 1 || product.factors[withWeights.front()].inverse)
    return false;
  factor = withWeights.front();
  llvm::SmallSetVector<Value, 2> all;
  for (const Term &term : termsOfSum(product.factors[factor].value, product.negative)) {
    llvm::SmallSetVector<Value, 2> found = weightsIn(term.value);
    if (found.size() != 1 || !found.front().getDefiningOp<TensorOp>())
      return false;
    addends.push_back({term, found.front().getDefiningOp<TensorOp>()});
    all.insert(found.front());
  }
  return all.size() > 1;
}

/// The sum of one addend times the other factors, as a tensor before `tensor`; an element of it, times what none of the
/// keys changes, at the place of `reduce`.
Value SplitSums::partOf(const Addend &addend, ArrayRef<Factor> others, ReduceOp reduce, TensorOp tensor) {
  Location location = reduce.getLoc();
  Block &terms = reduce.getBody().front();
  Block::BlockArgListType indices = tensor.getBody().getArguments();
  SmallVector<Factor> inside(others), outside;
  Product product = Product::of(addend.term.value);
  for (const Factor &factor : product.factors) {
    bool isFixed = !factor.indices.contains(terms.getArgument(0)) && weightsIn(factor.value).empty();
    (isFixed ? outside : inside).push_back(factor);
  }
  bool negative = product.negative != addend.term.negative;

  // The part's terms take the place of the sum's while that is copied.
  IRMapping own;
  own.map(indices, indices);
  own.map(terms.getArguments(), terms.getArguments());
  OpBuilder builder(terms.getTerminator());
  terms.getTerminator()->setOperand(0, multiply(inside, false, reduce.getType(), own, builder, location));
  builder.setInsertionPoint(tensor);
  StringRef source = TensorOp(addend.weights).getName();
  std::string name = freshName(tensor->getParentOfType<KernelOp>(), (tensor.getName() + "_" + source).str());
  AttnTensorType type = tensor.getResult().getType().withElement(reduce.getType());
  TensorOp part = tensorOf(reduce.getResult(), ValueRange(indices), name, tensor.getIndices(), type, builder);
  eraseUnused(soleReduction(part).getBody().front());

  builder.setInsertionPoint(reduce);
  Value element = ReadOp::create(builder, location, part.getResult(), ValueRange(indices));
  if (outside.empty() && !negative)
    return element;
  IRMapping around;
  around.map(indices, indices);
  Value factor = multiply(outside, negative, reduce.getType(), around, builder, location);
  return arith::MulFOp::create(builder, location, element, factor);
}

void SplitSums::split(TensorOp tensor, ReduceOp reduce) {
  Product product = Product::of(yielded(reduce.getBody()));
  size_t factor;
  SmallVector<Addend> addends;
  if (!findAddends(product, factor, addends))
    return;
  SmallVector<Factor> others(product.factors);
  others.erase(others.begin() + factor);
  Value total;
  for (const Addend &addend : addends) {
    Value part = partOf(addend, others, reduce, tensor);
    OpBuilder builder(reduce);
    total = total ? arith::AddFOp::create(builder, reduce.getLoc(), total, part).getResult() : part;
  }
  reduce.replaceAllUsesWith(total);
  reduce.erase();
}

/// Of a backward kernel, whose weights are computed again, no sums are split: those of the forward kernel were.
void SplitSums::runOnOperation() {
  KernelOp kernel = getOperation();
  SmallVector<TensorOp> tensors(kernel.getBody().front().getOps<TensorOp>());
  if (llvm::any_of(tensors, [](TensorOp tensor) { return tensor->hasAttr(TensorOp::weightsName); }))
    return;
  weights = weightTensors(kernel);
  for (TensorOp tensor : tensors) {
    ReduceOp reduce = wholeReduction(tensor, ReduceKind::Sum);
    if (!reduce || !sumsWeights(reduce, weights))
      continue;
    expandMixtures(reduce);
    split(tensor, reduce);
  }
}

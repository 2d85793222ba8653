//===- Outline.cpp - Softmaxes and sums over keys become tensors ----------===//
//
//   out[b, m, e] = sum[n](softmax[n](score[b, m, n]) * v[b, n, e]) + bias[e]
//
// becomes
//
//   out_softmax[b, m, n] = softmax[n](score[b, m, n])
//   out_sum[b, m, e]     = sum[n](out_softmax[b, m, n] * v[b, n, e])
//   out[b, m, e]         = out_sum[b, m, e] + bias[e]
//
// so that raising meets each of them as the whole formula of a tensor. The new tensor's indices are the index
// variables that the reduction uses, from the outside in, and for a softmax its keys last.
//
// So do reductions that would be computed again for each element of an index further out, as sums of columns:
//
//   doubly[m, n] = x[m, n] / sum[i](x[i, n])
//
// becomes
//
//   doubly_sum[n] = sum[i](x[i, n])
//   doubly[m, n]  = x[m, n] / doubly_sum[n]
//
// and a sum over heads of what each of them has for a pair: `softmax[n](sum[g](before[h, g] * dot[g, m, n]) + …)`; and
// a row times a matrix inside of a function in another sum: `sum[u](w2[u] * tanh(sum[d](w1[u, d] * x[b, t, d])))`.
//
// Of what is to be differentiated, so does every reduction that is the same for some index of the formula around it,
// and the weight of a pair, without a softmax: its gradient is a sum over that index, which is to be computed once.
//
//===----------------------------------------------------------------------===//

#include "Form.h"
#include "InlineRules.h"
#include "Product.h"
#include "Slice.h"
#include "Statement.h"
#include "Unnormalised.h"
#include "WeightedSum.h"
#include "attn/Analysis/Dependence.h"
#include "attn/Transforms/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace attn;

namespace attn {
#define GEN_PASS_DEF_ATTNOUTLINE
#include "attn/Transforms/Passes.h.inc"
} // namespace attn

/// Moves `reduce` to a tensor before `tensor`, in whose formula it is, and reads it from there.
static void outline(ReduceOp reduce, TensorOp tensor) {
  auto kernel = tensor->getParentOfType<KernelOp>();
  MLIRContext *context = reduce.getContext();

  OpBuilder builder(reduce);
  // What a softmax is evaluated at becomes the key indices of the new tensor; meanwhile constants stand for it.
  SmallVector<Value> at(reduce.getAt()), placeholders;
  for (OpOperand &operand : reduce.getAtMutable()) {
    placeholders.push_back(arith::ConstantOp::create(builder, reduce.getLoc(), builder.getI64IntegerAttr(0)));
    operand.set(placeholders.back());
  }
  SmallVector<BlockArgument> indices = inOrder(dependence(reduce.getResult()));

  SmallVector<Attribute> names;
  SmallVector<SizeAttr> shape;
  SmallVector<Value> subscripts;
  for (BlockArgument index : indices) {
    names.push_back(StringAttr::get(context, indexName(index)));
    shape.push_back(indexSize(index));
    subscripts.push_back(index);
  }
  for (auto [position, subscript] : llvm::enumerate(at)) {
    auto key = dyn_cast<BlockArgument>(subscript);
    names.push_back(key ? builder.getStringAttr(indexName(key)) : reduce.getIndices()[position]);
    shape.push_back(reduce.getSize(position));
    subscripts.push_back(subscript);
  }

  builder.setInsertionPoint(tensor);
  std::string name = freshName(kernel, (tensor.getName() + "_" + stringifyReduceKind(reduce.getKind())).str());
  auto type = AttnTensorType::get(context, shape, reduce.getType());
  SmallVector<Value> variables(indices.begin(), indices.end());
  llvm::append_range(variables, placeholders);
  TensorOp outlined = tensorOf(reduce.getResult(), variables, name, ArrayAttr::get(context, names), type, builder);

  builder.setInsertionPoint(reduce);
  Value element = ReadOp::create(builder, reduce.getLoc(), outlined.getResult(), subscripts);
  reduce.getResult().replaceAllUsesWith(element);
  reduce->erase();
  for (Value placeholder : placeholders)
    placeholder.getDefiningOp()->erase();
}

/// Whether `reduce` is the same for some index of `tensor` that is further out than one for which it changes; and reads
/// a tensor that has as many elements as there are such reductions.
static bool isRepeated(ReduceOp reduce, TensorOp tensor) {
  IndexSet used = dependence(reduce.getResult());
  auto rows = tensor.getBody().getArguments();
  if (reduce == soleReduction(tensor) || !isa<FloatType>(reduce.getType()) || used.empty() ||
      !llvm::all_of(used, [&](BlockArgument index) { return index.getOwner() == &tensor.getBody().front(); }))
    return false;
  unsigned last = 0;
  for (BlockArgument index : used)
    last = std::max(last, index.getArgNumber());
  bool isAgain = llvm::any_of(rows.take_front(last), [&](BlockArgument row) { return !used.contains(row); });
  return isAgain && anyInSlice(reduce.getResult(), [&](Operation *op) {
           auto read = dyn_cast<ReadOp>(op);
           return read && llvm::all_of(used, [&](BlockArgument index) {
                    return llvm::is_contained(read.getSubscripts(), index);
                  });
         });
}

/// Whether `op` is a reduction, or reads a tensor that has one in its formula, or in that of what it reads for each of
/// its elements. Only sums over its last index read such a tensor, if not one alone: what others read is stored.
static bool isReduced(Operation *op) {
  if (isa<ReduceOp>(op))
    return true;
  auto read = dyn_cast<ReadOp>(op);
  auto tensor = read ? read.getTensor().getDefiningOp<TensorOp>() : TensorOp();
  if (!tensor || !(tensor.getResult().hasOneUse() || llvm::all_of(tensor.getResult().getUsers(), sumsOverKeys)))
    return false;
  return llvm::any_of(tensor.getBody().front(), [&](Operation &part) {
    auto source = dyn_cast<ReadOp>(part);
    return source ? readsEachElement(source, tensor) && isReduced(source) : isa<ReduceOp>(part);
  });
}

/// Whether `reduce` is a part of the sink of a softmax or log-sum-exp: plans read a number of each row there.
static bool isOfSink(ReduceOp reduce, TensorOp tensor) {
  return llvm::any_of(tensor.getBody().getOps<ReduceOp>(), [&](ReduceOp softmax) {
    Value sink = softmax.getSink();
    return sink && anyInSlice(sink, [&](Operation *op) { return op == reduce; });
  });
}

/// Whether `reduce` is a sum over heads, inside of a formula: of numbers that another tensor has for each pair, each
/// with a weight that the pair does not change.
static bool isLayer(ReduceOp reduce, TensorOp tensor) {
  bool isWhole = yielded(tensor.getBody()) == reduce.getResult();
  if (reduce.getKind() != ReduceKind::Sum || isWhole || reduce.isConditional() || reduce.getSizes().size() != 1)
    return false;
  IndexSet ofPairs, ofWeights; // around the sum
  for (const Factor &factor : Product::of(yielded(reduce.getBody())).factors) {
    auto read = factor.value.getDefiningOp<ReadOp>();
    if (!read || !llvm::all_of(read.getSubscripts(), llvm::IsaPred<BlockArgument>))
      return false;
    auto source = read.getTensor().getDefiningOp<TensorOp>();
    bool areHere = source && hasReduction(source) && read.getSubscripts().size() > 2;
    for (BlockArgument index : dependence(read.getSubscripts()))
      if (index.getOwner() != &reduce.getBody().front())
        (areHere ? ofPairs : ofWeights).insert(index);
  }
  auto isOfPairs = [&](BlockArgument index) { return ofPairs.contains(index); };
  return ofPairs.size() >= 2 && !ofWeights.empty() && llvm::none_of(ofWeights, isOfPairs);
}

/// Whether `subscript` is an index, or is one added to what is the same for all, as where a part of a dimension begins.
static bool isShiftedIndex(Value subscript) {
  if (isa<BlockArgument>(subscript) || dependence(subscript).empty())
    return true;
  auto sum = subscript.getDefiningOp<arith::AddIOp>();
  return sum && isShiftedIndex(sum.getLhs()) && isShiftedIndex(sum.getRhs()) && dependence(subscript).size() == 1;
}

/// Whether `reduce` is the same for some index of the formula around it, up to the score that it is a part of, and
/// reads tensors at such indices alone.
static bool isShared(ReduceOp reduce, TensorOp tensor) {
  IndexSet used = dependence(reduce.getResult());
  if (reduce == soleReduction(tensor) || !isa<FloatType>(reduce.getType()) || used.empty())
    return false;
  bool isSame = false;
  for (Operation *around = reduce->getParentOp(), *inside = reduce; around != tensor->getParentOp();
       inside = around, around = around->getParentOp()) {
    if (inside->getParentRegion() != &around->getRegion(0)) // a condition
      return false;
    if (auto outer = dyn_cast<ReduceOp>(around); outer && isExponential(outer.getKind()))
      break;
    for (BlockArgument index : around->getRegion(0).getArguments())
      isSame |= !used.contains(index);
  }
  return isSame && !anyInSlice(reduce.getResult(), [](Operation *op) {
           auto read = dyn_cast<ReadOp>(op);
           return read && !llvm::all_of(read.getSubscripts(), isShiftedIndex);
         });
}

/// Whether `reduce` is a row times a matrix, in a function of which another sum adds up all elements: the hidden layer
/// of `sum[u](w2[u] * tanh(sum[d](w1[u, d] * x[b, t, d])))`. Stored it is a product of matrices; and the gradients of
/// row and matrix are one sum each of that function's, which would otherwise be evaluated again for each element of a
/// row. A matrix is one for the rows of a batch: pairs of queries and keys, which are not to be stored, share an index.
static bool isHiddenLayer(ReduceOp reduce, TensorOp) {
  auto outer = dyn_cast<ReduceOp>(reduce->getParentOp());
  if (!outer || outer.getKind() != ReduceKind::Sum || reduce.getKind() != ReduceKind::Sum || outer.isConditional() ||
      reduce.isConditional())
    return false;
  auto isItself = [&](const Factor &factor) { return factor.value == reduce.getResult(); };
  if (llvm::any_of(Product::of(yielded(outer.getBody())).factors, isItself))
    return false;
  IndexSet ofRow;
  bool hasMatrix = false;
  for (const Factor &factor : Product::of(yielded(reduce.getBody())).factors) {
    auto read = factor.value.getDefiningOp<ReadOp>();
    if (!read || !llvm::all_of(read.getSubscripts(), llvm::IsaPred<BlockArgument>))
      return false;
    IndexSet others;
    bool isOfMatrix = false;
    for (BlockArgument index : dependence(factor.value)) {
      isOfMatrix |= index.getOwner() == &outer.getBody().front();
      if (index.getOwner() != &outer.getBody().front() && index.getOwner() != &reduce.getBody().front())
        others.insert(index);
    }
    if (isOfMatrix && !others.empty())
      return false;
    ofRow.insert_range(others);
    hasMatrix |= isOfMatrix;
  }
  return hasMatrix && ofRow.size() > 1;
}

/// Makes a tensor of the factors of a sum over keys that change with the key and a query: the weight of a pair. Its
/// gradient is one sum, over the last index, whatever it is made of.
static void outlineWeight(TensorOp tensor) {
  ReduceOp sum = soleReduction(tensor);
  if (!sum || !sumsScores(sum, tensor, isReduced))
    return;
  Block::BlockArgListType rows = tensor.getBody().getArguments();
  BlockArgument key = sum.getBody().getArgument(0), last = rows.back();
  Product terms = Product::of(yielded(sum.getBody()));
  IndexSet ofValues;
  for (const Factor &factor : terms.factors)
    if (factor.indices.contains(last))
      ofValues.insert(factor.indices.begin(), factor.indices.end());
  auto isOfWeight = [&](const Factor &factor) {
    auto isQuery = [&](BlockArgument row) { return factor.indices.contains(row) && !ofValues.contains(row); };
    return factor.indices.contains(key) && llvm::any_of(rows, isQuery);
  };
  SmallVector<Factor> weight = llvm::filter_to_vector(terms.factors, isOfWeight), others = terms.factors;
  llvm::erase_if(others, isOfWeight);
  if (weight.empty() || (weight.size() == 1 && weight.front().value.getDefiningOp<ReadOp>()))
    return;
  Operation *yield = sum.getBody().front().getTerminator();
  OpBuilder builder(yield);
  IRMapping same;
  for (BlockArgument index : dependence(yield->getOperand(0)))
    same.map(index, index);
  Value product = multiply(weight, false, sum.getType(), same, builder, sum.getLoc());
  SmallVector<BlockArgument> indices = inOrder(dependence(product));
  SmallVector<Axis> axes = llvm::map_to_vector(indices, axisOf);
  TensorOp outlined = define((tensor.getName() + "_weight").str(), product, indices, axes, tensor);
  SmallVector<Value> subscripts(indices.begin(), indices.end());
  Value element = ReadOp::create(builder, sum.getLoc(), outlined.getResult(), subscripts);
  Value rest = multiply(others, terms.negative, sum.getType(), same, builder, sum.getLoc());
  yield->setOperand(0, arith::MulFOp::create(builder, sum.getLoc(), element, rest));
}

/// Makes tensors of the reductions that are `chosen` in the formulas of `kernel`, the innermost first.
static void outlineAll(KernelOp kernel, llvm::function_ref<bool(ReduceOp, TensorOp)> chosen) {
  for (TensorOp tensor : llvm::to_vector(kernel.getBody().front().getOps<TensorOp>())) {
    SmallVector<ReduceOp> found;
    tensor.getBody().walk([&](ReduceOp reduce) {
      if (chosen(reduce, tensor))
        found.push_back(reduce);
    });
    for (ReduceOp reduce : found)
      outline(reduce, tensor);
  }
}

namespace {
struct Outline : attn::impl::AttnOutlineBase<Outline> {
  using AttnOutlineBase::AttnOutlineBase;

  void runOnOperation() override {
    KernelOp kernel = getOperation();
    outlineAll(kernel, [&](ReduceOp reduce, TensorOp tensor) {
      bool isWhole = reduce == soleReduction(tensor) && (isSoftmax(tensor) || isLogSumExp(tensor));
      if (isExponential(reduce.getKind()) && reduce.getSizes().size() == 1)
        return !isWhole;
      // Over several indices only a softmax that is a tensor has a gradient.
      return differentiated && reduce.getKind() == ReduceKind::Softmax &&
             (reduce != wholeReduction(tensor, ReduceKind::Softmax) || softmaxKeys(reduce, tensor).empty());
    });
    llvm::DenseSet<Value> weights = weightTensors(kernel);
    outlineAll(kernel, [&](ReduceOp reduce, TensorOp tensor) {
      bool isOutermost = reduce->getParentOp() == tensor;
      return reduce != soleReduction(tensor) &&
             (sumsWeights(reduce, weights) || (isOutermost && sumsScores(reduce, tensor, isReduced)));
    });
    outlineAll(kernel, isOfSink);
    outlineAll(kernel, isRepeated);
    outlineAll(kernel, isLayer);
    outlineAll(kernel, isHiddenLayer);
    if (!differentiated)
      return;
    outlineAll(kernel, isShared);
    for (TensorOp tensor : llvm::to_vector(kernel.getBody().front().getOps<TensorOp>()))
      outlineWeight(tensor);
  }
};
} // namespace

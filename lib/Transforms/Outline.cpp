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
// variables that the reduction uses, from the outside in, and for a softmax the key last.
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
//===----------------------------------------------------------------------===//

#include "Form.h"
#include "Slice.h"
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
  bool softmax = reduce.getKind() == ReduceKind::Softmax;

  OpBuilder builder(reduce);
  // The element that a softmax is evaluated at becomes the key index of the new tensor; meanwhile a constant stands for
  // it.
  Value at;
  arith::ConstantOp placeholder;
  if (softmax) {
    at = reduce.getAt().front();
    placeholder = arith::ConstantOp::create(builder, reduce.getLoc(), builder.getI64IntegerAttr(0));
    reduce.getAtMutable()[0].set(placeholder);
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
  if (softmax) {
    auto key = dyn_cast<BlockArgument>(at);
    names.push_back(key ? builder.getStringAttr(indexName(key)) : reduce.getIndices()[0]);
    shape.push_back(reduce.getSize(0));
    subscripts.push_back(at);
  }

  builder.setInsertionPoint(tensor);
  std::string name = freshName(kernel, (tensor.getName() + "_" + stringifyReduceKind(reduce.getKind())).str());
  auto type = AttnTensorType::get(context, shape, reduce.getType());
  SmallVector<Value> variables(indices.begin(), indices.end());
  if (softmax)
    variables.push_back(placeholder);
  TensorOp outlined = tensorOf(reduce.getResult(), variables, name, ArrayAttr::get(context, names), type, builder);

  builder.setInsertionPoint(reduce);
  Value element = ReadOp::create(builder, reduce.getLoc(), outlined.getResult(), subscripts);
  reduce.getResult().replaceAllUsesWith(element);
  reduce->erase();
  if (softmax)
    placeholder->erase();
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

namespace {
struct Outline : attn::impl::AttnOutlineBase<Outline> {
  void runOnOperation() override {
    KernelOp kernel = getOperation();
    // Innermost reductions first; what is outlined of a tensor stands before it.
    for (TensorOp tensor : llvm::to_vector(kernel.getBody().front().getOps<TensorOp>())) {
      SmallVector<ReduceOp> exponential;
      tensor.getBody().walk([&](ReduceOp reduce) {
        bool alone = reduce.getSizes().size() == 1 &&
                     !(reduce == soleReduction(tensor) && (isSoftmax(tensor) || isLogSumExp(tensor)));
        if (alone && isExponential(reduce.getKind()))
          exponential.push_back(reduce);
      });
      for (ReduceOp reduce : exponential)
        outline(reduce, tensor);
    }
    llvm::DenseSet<Value> weights = weightTensors(kernel);
    for (TensorOp tensor : llvm::to_vector(kernel.getBody().front().getOps<TensorOp>())) {
      SmallVector<ReduceOp> sums;
      tensor.getBody().walk([&](ReduceOp reduce) {
        if (reduce != soleReduction(tensor) && sumsWeights(reduce, weights))
          sums.push_back(reduce);
      });
      for (ReduceOp reduce : sums)
        outline(reduce, tensor);
    }
    for (TensorOp tensor : llvm::to_vector(kernel.getBody().front().getOps<TensorOp>())) {
      SmallVector<ReduceOp> repeated;
      tensor.getBody().walk([&](ReduceOp reduce) {
        if (isRepeated(reduce, tensor))
          repeated.push_back(reduce);
      });
      for (ReduceOp reduce : repeated)
        outline(reduce, tensor);
    }
  }
};
} // namespace

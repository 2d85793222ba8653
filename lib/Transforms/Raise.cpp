//===- Raise.cpp - Recognises score, mask, softmax and weighted sum -------===//
//
//   weight[b, m, n] = softmax[n](x[b, m, n] where n < valid[b], sink = s[m])
//   lse[b, m]       = logsumexp[n](x[b, m, n] where n < valid[b], sink = s[m])
//   out[b, m, e]    = sum[n](weight[b, m, n] * v[b, n, e] where n <= m)
//
// becomes
//
//   score weight_score[b, m, n] = x[b, m, n]
//   mask weight_mask[b, m, n]   = n < valid[b]
//   tensor weight_sink[b, m]    = s[m]
//   weight, lse                 = softmax(weight_score where weight_mask sink weight_sink)
//   weighted_sum out[b, m, e]   = Σ_n weight[b, m, n] · v[b, n, e] where n <= m
//
// A score's last index is the key. Where the source tensor has it elsewhere (weight[b, n, m]), its readers read the
// softmax with permuted subscripts, and the tensor itself remains only where it is returned.
//
//===----------------------------------------------------------------------===//

#include "Form.h"
#include "Slice.h"
#include "WeightedSum.h"
#include "attn/Analysis/Dependence.h"
#include "attn/Analysis/Scan.h"
#include "attn/Transforms/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace attn;

namespace attn {
#define GEN_PASS_DEF_ATTNRAISE
#include "attn/Transforms/Passes.h.inc"
} // namespace attn

namespace {
/// A softmax's operands, made from a tensor that is a softmax or a log-sum-exp as a whole.
struct Parts {
  ScoreOp score;
  MaskOp mask;   // null where there is no condition
  TensorOp sink; // null where there is none

  void erase() {
    score.erase();
    if (mask)
      mask.erase();
    if (sink)
      sink.erase();
  }
};
} // namespace

/// Makes score, mask and sink before `tensor`, whose formula is `reduce`. `rows` are its indices but the key.
static Parts makeParts(TensorOp tensor, ReduceOp reduce, ArrayRef<BlockArgument> rows) {
  MLIRContext *context = tensor.getContext();
  auto kernel = tensor->getParentOfType<KernelOp>();
  OpBuilder builder(tensor);
  SmallVector<Attribute> rowNames;
  SmallVector<SizeAttr> rowShape;
  for (BlockArgument row : rows) {
    rowNames.push_back(StringAttr::get(context, indexName(row)));
    rowShape.push_back(indexSize(row));
  }
  SmallVector<Attribute> names(rowNames);
  SmallVector<SizeAttr> shape(rowShape);
  StringRef key = reduce.getAt().empty() ? indexName(reduce.getBody().getArgument(0))
                                         : indexName(cast<BlockArgument>(reduce.getAt().front()));
  names.push_back(builder.getStringAttr(key));
  shape.push_back(reduce.getSize(0));
  auto indices = ArrayAttr::get(context, names);
  auto type = AttnTensorType::get(context, shape, reduce.getType());
  auto name = [&](StringRef suffix) { return freshName(kernel, (tensor.getName() + suffix).str()); };
  auto withKey = [&](Region &region) {
    SmallVector<Value> all(rows.begin(), rows.end());
    all.push_back(region.getArgument(0));
    return all;
  };

  Parts parts;
  Region &body = reduce.getBody();
  parts.score = ScoreOp::create(builder, reduce.getLoc(), name("_score"), indices, type);
  fillFormula(cast<DefinitionOpInterface>(parts.score.getOperation()), yielded(body), withKey(body));
  if (reduce.isConditional()) {
    Region &condition = reduce.getWhere();
    parts.mask =
        MaskOp::create(builder, reduce.getLoc(), name("_mask"), indices, type.withElement(builder.getI1Type()));
    fillFormula(cast<DefinitionOpInterface>(parts.mask.getOperation()), yielded(condition), withKey(condition));
  }
  if (reduce.getSink()) {
    parts.sink = TensorOp::create(builder, reduce.getLoc(), name("_sink"), ArrayAttr::get(context, rowNames),
                                  AttnTensorType::get(context, rowShape, reduce.getType()));
    fillFormula(cast<DefinitionOpInterface>(parts.sink.getOperation()), reduce.getSink(), rows);
  }
  return parts;
}

/// The softmax of `parts`: one that is there already, whose copies of the parts are then erased, or a new one before
/// `tensor`.
static SoftmaxOp softmaxOf(Parts parts, TensorOp tensor) {
  for (SoftmaxOp other : tensor->getParentOfType<KernelOp>().getBody().front().getOps<SoftmaxOp>()) {
    auto definition = [](Value value) { return value ? value.getDefiningOp() : nullptr; };
    if (sameFormula(definition(other.getScore()), parts.score) &&
        sameFormula(definition(other.getMask()), parts.mask) && sameFormula(definition(other.getSink()), parts.sink)) {
      parts.erase();
      return other;
    }
  }
  OpBuilder builder(tensor);
  Value mask = parts.mask ? parts.mask.getResult() : Value();
  Value sink = parts.sink ? parts.sink.getResult() : Value();
  return SoftmaxOp::create(builder, tensor.getLoc(), builder.getStringAttr(""), builder.getStringAttr(""),
                           parts.score.getResult(), mask, sink);
}

/// Makes all readers of `tensor` read `result` instead, whose dimension i is dimension `order[i]` of the tensor. If the
/// tensor is returned, `direct` says whether `result` can be returned in its place; otherwise the tensor stays as a
/// copy.
static void replaceTensor(TensorOp tensor, Value result, ArrayRef<unsigned> order, bool direct) {
  auto permute = [&](auto values) {
    return llvm::map_to_vector(order, [&](unsigned index) { return Value(values[index]); });
  };
  OpBuilder builder(tensor);
  for (OpOperand &use : llvm::make_early_inc_range(tensor.getResult().getUses())) {
    auto read = dyn_cast<ReadOp>(use.getOwner());
    if (!read)
      continue;
    builder.setInsertionPoint(read);
    Value element = ReadOp::create(builder, read.getLoc(), result, permute(read.getSubscripts()));
    read.getResult().replaceAllUsesWith(element);
    read.erase();
  }
  if (direct) {
    tensor.getResult().replaceAllUsesWith(result);
  } else if (!tensor.getResult().use_empty()) {
    builder.setInsertionPoint(tensor);
    auto copy =
        TensorOp::create(builder, tensor.getLoc(), tensor.getName(), tensor.getIndices(), tensor.getResult().getType());
    Block &body = copy.getBody().front();
    builder.setInsertionPointToEnd(&body);
    Value element = ReadOp::create(builder, tensor.getLoc(), result, permute(body.getArguments()));
    YieldOp::create(builder, tensor.getLoc(), element);
    tensor.getResult().replaceAllUsesWith(copy.getResult());
  }
  tensor.erase();
}

/// Raises a tensor that is a softmax as a whole.
static void raiseSoftmax(TensorOp tensor) {
  ReduceOp reduce = soleReduction(tensor);
  auto at = cast<BlockArgument>(reduce.getAt().front());
  SmallVector<BlockArgument> rows;
  SmallVector<unsigned> order;
  for (BlockArgument index : tensor.getBody().getArguments())
    if (index != at) {
      rows.push_back(index);
      order.push_back(index.getArgNumber());
    }
  order.push_back(at.getArgNumber());
  bool permuted = !llvm::is_sorted(order);
  SoftmaxOp softmax = softmaxOf(makeParts(tensor, reduce, rows), tensor);
  bool direct = !permuted && softmax.getName().empty();
  if (direct)
    softmax.setName(tensor.getName());
  replaceTensor(tensor, softmax.getWeight(), order, direct);
}

/// Raises a tensor that is a log-sum-exp as a whole.
static void raiseLogSumExp(TensorOp tensor) {
  Block::BlockArgListType arguments = tensor.getBody().getArguments();
  SmallVector<BlockArgument> rows(arguments.begin(), arguments.end());
  SoftmaxOp softmax = softmaxOf(makeParts(tensor, soleReduction(tensor), rows), tensor);
  bool direct = softmax.getLogsumexpName().empty();
  if (direct)
    softmax.setLogsumexpName(tensor.getName());
  replaceTensor(tensor, softmax.getLogsumexp(), llvm::to_vector(llvm::seq<unsigned>(rows.size())), direct);
}

namespace {
struct Raise : attn::impl::AttnRaiseBase<Raise> {
  void runOnOperation() override {
    KernelOp kernel = getOperation();
    for (TensorOp tensor : llvm::to_vector(kernel.getBody().front().getOps<TensorOp>())) {
      if (isSoftmax(tensor))
        raiseSoftmax(tensor);
      else if (isLogSumExp(tensor))
        raiseLogSumExp(tensor);
    }
    llvm::DenseSet<Value> weights = weightTensors(kernel);
    // Weights that are returned are stored. Where no mask leaves any out, what sums them is a product of matrices: that
    // is quicker than to compute them again.
    for (SoftmaxOp softmax : kernel.getBody().front().getOps<SoftmaxOp>())
      if (!softmax.getMask() && isReturned(softmax.getWeight()))
        weights.erase(softmax.getWeight());
    for (TensorOp tensor : llvm::to_vector(kernel.getBody().front().getOps<TensorOp>()))
      if (!Scan::of(tensor))
        raiseWeightedSum(tensor, weights);
  }
};
} // namespace

//===- SoftmaxGradient.cpp - Softmaxes from their log-sum-exp -------------===//

#include "SoftmaxGradient.h"
#include "Form.h"
#include "LogSumExp.h"
#include "Scores.h"
#include "Slice.h"
#include "Statement.h"
#include "Unnormalised.h"
#include "attn/Analysis/Dependence.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace attn;

static void eraseParts(SoftmaxGroup &group) {
  for (TensorOp part : {group.score, group.mask, group.sink})
    if (part)
      part.erase();
}

/// Puts into a score the formula of what it is some elements of, each once: of one of several heads in a tensor, or of
/// keys that are counted in one index. Then gradients are of the elements that are read.
static void takeInParts(TensorOp score) {
  for (ReadOp read : llvm::to_vector(score.getBody().getOps<ReadOp>())) {
    auto source = read.getTensor().getDefiningOp<TensorOp>();
    bool isPart = !llvm::all_of(read.getSubscripts(), llvm::IsaPred<BlockArgument>);
    bool isOnceEach = dependence(read.getSubscripts()).size() == score.getBody().getNumArguments();
    if (source && isPart && isOnceEach && isInRange(read))
      substituteFormula(read, source);
  }
}

/// Score, mask and sink of a softmax or log-sum-exp for each of `rows`, before `tensor`.
static SoftmaxGroup makeParts(TensorOp tensor, ReduceOp reduce, ArrayRef<BlockArgument> rows) {
  SmallVector<Axis> rowAxes = llvm::map_to_vector(rows, axisOf), axes(rowAxes);
  bool isSoftmax = reduce.getKind() == ReduceKind::Softmax;
  for (BlockArgument key : reduce.getBody().getArguments())
    axes.push_back(axisOf(isSoftmax ? cast<BlockArgument>(reduce.getAt()[key.getArgNumber()]) : key));
  StringRef name = tensor.getName();
  auto inside = [&](Region &region, StringRef suffix) {
    SmallVector<BlockArgument> indices(rows);
    llvm::append_range(indices, region.getArguments());
    return define((name + suffix).str(), yielded(region), indices, axes, tensor);
  };
  SoftmaxGroup group;
  group.source = name.str();
  group.rows = rows.size();
  if (reduce.isConditional())
    group.mask = inside(reduce.getWhere(), "_mask");
  if (Value sink = reduce.getSink())
    group.sink = define((name + "_sink").str(), sink, rows, rowAxes, tensor);
  group.score = inside(reduce.getBody(), "_score"); // last: its gradient is needed for the sink's
  takeInParts(group.score);
  return group;
}

/// The weights of a new group, before `tensor`.
static void defineWeight(SoftmaxGroup &group, TensorOp tensor, const GradientFacts &facts) {
  OpBuilder builder(tensor);
  Location location = tensor.getLoc();
  AttnTensorType type = group.score.getResult().getType();
  auto kernel = tensor->getParentOfType<KernelOp>();
  std::string saved = (tensor.getName() + "_logsumexp").str();
  group.saved = freshName(kernel, facts.statements.contains(saved) ? saved + "_saved" : saved);
  auto rowType =
      AttnTensorType::get(builder.getContext(), type.getShape().take_front(group.rows), type.getElementType());
  group.logSumExp = kernel.getBody().front().addArgument(rowType, location);
  SmallVector<Axis> axes = llvm::map_to_vector(group.score.getBody().getArguments(), axisOf);
  Statement statement{(tensor.getName() + "_again").str(), axes, {}, type.getElementType(), nullptr};
  statement.term = [&](OpBuilder &builder, Indices indices) -> Value {
    Value score = ReadOp::create(builder, location, group.score.getResult(), indices);
    Value sum = ReadOp::create(builder, location, group.logSumExp, indices.take_front(group.rows));
    return weightOf(score, sum, builder, location);
  };
  if (group.mask)
    statement.condition = [&](OpBuilder &builder, Indices indices) -> Value {
      return ReadOp::create(builder, location, group.mask.getResult(), indices);
    };
  group.weight = statement.write(kernel, builder, location);
  if (group.hasPairs())
    group.weight->setAttr(TensorOp::weightsName, builder.getUnitAttr());
}

/// The group with these parts, which is made before `tensor` if there is none.
static SoftmaxGroup &groupOf(SoftmaxGroup parts, TensorOp tensor, SmallVectorImpl<SoftmaxGroup> &groups,
                             const GradientFacts &facts) {
  for (SoftmaxGroup &other : groups)
    if (other.rows == parts.rows && sameFormula(other.score, parts.score) && sameFormula(other.mask, parts.mask) &&
        sameFormula(other.sink, parts.sink)) {
      eraseParts(parts);
      return other;
    }
  defineWeight(parts, tensor, facts);
  groups.push_back(parts);
  return groups.back();
}

/// Makes `tensor`, the softmax of a group, read the group's weights at `indices`, the last of which is a key. So does
/// what reads it, if that are sums over the key: then nothing has to be stored in the order of `tensor`.
static void readWeights(TensorOp tensor, ArrayRef<BlockArgument> indices, SoftmaxGroup &group) {
  ReduceOp reduce = wholeReduction(tensor, ReduceKind::Softmax);
  auto replace = [&](Operation *op, llvm::function_ref<Value(BlockArgument)> at) {
    OpBuilder builder(op);
    SmallVector<Value> subscripts = llvm::map_to_vector(indices, at);
    op->getResult(0).replaceAllUsesWith(
        ReadOp::create(builder, op->getLoc(), group.weight.getResult(), subscripts).getResult());
    op->erase();
  };
  replace(reduce, [](BlockArgument index) { return index; });
  SmallVector<Operation *> users(tensor.getResult().getUsers());
  auto isOverKey = [&](Operation *user) { return sumsOver(indices.back().getArgNumber(), user); };
  if (llvm::all_of(users, isOverKey))
    for (Operation *user : users)
      replace(user, [&](BlockArgument index) { return cast<ReadOp>(user).getSubscripts()[index.getArgNumber()]; });
}

SmallVector<SoftmaxGroup> attn::rewriteSoftmaxes(KernelOp kernel, GradientFacts &facts) {
  SmallVector<SoftmaxGroup> groups;
  for (TensorOp tensor : llvm::to_vector(kernel.getBody().front().getOps<TensorOp>())) {
    SmallVector<BlockArgument> rows(tensor.getBody().getArguments());
    if (ReduceOp sum = wholeReduction(tensor, ReduceKind::LogSumExp)) {
      SoftmaxGroup &group = groupOf(makeParts(tensor, sum, rows), tensor, groups, facts);
      tensor.getResult().replaceAllUsesWith(group.logSumExp);
      tensor.erase();
      continue;
    }
    ReduceOp softmax = wholeReduction(tensor, ReduceKind::Softmax);
    SmallVector<BlockArgument> keys = softmax ? softmaxKeys(softmax, tensor) : SmallVector<BlockArgument>();
    if (keys.empty())
      continue;
    llvm::erase_if(rows, [&](BlockArgument index) { return llvm::is_contained(keys, index); });
    SmallVector<BlockArgument> indices(rows);
    llvm::append_range(indices, keys);
    SoftmaxGroup &group = groupOf(makeParts(tensor, softmax, rows), tensor, groups, facts);
    if (!llvm::equal(indices, tensor.getBody().getArguments())) {
      readWeights(tensor, indices, group);
      continue;
    }
    group.weight.setName(tensor.getName());
    tensor.getResult().replaceAllUsesWith(group.weight.getResult());
    tensor.erase();
  }
  for (SoftmaxGroup &group : groups) {
    if (group.hasPairs())
      for (TensorOp part : {group.score, group.weight})
        facts.pairs.insert(part.getResult());
    if (group.mask)
      facts.masks[group.weight.getResult()] = group.mask.getResult();
  }
  return groups;
}

SoftmaxGradients attn::gradientsOf(SoftmaxGroup &group, Value weight, Value logSumExp, Value dot, GradientFacts &facts,
                                   OpBuilder &builder) {
  Location location = group.weight->getLoc();
  auto kernel = group.weight->getParentOfType<KernelOp>();
  TensorOp weightTensor = group.weight;
  std::string name = "grad_" + group.score.getName().str();
  Type type = weightTensor.getResult().getType().getElementType();
  SmallVector<Axis> axes = llvm::map_to_vector(weightTensor.getBody().getArguments(), axisOf);
  SmallVector<Axis> rows(axes.begin(), axes.begin() + group.rows);
  auto read = [&](OpBuilder &builder, Value tensor, Indices indices) -> Value {
    return ReadOp::create(builder, location, tensor, indices);
  };
  Value delta = dot;
  if (dot && logSumExp) {
    Statement difference{name + "_delta", rows, {}, type, nullptr};
    difference.term = [&](OpBuilder &builder, Indices indices) -> Value {
      return arith::SubFOp::create(builder, location, read(builder, dot, indices), read(builder, logSumExp, indices));
    };
    delta = difference.write(kernel, builder, location).getResult();
  }
  // score' = weight · (weight' − delta), or weight · lse' where nobody reads the weights.
  Statement score{name, axes, {}, type, nullptr};
  score.term = [&](OpBuilder &builder, Indices indices) -> Value {
    Value share = read(builder, weightTensor.getResult(), indices);
    Value factor = read(builder, weight ? delta : logSumExp, indices.take_front(group.rows));
    if (weight)
      factor = arith::SubFOp::create(builder, location, read(builder, weight, indices), factor);
    return arith::MulFOp::create(builder, location, share, factor);
  };
  SoftmaxGradients gradients;
  gradients.score = score.write(kernel, builder, location).getResult();
  if (group.hasPairs())
    facts.pairs.insert(gradients.score);
  if (group.mask)
    facts.masks[gradients.score] = facts.masks.lookup(weightTensor.getResult());
  if (!group.sink)
    return gradients;
  TensorOp sinkTensor = group.sink;
  Statement sink{"grad_" + sinkTensor.getName().str(), rows, {}, type, nullptr};
  sink.term = [&](OpBuilder &builder, Indices indices) -> Value {
    Value sum = finiteLogSumExp(read(builder, group.logSumExp, indices), builder, location);
    Value exponent = arith::SubFOp::create(builder, location, read(builder, sinkTensor.getResult(), indices), sum);
    Value share = math::ExpOp::create(builder, location, exponent);
    Value factor = read(builder, weight ? delta : logSumExp, indices);
    if (weight)
      factor = arith::NegFOp::create(builder, location, factor);
    return arith::MulFOp::create(builder, location, share, factor);
  };
  gradients.sink = sink.write(kernel, builder, location).getResult();
  return gradients;
}

//===- Form.cpp - The forms of attn.tensors that raising looks for --------===//

#include "Form.h"

#include "attn/Analysis/Dependence.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/ADT/Twine.h"

using namespace mlir;
using namespace attn;

ReduceOp attn::soleReduction(TensorOp tensor) {
  auto yield = cast<YieldOp>(tensor.getBody().front().getTerminator());
  auto reduce = yield.getValues().front().getDefiningOp<ReduceOp>();
  return reduce && reduce.getSizes().size() == 1 ? reduce : ReduceOp();
}

/// The sole reduction, if it is of `kind` and the tensor is stored in the type it is computed in.
static ReduceOp exactReduction(TensorOp tensor, ReduceKind kind) {
  ReduceOp reduce = soleReduction(tensor);
  if (!reduce || reduce.getKind() != kind || tensor.getResult().getType().getElementType() != reduce.getType())
    return {};
  return reduce;
}

bool attn::isSoftmax(TensorOp tensor) {
  ReduceOp reduce = exactReduction(tensor, ReduceKind::Softmax);
  if (!reduce)
    return false;
  auto at = dyn_cast<BlockArgument>(reduce.getAt().front());
  if (!at || at.getOwner() != &tensor.getBody().front() || indexSize(at) != reduce.getSize(0))
    return false;
  // Nothing but `at` may name the row's own element.
  SmallVector<Value> used(cast<YieldOp>(reduce.getBody().front().getTerminator()).getValues());
  if (reduce.isConditional())
    llvm::append_range(used, cast<YieldOp>(reduce.getWhere().front().getTerminator()).getValues());
  if (reduce.getSink())
    used.push_back(reduce.getSink());
  return !dependence(used).contains(at);
}

bool attn::isLogSumExp(TensorOp tensor) { return static_cast<bool>(exactReduction(tensor, ReduceKind::LogSumExp)); }

llvm::DenseSet<Value> attn::weightTensors(KernelOp kernel) {
  llvm::DenseSet<Value> weights;
  for (Operation &op : kernel.getBody().front()) {
    if (auto softmax = dyn_cast<SoftmaxOp>(op))
      weights.insert(softmax.getWeight());
    auto tensor = dyn_cast<TensorOp>(op);
    if (!tensor)
      continue;
    bool elementwise = llvm::any_of(tensor.getBody().front().getOps<ReadOp>(),
                                    [&](ReadOp read) { return weights.contains(read.getTensor()); });
    if (elementwise || isSoftmax(tensor) || tensor->hasAttr(TensorOp::weightsName))
      weights.insert(tensor.getResult());
  }
  return weights;
}

bool attn::sumsWeights(ReduceOp reduce, const llvm::DenseSet<Value> &weights) {
  if (reduce.getKind() != ReduceKind::Sum || reduce.getSizes().size() != 1)
    return false;
  BlockArgument key = reduce.getBody().getArgument(0);
  WalkResult walk = reduce.getBody().walk([&](ReadOp read) {
    bool found = weights.contains(read.getTensor()) && dependence(read.getSubscripts()).contains(key);
    return found ? WalkResult::interrupt() : WalkResult::advance();
  });
  return walk.wasInterrupted();
}

std::string attn::freshName(KernelOp kernel, StringRef base) {
  llvm::StringSet<> taken;
  for (StringRef name : kernel.getParameterNames().getAsValueRange<StringAttr>())
    taken.insert(name);
  for (Operation &op : kernel.getBody().front()) {
    if (auto definition = dyn_cast<DefinitionOpInterface>(op))
      taken.insert(definition.getName());
    if (auto softmax = dyn_cast<SoftmaxOp>(op)) {
      taken.insert(softmax.getName());
      taken.insert(softmax.getLogsumexpName());
    }
  }
  std::string name = base.str();
  for (int number = 1; taken.contains(name); ++number)
    name = (base + "_" + llvm::Twine(number)).str();
  return name;
}

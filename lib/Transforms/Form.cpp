//===- Form.cpp - The forms of attn.tensors that raising looks for --------===//

#include "Form.h"

#include "attn/Analysis/Dependence.h"
#include "mlir/IR/OperationSupport.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/ADT/Twine.h"

using namespace mlir;
using namespace attn;

bool attn::isBackward(KernelOp kernel) { return kernel.getSymName().ends_with(KernelOp::backwardSuffix); }

TensorOp attn::tensorNamed(KernelOp kernel, StringRef name) {
  auto tensors = kernel.getBody().front().getOps<TensorOp>();
  auto found = llvm::find_if(tensors, [&](TensorOp tensor) { return tensor.getName() == name; });
  return found == tensors.end() ? TensorOp() : *found;
}

ReduceOp attn::soleReduction(TensorOp tensor) {
  auto reduce = yielded(tensor.getBody()).getDefiningOp<ReduceOp>();
  return reduce && reduce.getSizes().size() == 1 ? reduce : ReduceOp();
}

ReduceOp attn::wholeReduction(TensorOp tensor, ReduceKind kind) {
  auto reduce = yielded(tensor.getBody()).getDefiningOp<ReduceOp>();
  bool is = reduce && reduce.getKind() == kind && tensor.getResult().getType().getElementType() == reduce.getType();
  return is ? reduce : ReduceOp();
}

SmallVector<BlockArgument> attn::softmaxKeys(ReduceOp softmax, TensorOp tensor) {
  SmallVector<Value> used(softmax.getBody().front().getTerminator()->getOperands());
  if (softmax.isConditional())
    used.push_back(yielded(softmax.getWhere()));
  if (softmax.getSink())
    used.push_back(softmax.getSink());
  IndexSet others = dependence(used);
  SmallVector<BlockArgument> keys;
  for (auto [at, size] : llvm::zip_equal(softmax.getAt(), softmax.getSizes())) {
    auto key = dyn_cast<BlockArgument>(at);
    if (!key || key.getOwner() != &tensor.getBody().front() || indexSize(key) != size || others.contains(key) ||
        llvm::is_contained(keys, key))
      return {};
    keys.push_back(key);
  }
  return keys;
}

bool attn::isSoftmax(TensorOp tensor) {
  ReduceOp reduce = wholeReduction(tensor, ReduceKind::Softmax);
  return reduce && softmaxKeys(reduce, tensor).size() == 1;
}

bool attn::isLogSumExp(TensorOp tensor) {
  ReduceOp reduce = wholeReduction(tensor, ReduceKind::LogSumExp);
  return reduce && reduce.getSizes().size() == 1;
}

bool attn::sameFormula(Operation *lhs, Operation *rhs) {
  if (!lhs || !rhs)
    return lhs == rhs;
  if (lhs->getResultTypes() != rhs->getResultTypes())
    return false;
  return OperationEquivalence::isRegionEquivalentTo(&lhs->getRegion(0), &rhs->getRegion(0),
                                                    OperationEquivalence::IgnoreLocations);
}

llvm::DenseSet<Value> attn::weightTensors(KernelOp kernel) {
  llvm::DenseSet<Value> weights;
  for (Operation &op : kernel.getBody().front()) {
    if (auto softmax = dyn_cast<SoftmaxOp>(op))
      weights.insert(softmax.getWeight());
    auto tensor = dyn_cast<TensorOp>(op);
    if (!tensor || isStoredWithPairs(tensor))
      continue;
    bool elementwise = llvm::any_of(tensor.getBody().front().getOps<ReadOp>(),
                                    [&](ReadOp read) { return weights.contains(read.getTensor()); });
    if (elementwise || isSoftmax(tensor) || tensor->hasAttr(TensorOp::weightsName))
      weights.insert(tensor.getResult());
  }
  return weights;
}

bool attn::isStoredWithPairs(TensorOp tensor) { return isPairs(tensor.getResult()) || readsPairs(tensor); }

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

void attn::eraseUnread(KernelOp kernel) {
  SmallVector<TensorOp> tensors(kernel.getBody().front().getOps<TensorOp>());
  for (TensorOp tensor : llvm::reverse(tensors))
    if (tensor.getResult().use_empty())
      tensor.erase();
}

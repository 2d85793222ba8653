//===- StorePairs.cpp - Pairs that several sums read are stored -----------===//
//
//   weight[m, n]  = select(n <= m, exp(score[m, n] - lse[m]), 0.0)          attn.weights
//   grad_v[n, e]  = sum[m](weight[m, n] * grad_out[m, e] where n <= m)
//   grad_s[m, n]  = weight[m, n] * (grad_weight[m, n] - dot[m])
//   grad_q[m, d]  = sum[n](grad_s[m, n] / c * k[n, d] where n <= m)
//   grad_k[n, d]  = sum[m](grad_s[m, n] / c * q[m, d] where n <= m)
//
// becomes
//
//   weight[m, n]  = …                                                       attn.pairs
//   grad_v[n, e]  = sum[m](weight[m, n] * grad_out[m, e])
//   grad_s[m, n]  = select(n <= m, …, 0.0)                                  attn.pairs
//   grad_q[m, d]  = sum[n](grad_s[m, n] * k[n, d]) / c
//   grad_k[n, d]  = sum[m](grad_s[m, n] * q[m, d]) / c
//
// Tensors with an element for each pair are stored, a block of rows at a time (attn/Analysis/PairBlocks.h), where two
// statements would compute them otherwise. The sums become products of matrices: a factor for each pair, which is
// stored, others, and what does not change with the sum's index outside; conditions go, since what is stored is 0 where
// they are false.
//
// A sum that pairs are made of by way of another statement is computed before, of scores of its own (EarlySums.cpp).
//
// A total that runs along the keys of such pairs (attn-scan) is one of them, and needs the scores of a row before there
// are weights: they are stored in blocks where one sum reads them, too.
//
//===----------------------------------------------------------------------===//

#include "Form.h"
#include "PairTensors.h"
#include "Slice.h"
#include "Unnormalised.h"
#include "attn/Analysis/Cost.h"
#include "attn/Analysis/Dependence.h"
#include "attn/Analysis/PairBlocks.h"
#include "attn/Analysis/PlacedSum.h"
#include "attn/Analysis/Scan.h"
#include "attn/Transforms/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace attn;

namespace attn {
#define GEN_PASS_DEF_ATTNSTOREPAIRS
#include "attn/Transforms/Passes.h.inc"
} // namespace attn

namespace {
struct StorePairs : attn::impl::AttnStorePairsBase<StorePairs> {
  void runOnOperation() override;
};
} // namespace

/// Whether `tensor` may be one of the pairs from which others are found.
static bool isOrigin(TensorOp tensor) {
  if (isPairs(tensor.getResult()) || !isa<FloatType>(tensor.getResult().getType().getElementType()))
    return false;
  return tensor->hasAttr(TensorOp::weightsName) || isSummedBothWays(tensor) || Scan::of(tensor);
}

/// What cannot be computed in blocks is left as it was.
void StorePairs::runOnOperation() {
  KernelOp kernel = getOperation();
  if (kernel->hasAttr(KernelOp::wholeName))
    return;
  SmallVector<std::string> names; // softmaxes first
  for (bool ofSoftmax : {true, false})
    for (TensorOp tensor : kernel.getBody().front().getOps<TensorOp>())
      if (tensor->hasAttr(TensorOp::weightsName) == ofSoftmax)
        names.push_back(tensor.getName().str());
  for (StringRef name : names) {
    TensorOp tensor = tensorNamed(kernel, name);
    if (!tensor || !isOrigin(tensor))
      continue;
    for (bool early : {false, true}) {
      mlir::OwningOpRef<KernelOp> changed = kernel.clone();
      PairTensors(tensorNamed(*changed, name)).store(early);
      eraseUnread(*changed);
      if (!arePairsInBlocks(*changed))
        continue;
      kernel.getBody().takeBody(changed->getBody());
      break;
    }
  }
}

/// The statement whose formula `op` is in.
static TensorOp statementOf(Operation *op) {
  auto tensor = dyn_cast<TensorOp>(op);
  return tensor ? tensor : op->getParentOfType<TensorOp>();
}

/// Whether `tensor` is no more than a formula of elements: what reads it can have that in its place.
static bool isPointwise(TensorOp tensor) {
  return tensor.getBody().getOps<ReduceOp>().empty() && !isReturned(tensor.getResult());
}

/// Whether `read` reads a tensor at the key of `statement`.
static bool readsAtKey(ReadOp read, TensorOp statement) {
  Block::BlockArgListType indices = statement.getBody().getArguments();
  return !read.getSubscripts().empty() && indexAlong(read.getSubscripts().back(), statement) == indices.back();
}

/// What has the shape of the weights, and reads one of the pairs at its own key or is read so.
void PairTensors::collect() {
  auto isCandidate = [&](Value tensor) {
    TensorOp definition = definitionOf(tensor);
    return definition && !compared.contains(tensor) && !isReturned(tensor) && !PlacedSum::of(definition) &&
           definition.getResult().getType() == weights.getResult().getType();
  };
  if (isCandidate(weights.getResult()))
    tensors.insert(weights.getResult());
  for (size_t before = 0; before != tensors.size();) {
    before = tensors.size();
    for (TensorOp tensor : weights->getBlock()->getOps<TensorOp>()) {
      if (!isCandidate(tensor.getResult()))
        continue;
      tensor.getBody().walk([&](ReadOp read) {
        if (!readsAtKey(read, tensor) || !isCandidate(read.getTensor()))
          return;
        if (contains(read.getTensor()))
          tensors.insert(tensor.getResult());
        else if (contains(tensor.getResult()))
          tensors.insert(read.getTensor());
      });
    }
  }
}

bool PairTensors::readsPairs(Operation *op) {
  return op
      ->walk([&](ReadOp read) { return contains(read.getTensor()) ? WalkResult::interrupt() : WalkResult::advance(); })
      .wasInterrupted();
}

/// Whether `tensor` reads pairs or what is summed of them.
bool PairTensors::readsBlocks(TensorOp tensor) {
  return llvm::any_of(tensor.getBody().getOps<ReadOp>(), [&](ReadOp read) {
    TensorOp definition = definitionOf(read.getTensor());
    return contains(read.getTensor()) || (definition && !isPointwise(definition) && readsPairs(definition));
  });
}

/// The statements that are nothing but a sum over pairs.
SmallVector<TensorOp> PairTensors::sums() {
  SmallVector<TensorOp> found;
  for (TensorOp tensor : weights->getBlock()->getOps<TensorOp>())
    if (!contains(tensor.getResult()) && sumIn(tensor) && readsPairs(tensor))
      found.push_back(tensor);
  return found;
}

/// Whether an element costs more than sums and products of what is there.
static bool isDear(TensorOp tensor) {
  return tensor.getBody()
      .walk([](Operation *op) {
        bool dear = isa<ReduceOp, DropoutOp, arith::CmpFOp, arith::MaximumFOp, arith::MinimumFOp>(op) || isFunction(op);
        return dear ? WalkResult::interrupt() : WalkResult::advance();
      })
      .wasInterrupted();
}

/// Whether `tensor` is a reduction, and one of `readers` a running total, whose terms have none.
static bool isSumInTotal(TensorOp tensor, ArrayRef<Operation *> readers) {
  return !tensor.getBody().getOps<ReduceOp>().empty() &&
         llvm::any_of(readers, [](Operation *reader) { return Scan::of(cast<TensorOp>(reader)).has_value(); });
}

/// Finds the pairs that two statements need which are stored or sums, unless they are others under a second name; and
/// those that a sum reads, if they cost more than arithmetic, for its other factors have more indices, or if they may
/// be other than 0 where all that is stored is 0. Others are part of what reads them.
void PairTensors::findStored() {
  llvm::DenseMap<Operation *, llvm::SmallSetVector<Operation *, 4>> consumers;
  llvm::DenseSet<Value> summedCopies;
  for (Operation &op : llvm::reverse(*weights->getBlock())) {
    auto tensor = dyn_cast<TensorOp>(op);
    if (!tensor || !contains(tensor.getResult()))
      continue;
    llvm::SmallSetVector<Operation *, 4> needing;
    bool isSummed = false, isTotal = Scan::of(tensor).has_value();
    for (Operation *user : tensor.getResult().getUsers()) {
      TensorOp reader = statementOf(user);
      bool isPart = contains(reader.getResult()) && !stored.contains(reader.getResult());
      if (!contains(reader.getResult()) && isPointwise(reader)) // a mask
        continue;
      isSummed |= !contains(reader.getResult()) || summedCopies.contains(reader.getResult());
      if (isPart)
        needing.insert(consumers[reader].begin(), consumers[reader].end());
      else
        needing.insert(reader);
    }
    ReadOp other = copied(tensor);
    bool isCopy = other && !other.getTensor().hasOneUse();
    if (isCopy && isSummed)
      summedCopies.insert(tensor.getResult());
    else if (isTotal || isSumInTotal(tensor, needing.getArrayRef()) ||
             (!isCopy && needing.size() >= 2 && (isSummed || isDear(tensor))))
      stored.insert(tensor.getResult());
    consumers[tensor] = std::move(needing);
  }
  // With the pairs that become part of them.
  llvm::DenseSet<Value> dear;
  for (TensorOp tensor : weights->getBlock()->getOps<TensorOp>()) {
    if (!contains(tensor.getResult()) || stored.contains(tensor.getResult()))
      continue;
    bool readsDear = false;
    tensor.getBody().walk([&](ReadOp read) { readsDear |= dear.contains(read.getTensor()); });
    bool isMultiple = isMultipleOf(tensor.getBody().front(), [&](Value read) { return contains(read); });
    if (readsDear || isDear(tensor) || !isMultiple)
      dear.insert(tensor.getResult());
  }
  for (TensorOp sum : sums())
    sum.getBody().walk([&](ReadOp read) {
      if (dear.contains(read.getTensor()))
        stored.insert(read.getTensor());
    });
}

/// Puts into the formula of `statement` those of the pairs that are not stored, and what is computed of the elements of
/// pairs (masks) or of their sums (a row's dot product and another).
void PairTensors::swallow(TensorOp statement) {
  for (bool changed = true; changed;) {
    changed = false;
    SmallVector<ReadOp> reads;
    statement.getBody().walk([&](ReadOp read) { reads.push_back(read); });
    for (ReadOp read : reads) {
      TensorOp tensor = definitionOf(read.getTensor());
      bool isPart = tensor && !stored.contains(read.getTensor()) && !compared.contains(read.getTensor()) &&
                    isInRange(read) && (contains(read.getTensor()) || (isPointwise(tensor) && readsBlocks(tensor)));
      if (isPart) {
        substituteFormula(read, tensor);
        changed = true;
      }
    }
  }
}

SmallVector<TensorOp> PairTensors::storedTensors() {
  return llvm::to_vector(llvm::make_filter_range(weights->getBlock()->getOps<TensorOp>(),
                                                 [&](TensorOp tensor) { return stored.contains(tensor.getResult()); }));
}

/// Whether one of the pairs is a reduction, as scores are, that is no running total.
bool PairTensors::haveScores() {
  return llvm::any_of(tensors, [](Value tensor) {
    TensorOp definition = definitionOf(tensor);
    return !definition.getBody().getOps<ReduceOp>().empty() && !Scan::of(definition);
  });
}

void PairTensors::store(bool early) {
  bool isKnown = llvm::any_of(tensors, [](Value tensor) { return isPairs(tensor); });
  bool areTotals = Scan::of(weights) && haveScores();
  if (isKnown || sums().size() < (areTotals ? 1 : 2) || (early && !haveScores()))
    return;
  if (early)
    computeEarlySums();
  for (TensorOp statement : llvm::to_vector(weights->getBlock()->getOps<TensorOp>()))
    joinPlaced(statement);
  for (TensorOp statement : llvm::to_vector(weights->getBlock()->getOps<TensorOp>()))
    multiplyPlaced(statement);
  for (TensorOp sum : sums())
    normalise(sum);
  bool hasScan = llvm::any_of(tensors, [](Value tensor) { return Scan::of(definitionOf(tensor)).has_value(); });
  if (!weights->hasAttr(TensorOp::weightsName))
    collect();
  if (early)
    computeEarlySums(); // of pairs that are known since sums are products of them
  if (!weights->hasAttr(TensorOp::weightsName) || hasScan)
    maskByConditions();
  findStored();
  for (TensorOp tensor : storedTensors())
    mask(tensor);
  // Masks are looked up in formulas that read the tensors they come from.
  SmallVector<TensorOp> readers;
  for (TensorOp tensor : weights->getBlock()->getOps<TensorOp>())
    if (stored.contains(tensor.getResult()) ||
        (!contains(tensor.getResult()) && !isPointwise(tensor) && readsPairs(tensor)))
      readers.push_back(tensor);
  for (TensorOp tensor : weights->getBlock()->getOps<TensorOp>())
    if (!stored.contains(tensor.getResult()))
      dropChoice(tensor);
  for (TensorOp reader : readers)
    if (!stored.contains(reader.getResult()))
      dropConditions(reader);
  for (TensorOp reader : readers)
    swallow(reader);
  for (TensorOp tensor : storedTensors())
    dropInnerChoices(tensor);
  for (TensorOp tensor : storedTensors())
    tensor->setAttr(TensorOp::pairsName, UnitAttr::get(tensor.getContext()));
}

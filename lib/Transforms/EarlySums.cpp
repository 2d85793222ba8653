//===- EarlySums.cpp - Sums that must be there before the first block -----===//
//
//   p[m, n]       = max(sum[d](q[m, d] * k[n, d]), 0)
//   total[m]      = sum[n](p[m, n])
//   out_sum[m, e] = sum[n](p[m, n] * v[n, e])
//   dot[m]        = sum[e](grad_out[m, e] * out_sum[m, e]) / total[m]**2
//   grad_p[m, n]  = sum[e](grad_out[m, e] * v[n, e]) / total[m] - dot[m]
//
// Blocks of pairs (attn/Analysis/PairBlocks.h) hold pairs and sums of them. A statement between, like `dot`, that reads
// such sums and that pairs are made of, has no block. The sums it reads are weighted sums then, of scores of their own:
//
//   total[m]      = sum[n](max(sum[d](q[m, d] * k[n, d]), 0))
//   out_sum[m, e] = sum[n](max(sum[d](q[m, d] * k[n, d]), 0) * v[n, e])
//
//===----------------------------------------------------------------------===//

#include "Form.h"
#include "PairTensors.h"
#include "Scores.h"
#include "Slice.h"
#include "attn/Analysis/Dependence.h"

#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace attn;

/// The statements whose formulas read `tensor`.
static llvm::SmallSetVector<TensorOp, 4> readersOf(TensorOp tensor) {
  llvm::SmallSetVector<TensorOp, 4> readers;
  for (Operation *user : tensor.getResult().getUsers())
    if (auto reader = user->getParentOfType<TensorOp>())
      readers.insert(reader);
  return readers;
}

/// The sums over pairs that others of these, or pairs, are made of.
SmallVector<ReduceOp> PairTensors::earlySums() {
  SmallVector<TensorOp> statements(weights->getBlock()->getOps<TensorOp>());
  SmallVector<ReduceOp> early;
  llvm::DenseSet<Operation *> leadToBlocks;
  for (TensorOp tensor : llvm::reverse(statements)) {
    bool leads = llvm::any_of(readersOf(tensor), [&](TensorOp reader) { return leadToBlocks.contains(reader); });
    bool isOfPairs = contains(tensor.getResult()), readsThem = !isOfPairs && readsPairs(tensor);
    if (readsThem && leads)
      llvm::copy_if(tensor.getBody().getOps<ReduceOp>(), std::back_inserter(early),
                    [&](ReduceOp sum) { return readsPairs(sum); });
    if (leads || isOfPairs || readsThem)
      leadToBlocks.insert(tensor);
  }
  return early;
}

void PairTensors::computeEarly(ReduceOp sum) {
  auto tensor = sum->getParentOfType<TensorOp>();
  if (sum != soleReduction(tensor))
    tensor = splitOff(sum, tensor, "_total");
  if (tensor.getBody().getNumArguments() + 1 == weights.getBody().getNumArguments())
    tensor->setAttr(TensorOp::totalName, UnitAttr::get(tensor.getContext()));
  for (bool changed = true; changed;) {
    changed = false;
    SmallVector<ReadOp> reads;
    tensor.getBody().walk([&](ReadOp read) { reads.push_back(read); });
    for (ReadOp read : reads)
      if (contains(read.getTensor()) && isInRange(read)) {
        substituteFormula(read, definitionOf(read.getTensor()));
        changed = true;
      }
  }
}

void PairTensors::computeEarlySums() {
  for (ReduceOp sum : earlySums())
    computeEarly(sum);
}

//===- RecomputeWeights.cpp - Sums of weights over heads or queries -------===//
//
//   weight[h, m, n]     = softmax[n](score[h, m, n])
//   out[h, m, e]        = sum[n](weight[h, m, n] * v[h, n, e])
//   average[m, n]       = sum[h](weight[h, m, n]) / H
//
// has a sum that reads weights at its own key, each of another row. They are computed again from the log-sum-exp of
// their rows, stored for a block of rows at a time (attn/Analysis/PairBlocks.h):
//
//   weight_logsumexp[h, m]   = logsumexp[n](score[h, m, n])
//   weight_again[h, m, n]    = exp(score[h, m, n] - weight_logsumexp[h, m])     attn.pairs
//   weight_again_total[h, m] = sum[n](weight_again[h, m, n])
//   average[m, n]            = sum[h](weight_again[h, m, n] / max(weight_again_total[h, m], 0.5)) / H
//
// The total is 1 but for roundings, of the log-sum-exp and of scores that were computed in another order, which grow
// with the scores; or 0 in a row without keys. Divided by it, weights are as exact as a softmax is. (The share of a
// sink is added to it.)
//
//===----------------------------------------------------------------------===//

#include "Form.h"
#include "LogSumExp.h"
#include "Rewrites.h"
#include "Scores.h"
#include "Slice.h"
#include "Statement.h"
#include "attn/Analysis/Dependence.h"
#include "attn/Transforms/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "llvm/ADT/StringExtras.h"

using namespace mlir;
using namespace attn;

namespace attn {
#define GEN_PASS_DEF_ATTNRECOMPUTEWEIGHTS
#include "attn/Transforms/Passes.h.inc"
} // namespace attn

namespace {
struct RecomputeWeights : attn::impl::AttnRecomputeWeightsBase<RecomputeWeights> {
  void runOnOperation() override;
};
} // namespace

/// Whether `read` is a term of a sum that is all of its statement's formula, at the statement's own `key`, and of rows
/// that the sum runs through.
static bool isSummedOverRows(ReadOp read, unsigned key) {
  auto sum = dyn_cast<ReduceOp>(read->getParentOp());
  auto tensor = sum ? dyn_cast<TensorOp>(sum->getParentOp()) : TensorOp();
  if (!tensor || wholeReduction(tensor, ReduceKind::Sum) != sum || read->getParentRegion() != &sum.getBody())
    return false;
  auto own = dyn_cast<BlockArgument>(read.getSubscripts()[key]);
  auto isSummed = [&](BlockArgument index) { return index.getParentRegion() == &sum.getBody(); };
  return own && own.getParentRegion() == &tensor.getBody() &&
         isInRange(own, read.getTensor().getType().getShape()[key]) &&
         llvm::any_of(dependence(read.getSubscripts()), isSummed);
}

/// Whether the scores of `softmax` are stored, for all of its rows and keys: as layers over heads are.
static bool readsStoredScores(TensorOp softmax, BlockArgument key) {
  ReduceOp reduce = soleReduction(softmax);
  SmallVector<BlockArgument> rows(softmax.getBody().getArguments());
  llvm::erase(rows, key);
  return anyInSlice(yielded(reduce.getBody()), [&](Operation *op) {
    auto read = dyn_cast<ReadOp>(op);
    IndexSet used = read && read.getTensor().getDefiningOp<TensorOp>() ? dependence(read.getSubscripts()) : IndexSet();
    return used.contains(reduce.getBody().getArgument(0)) &&
           llvm::all_of(rows, [&](BlockArgument row) { return used.contains(row); });
  });
}

namespace {
/// Weights that are computed again, for each row and key, and what those of a row add up to, beside a sink if there is
/// one.
struct Again {
  TensorOp weights, totals, sinks;
};
} // namespace

/// Those of `softmax`, before the statement after it.
static Again writeAgain(TensorOp softmax, BlockArgument key) {
  ReduceOp reduce = soleReduction(softmax);
  OpBuilder builder(softmax.getContext());
  builder.setInsertionPointAfter(softmax);
  TensorOp sums = writeLogSumExp(softmax, (softmax.getName() + "_logsumexp").str(), builder);
  SmallVector<BlockArgument> order(softmax.getBody().getArguments());
  llvm::erase(order, key);
  unsigned rows = order.size();
  order.push_back(key);
  Statement again{
      (softmax.getName() + "_again").str(), llvm::map_to_vector(order, axisOf), {}, reduce.getType(), nullptr};
  auto inRegion = [&](Region &region, OpBuilder &builder, Indices indices) {
    IRMapping mapping;
    mapping.map(ArrayRef<BlockArgument>(order), indices);
    mapping.map(region.getArgument(0), indices.back());
    return cloneSlice(yielded(region), mapping, builder);
  };
  again.term = [&](OpBuilder &builder, Indices indices) {
    Value score = inRegion(reduce.getBody(), builder, indices);
    Value sum = ReadOp::create(builder, softmax.getLoc(), sums.getResult(), indices.take_front(rows));
    return weightOf(score, sum, builder, softmax.getLoc());
  };
  if (reduce.isConditional())
    again.condition = [&](OpBuilder &builder, Indices indices) {
      return inRegion(reduce.getWhere(), builder, indices);
    };
  auto kernel = softmax->getParentOfType<KernelOp>();
  TensorOp pairs = again.write(kernel, builder, softmax.getLoc());
  pairs->setAttr(TensorOp::pairsName, builder.getUnitAttr());
  Statement total{(pairs.getName() + "_total").str(),
                  llvm::map_to_vector(ArrayRef(order).take_front(rows), axisOf),
                  {axisOf(key)},
                  reduce.getType(),
                  nullptr};
  total.term = [&](OpBuilder &builder, Indices indices) -> Value {
    return ReadOp::create(builder, softmax.getLoc(), pairs.getResult(), indices);
  };
  Again result{pairs, total.write(kernel, builder, softmax.getLoc()), {}};
  if (Value sink = reduce.getSink()) {
    Statement share{(softmax.getName() + "_sink").str(), total.axes, {}, reduce.getType(), nullptr};
    share.term = [&](OpBuilder &builder, Indices indices) {
      IRMapping mapping;
      mapping.map(ArrayRef(order).take_front(rows), indices);
      Value score = cloneSlice(sink, mapping, builder);
      Value sum = ReadOp::create(builder, softmax.getLoc(), sums.getResult(), indices);
      return weightOf(score, sum, builder, softmax.getLoc());
    };
    result.sinks = share.write(kernel, builder, softmax.getLoc());
  }
  return result;
}

/// The weight that `read` reads, whose `key` is this dimension, from those that are computed again.
static Value readAgain(Again again, ReadOp read, unsigned key) {
  OpBuilder builder(read);
  Location location = read.getLoc();
  SmallVector<Value> subscripts(read.getSubscripts());
  subscripts.erase(subscripts.begin() + key);
  Value total = ReadOp::create(builder, location, again.totals.getResult(), subscripts);
  subscripts.push_back(read.getSubscripts()[key]);
  Value weight = ReadOp::create(builder, location, again.weights.getResult(), subscripts);
  if (again.sinks) {
    Value sink = ReadOp::create(builder, location, again.sinks.getResult(), llvm::ArrayRef(subscripts).drop_back());
    total = arith::AddFOp::create(builder, location, total, sink);
  }
  Value least = floatConstant(0.5, total.getType(), builder, location);
  total = arith::MaximumFOp::create(builder, location, total, least);
  return arith::DivFOp::create(builder, location, weight, total);
}

/// Puts `sum` into the only formula that reads it, for each of its elements. Returns the statement that has it then.
static TensorOp joinReader(TensorOp sum) {
  auto read = sum.getResult().hasOneUse() ? dyn_cast<ReadOp>(*sum->user_begin()) : ReadOp();
  auto reader = read ? dyn_cast<TensorOp>(read->getParentOp()) : TensorOp();
  if (!reader || !isInRange(read) || !llvm::equal(read.getSubscripts(), reader.getBody().getArguments()))
    return sum;
  substituteFormula(read, sum);
  return reader;
}

/// The reads of `softmax` in sums over rows; none where its weights or scores are stored anyway.
static SmallVector<ReadOp> readsOverRows(TensorOp softmax) {
  BlockArgument key = softmaxKeys(soleReduction(softmax), softmax).front();
  SmallVector<ReadOp> reads;
  if (isReturned(softmax.getResult()) || readsStoredScores(softmax, key))
    return reads;
  for (Operation *user : softmax.getResult().getUsers())
    if (auto read = dyn_cast<ReadOp>(user); read && isSummedOverRows(read, key.getArgNumber()))
      reads.push_back(read);
  return reads;
}

/// Rewrites the sums over rows of the weights called `name`. Their names; none where blocks of rows are not enough for
/// one of them, or where one is stored for another statement: that may take as much memory as the pairs do.
static SmallVector<std::string> recompute(KernelOp kernel, StringRef name, bool joinsReaders) {
  TensorOp softmax = tensorNamed(kernel, name);
  BlockArgument key = softmaxKeys(soleReduction(softmax), softmax).front();
  SmallVector<ReadOp> reads = readsOverRows(softmax);
  bool areReturned = true;
  Again again = writeAgain(softmax, key);
  SmallVector<std::string> sums;
  for (ReadOp read : reads) {
    auto sum = read->getParentOfType<TensorOp>();
    sums.push_back(sum.getName().str());
    read.replaceAllUsesWith(readAgain(again, read, key.getArgNumber()));
    read.erase();
    areReturned &= isReturned((joinsReaders ? joinReader(sum) : sum).getResult());
  }
  return areReturned && arePairsInBlocks(kernel) ? sums : SmallVector<std::string>();
}

void RecomputeWeights::runOnOperation() {
  KernelOp kernel = getOperation();
  if (kernel->hasAttr(KernelOp::wholeName))
    return;
  SmallVector<std::string> names;
  for (TensorOp tensor : kernel.getBody().front().getOps<TensorOp>())
    if (isSoftmax(tensor) && !readsOverRows(tensor).empty())
      names.push_back(tensor.getName().str());
  for (StringRef name : names)
    for (bool joinsReaders : {true, false}) {
      mlir::OwningOpRef<KernelOp> changed = kernel.clone();
      SmallVector<std::string> sums = recompute(*changed, name, joinsReaders);
      if (sums.empty())
        continue;
      noteRewrite(tensorNamed(kernel, name), "recompute weights",
                  "'" + name + "' is computed again from its log-sum-exp, a block of rows at a time, for " +
                      llvm::join(sums, ", "));
      eraseUnread(*changed);
      kernel.getBody().takeBody(changed->getBody());
      break;
    }
}

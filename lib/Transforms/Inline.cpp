//===- Inline.cpp - Formulas swallow tensors that must not be stored ------===//
//
//   dot[b, m, n]    = sum[d](q[b, m, d] * k[b, n, d])
//   mask[b, n]      = n < valid[b]
//   weight[b, m, n] = softmax[n](tanh(dot[b, m, n]) where mask[b, n])
//
// becomes
//
//   weight[b, m, n] = softmax[n](tanh(sum[d](q[b, m, d] * k[b, n, d])) where n < valid[b])
//
// A *root* is a tensor that raising takes as a whole: a softmax, a log-sum-exp, a sum over keys (one of weights or of
// scores); or one that is stored for a block of pairs at a time, or sums those. Roots are never inlined, and neither
// are tensors whose elements are compared with each other (a score and the greatest of its row); the rules for the
// others are:
//
//   1. What costs nothing (no reduction, no function call) goes wherever it is read. Terms of a sum that divide their
//      last index (those of a rotated key: d % (D // 2)) cost something: they stay.
//   2. Into a root goes what depends on its key and on its query, or has exactly one element for each score:
//      storing it would take M·N memory. What stays is what depends on one of the two only (projections, norms), a
//      linear layer of pairs that are there, an output that sums function calls: it is stored anyway; and what scores
//      cost where each row has values of its own, which are a known number (`v[m // 64 * 64 + n, e]`, n below 64) or
//      stored themselves (`sum[m](a[m, n] / total[m])`). Into the total of a row goes what is left then of the scores
//      that a root has taken in, if only totals read it.
//   3. What a single tensor reads, once for each of its elements, goes there: nothing is computed twice. So do terms of
//      a running total, unless they are reductions. Sums whose terms have places stay by themselves.
//   4. A sum over a row that a query and a key have together (`sum[c](q[h, m, c] * edge[m, n, c])`) leaves a softmax
//      again, once the query is known. It is a matrix product for the heads of a query, and so many numbers as heads,
//      where there are as many as columns already. A device would store it as a whole: there it stays.
//
//===----------------------------------------------------------------------===//

#include "Form.h"
#include "InlineRules.h"
#include "Product.h"
#include "Scores.h"
#include "Slice.h"
#include "WeightedSum.h"
#include "attn/Analysis/ComparedTensors.h"
#include "attn/Analysis/Dependence.h"
#include "attn/Analysis/Scan.h"
#include "attn/Transforms/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/IRMapping.h"

using namespace mlir;
using namespace attn;

namespace attn {
#define GEN_PASS_DEF_ATTNINLINE
#include "attn/Transforms/Passes.h.inc"
} // namespace attn

namespace {
struct Inline : attn::impl::AttnInlineBase<Inline> {
  void runOnOperation() override;
  void inlineInto(Root &root);
  void inlineIntoPairs(KernelOp kernel);
  void inlineIntoTotals(KernelOp kernel);
  void outlineRowsOfPairs(Root &root);
  bool isFactor(TensorOp tensor, ReduceOp sum, BlockArgument column);
  bool hasStoredValues(ReduceOp sum, const IndexSet &used, BlockArgument column);
  bool belongsInside(Root &root, ReadOp read);
  TensorOp source(ReadOp read);

  llvm::DenseSet<Value> roots, compared;
  llvm::DenseSet<Value> scores; ///< What a root took in by rule 2.
  bool layersWait = false;      ///< Until the query is known.
};
} // namespace

/// The tensor that `read` reads, if it may be inlined there.
TensorOp Inline::source(ReadOp read) {
  TensorOp tensor = inlinable(read, roots);
  return tensor && !compared.contains(tensor.getResult()) ? tensor : TensorOp();
}

/// Whether all that the sums of `tensor` multiply has its first index, of three at least: so have query and key their
/// batch, which the weights of a layer lack.
static bool sumsWithinBatch(TensorOp tensor) {
  Block::BlockArgListType indices = tensor.getBody().getArguments();
  return indices.size() >= 3 && llvm::all_of(tensor.getBody().front().getOps<ReduceOp>(), [&](ReduceOp sum) {
           return llvm::all_of(Product::of(yielded(sum.getBody())).factors, [&](const Factor &factor) {
             return factor.indices.contains(indices.front()) || !factor.changesWith(sum.getBody().getArguments());
           });
         });
}

/// Whether `sum`, which is no root yet, may be a matrix product, whose factor `tensor` is stored: it follows what is
/// stored, or sums and products of reductions, or layers. What it reads for each of its elements counts with it. A
/// score that is divided by sqrt(D), or whose query and key have a batch, looks like a projection, and has M·N
/// elements: only beside keys that each row has for itself, at a place that row and column say, it cannot be one.
bool Inline::isFactor(TensorOp tensor, ReduceOp sum, BlockArgument column) {
  SmallVector<TensorOp> formula = {tensor};
  for (unsigned next = 0; next != formula.size(); ++next)
    for (ReadOp read : formula[next].getBody().front().getOps<ReadOp>()) {
      if (!readsEachElement(read, formula[next]))
        continue;
      TensorOp part = source(read);
      if (!part)
        return true;
      formula.push_back(part);
    }
  auto isScaledBySize = [](TensorOp part) {
    return llvm::any_of(part.getBody().front(), [](Operation &op) { return isFunction(&op); });
  };
  auto hasOwnPlace = [&](ReadOp read) {
    return llvm::any_of(read.getSubscripts(), [&](Value subscript) {
      IndexSet says = dependence(subscript);
      return !isa<BlockArgument>(subscript) && says.contains(column) && says.size() > 1;
    });
  };
  auto mayBeScore = [&](TensorOp part) {
    return isScaledBySize(part) || (hasReduction(part) && sumsWithinBatch(part));
  };
  bool isOfScores = llvm::none_of(sum.getBody().getOps<ReadOp>(), hasOwnPlace);
  bool isProduct = llvm::none_of(formula, isNonlinear) && !(isOfScores && llvm::any_of(formula, mayBeScore)) &&
                   !isFunctionIn(sum, tensor, column);
  auto isNoScore = [](TensorOp part) { return !hasReduction(part) || isOfLayers(part); };
  return llvm::any_of(formula, hasReduction) && !sum.isConditional() && (isProduct || llvm::all_of(formula, isNoScore));
}

/// The query, or what may be one where no key shows it: scores that are read have all indices.
static BlockArgument likelyQuery(const Root &root) {
  return root.query || root.rows.empty() ? root.query : root.rows.back();
}

/// Whether a number of keys that is known, which are others for each row of `rows`, have their values in the terms of
/// `sum`: each row of values is multiplied alone, and what the scores are is computed again for each vector of columns.
static bool isOfFewKeysEach(ReduceOp sum, const IndexSet &rows, BlockArgument column) {
  if (sum.getSizes().size() != 1 || !sum.getSize(0).isConstant())
    return false;
  IndexSet ofValues;
  for (const Factor &factor : Product::of(yielded(sum.getBody())).factors)
    if (factor.indices.contains(column))
      ofValues.insert_range(factor.indices);
  return !ofValues.empty() && llvm::all_of(rows, [&](BlockArgument row) { return ofValues.contains(row); });
}

/// Whether `sum` reads a number that is stored for each of `used` and each column, so that one of `used` alone is
/// stored beside it: where rows have no values in common, scores are computed again for each vector of columns.
bool Inline::hasStoredValues(ReduceOp sum, const IndexSet &used, BlockArgument column) {
  return llvm::any_of(sum.getBody().getOps<ReadOp>(), [&](ReadOp value) {
    auto isSubscript = [&](BlockArgument index) { return llvm::is_contained(value.getSubscripts(), index); };
    TensorOp made = source(value);
    bool isStored = !made || !made.getResult().hasOneUse();
    return isStored && isSubscript(column) && llvm::all_of(used, isSubscript);
  });
}

/// Rule 2.
bool Inline::belongsInside(Root &root, ReadOp read) {
  TensorOp tensor = source(read);
  if (!tensor || endsPlacedSum(tensor, root.tensor))
    return false;
  IndexSet used = root.indicesOf(read);
  if (!used.contains(root.key))
    return false;
  if (readsPairs(root.tensor) && !isPairs(root.tensor.getResult()))
    return root.query && used.contains(root.query);
  if (root.isSum()) {
    // What depends on the last index is a value. A condition that does is none of a weighted sum: such a sum would
    // compute its terms again for each element.
    Block::BlockArgListType indices = root.tensor.getBody().getArguments();
    auto sum = cast<ReduceOp>(root.formula);
    bool isWeighted = !indices.empty() && !used.contains(indices.back()) &&
                      (!sum.isConditional() || !dependence(yielded(sum.getWhere())).contains(indices.back()));
    if (!isWeighted)
      return false;
    if (!roots.contains(root.tensor.getResult()) && isFactor(tensor, sum, indices.back()))
      return false;
    if ((hasReduction(tensor) || isNonlinear(tensor)) &&
        (isOfFewKeysEach(sum, used, indices.back()) ||
         (!root.findQuery() && hasStoredValues(sum, used, indices.back()))))
      return false;
  }
  if (isLayerOfPairs(root, layersWait ? BlockArgument() : likelyQuery(root), read, tensor))
    return false;
  if (root.query && used.contains(root.query))
    return true;
  if (isCheap(tensor) && divides(read, tensor))
    return false;
  bool onlyRows = llvm::all_of(
      used, [&](BlockArgument index) { return index == root.key || llvm::is_contained(root.rows, index); });
  return onlyRows && used.size() == root.rows.size() + 1;
}

void Inline::inlineInto(Root &root) {
  // First what has one element for each score, so that the dot products are seen, which tell the query; then the rest.
  // A formula that came in may read what belongs inside as well.
  auto step = [&] {
    bool changed = false;
    SmallVector<ReadOp> reads;
    root.formula->walk([&](ReadOp read) { reads.push_back(read); });
    for (ReadOp read : reads)
      if (belongsInside(root, read)) {
        scores.insert(read.getTensor());
        substituteFormula(read, read.getTensor().getDefiningOp<TensorOp>());
        roots.insert(root.tensor.getResult());
        changed = true;
      }
    return changed;
  };
  layersWait = !root.query;
  while (step()) {
  }
  if (root.query)
    return;
  layersWait = false;
  for (bool changed = true; changed; changed = step())
    root.query = root.findQuery();
}

/// Whether each term of `sum`, in the formula of `root`, has a number of one query's and key's, of which there is a
/// row; times what the key does not change.
static bool isOfRowsOfPairs(ReduceOp sum, const Root &root) {
  if (sum.getKind() != ReduceKind::Sum || sum.isConditional() || sum.getSizes().size() != 1 ||
      !isa<FloatType>(sum.getType()) || hasInnerReduction(sum))
    return false;
  auto isIndex = [](Value subscript) { return isa<BlockArgument>(subscript); };
  bool hasPairs = false, hasOthers = false;
  for (ReadOp read : sum.getBody().getOps<ReadOp>()) {
    IndexSet used = dependence(read.getSubscripts());
    if (!used.contains(root.key)) {
      hasOthers = true;
      continue;
    }
    if (!used.contains(root.query) || !llvm::all_of(read.getSubscripts(), isIndex) ||
        read.getSubscripts().back() != sum.getBody().getArgument(0))
      return false;
    hasPairs = true;
  }
  return hasPairs && hasOthers;
}

/// Rule 4.
void Inline::outlineRowsOfPairs(Root &root) {
  auto softmax = dyn_cast<ReduceOp>(root.formula);
  if (!root.query || !softmax || root.isSum() || getOperation()->hasAttr(KernelOp::wholeName))
    return;
  for (ReduceOp sum : llvm::to_vector(softmax.getBody().getOps<ReduceOp>()))
    if (isOfRowsOfPairs(sum, root))
      splitOff(sum, root.tensor, "_pairs");
}

/// Rule 2 for pairs that are stored, and for the sums of these, whose queries and keys are where they read them.
void Inline::inlineIntoPairs(KernelOp kernel) {
  llvm::DenseMap<Value, unsigned> queries; // the position of the query among the indices of pairs
  for (TensorOp tensor : llvm::to_vector(kernel.getBody().front().getOps<TensorOp>())) {
    if (isPairs(tensor.getResult())) {
      Block::BlockArgListType indices = tensor.getBody().getArguments();
      Root root{tensor, tensor, indices.back(), SmallVector<BlockArgument>(indices.drop_back()), {}};
      inlineInto(root);
      if (root.query)
        queries[tensor.getResult()] = root.query.getArgNumber();
      continue;
    }
    for (ReduceOp reduce : llvm::to_vector(tensor.getBody().getOps<ReduceOp>())) {
      Root root{tensor, reduce, {}, {}, {}};
      for (ReadOp read : reduce.getBody().getOps<ReadOp>())
        if (auto query = queries.find(read.getTensor()); query != queries.end()) {
          root.key = dyn_cast<BlockArgument>(read.getSubscripts().back());
          root.query = dyn_cast<BlockArgument>(read.getSubscripts()[query->second]);
        }
      if (root.key && root.query)
        inlineInto(root);
    }
  }
}

/// The sum in whose terms `read` is, if it is one over keys for each row of scores: `read` has an element for each of
/// its rows and keys. Null otherwise.
static ReduceOp totalOf(ReadOp read) {
  auto sum = dyn_cast<ReduceOp>(read->getParentOp());
  auto tensor = read->getParentOfType<TensorOp>();
  if (!sum || sum.getKind() != ReduceKind::Sum || !isa<FloatType>(sum.getType()) || sum.getSizes().size() != 1 ||
      read->getParentRegion() != &sum.getBody() || Scan::of(tensor) ||
      (isStoredWithPairs(tensor) && sum == soleReduction(tensor)))
    return {};
  IndexSet rows = dependence(sum.getResult()), ofScore = rows;
  ofScore.insert(sum.getBody().getArgument(0));
  bool ofTensor = llvm::all_of(rows, [&](BlockArgument row) { return row.getOwner() == &tensor.getBody().front(); });
  return ofTensor && !rows.empty() && isReadByAll(read, ofScore) ? sum : ReduceOp();
}

/// Rule 2 for totals: sum[n](exp(score[m, n])), which weights are divided by.
void Inline::inlineIntoTotals(KernelOp kernel) {
  SmallVector<TensorOp> tensors(kernel.getBody().front().getOps<TensorOp>());
  // Backwards, for what a total reads may read scores, too.
  for (TensorOp tensor : llvm::reverse(tensors)) {
    llvm::SmallSetVector<ReduceOp, 2> totals;
    bool onlyTotals =
        scores.contains(tensor.getResult()) && llvm::all_of(tensor.getResult().getUsers(), [&](Operation *user) {
          auto read = dyn_cast<ReadOp>(user);
          ReduceOp total = read && source(read) ? totalOf(read) : ReduceOp();
          totals.insert(total);
          return static_cast<bool>(total);
        });
    if (!onlyTotals)
      continue;
    for (ReduceOp total : totals)
      if (auto whole = total->getParentOfType<TensorOp>(); total != soleReduction(whole))
        splitOff(total, whole, "_total");
    for (Operation *read : llvm::to_vector(tensor.getResult().getUsers())) {
      auto total = read->getParentOfType<TensorOp>();
      total->setAttr(TensorOp::totalName, UnitAttr::get(total.getContext()));
      roots.insert(total.getResult());
      substituteFormula(cast<ReadOp>(read), tensor);
    }
    tensor.erase();
  }
}

void Inline::runOnOperation() {
  KernelOp kernel = getOperation();
  roots.clear();
  scores.clear();
  compared = comparedTensors(kernel);
  SmallVector<TensorOp> tensors = llvm::to_vector(kernel.getBody().front().getOps<TensorOp>());
  llvm::DenseSet<Value> weights = weightTensors(kernel);
  bool hasSavedSoftmax = llvm::any_of(tensors, [](TensorOp tensor) { return tensor->hasAttr(TensorOp::weightsName); });
  auto readsWeights = [&](ReduceOp reduce) {
    return reduce.getBody()
        .walk([&](ReadOp read) {
          return weights.contains(read.getTensor()) ? WalkResult::interrupt() : WalkResult::advance();
        })
        .wasInterrupted();
  };
  for (TensorOp tensor : tensors) {
    ReduceOp sum = Scan::of(tensor) ? ReduceOp() : soleReduction(tensor);
    bool summed =
        sum && sum.getKind() == ReduceKind::Sum && readsWeights(sum) && !valuesDependOnQueries(tensor, weights);
    bool isScored = sum && sumsScores(sum, tensor, llvm::IsaPred<ReduceOp>) && !isStoredWithPairs(tensor);
    if (isSoftmax(tensor) || isLogSumExp(tensor) || summed || isScored || tensor->hasAttr(TensorOp::totalName))
      roots.insert(tensor.getResult());
  }

  // Rule 1, in the order of definition, so that what is inlined has swallowed its own sources before.
  for (TensorOp tensor : tensors) {
    SmallVector<ReadOp> reads;
    tensor.getBody().walk([&](ReadOp read) { reads.push_back(read); });
    for (ReadOp read : reads)
      if (TensorOp source = this->source(read); source && isCheap(source) && !divides(read, source))
        substituteFormula(read, source);
  }

  // Rule 2. A sum is treated as one over keys when something in it belongs inside; then it is a root from there on.
  for (TensorOp tensor : tensors) {
    ReduceOp reduce = soleReduction(tensor);
    bool sums =
        reduce && reduce.getKind() == ReduceKind::Sum && !Scan::of(tensor) && !valuesDependOnQueries(tensor, weights);
    if (isStoredWithPairs(tensor) || !(roots.contains(tensor.getResult()) || sums))
      continue;
    Root root = Root::of(tensor);
    inlineInto(root);
    outlineRowsOfPairs(root);
  }
  inlineIntoPairs(kernel);
  eraseUnread(kernel);
  if (!hasSavedSoftmax) // its gradient's totals are computed with those of other gradients
    inlineIntoTotals(kernel);

  // Rule 3.
  for (TensorOp tensor : kernel.getBody().front().getOps<TensorOp>()) {
    SmallVector<ReadOp> reads(tensor.getBody().front().getOps<ReadOp>());
    std::optional<Scan> scan = Scan::of(tensor);
    if (scan)
      llvm::append_range(reads, scan->reduce.getBody().getOps<ReadOp>());
    for (ReadOp read : reads) {
      TensorOp source = this->source(read);
      if (source && isPartOf(source, read, tensor) && !(scan && hasReduction(source)))
        substituteFormula(read, source);
    }
  }
  eraseUnread(kernel);
}

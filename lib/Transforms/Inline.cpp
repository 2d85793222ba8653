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
// A *root* is a tensor that raising takes as a whole: a softmax, a log-sum-exp, a sum over keys; or one that is stored
// for a block of pairs at a time, or sums those. Roots are never inlined; the rules for the others are:
//
//   1. What costs nothing (no reduction, no function call) goes wherever it is read. Terms of a sum that divide their
//      last index (those of a rotated key: d % (D // 2)) cost something: they stay.
//   2. Into a root goes what depends on its key and on its query, or has exactly one element for each score:
//      storing it would take M·N memory. What depends on one of the two only (projections, norms) stays, and an output
//      that sums function calls: it is stored anyway.
//   3. What a single tensor reads, once for each of its elements, goes there: nothing is computed twice. Sums whose
//      terms have places stay by themselves.
//
//===----------------------------------------------------------------------===//

#include "Form.h"
#include "Root.h"
#include "Slice.h"
#include "WeightedSum.h"
#include "attn/Analysis/Dependence.h"
#include "attn/Analysis/PlacedSum.h"
#include "attn/Transforms/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
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
  bool belongsInside(Root &root, ReadOp read);

  llvm::DenseSet<Value> roots;
};
} // namespace

/// Whether `op` is a function that costs more than arithmetic.
static bool isFunction(Operation *op) {
  return isa<math::MathDialect>(op->getDialect()) && !isa<math::AbsFOp, math::AbsIOp>(op);
}

/// Whether the tensor is an output, and each of its elements a reduction over function calls (additive attention's
/// energy): reading it takes the memory that is there anyway, and computing it twice would be dear.
static bool isDearOutput(TensorOp tensor) {
  if (llvm::none_of(tensor.getResult().getUsers(), llvm::IsaPred<ReturnOp>))
    return false;
  return tensor.getBody()
      .walk([](Operation *op) {
        bool dear = op->getParentOfType<ReduceOp>() && isFunction(op);
        return dear ? WalkResult::interrupt() : WalkResult::advance();
      })
      .wasInterrupted();
}

/// The tensor that `read` reads, if it may be inlined there: it is defined by a formula, not rounded when it is stored,
/// not an output that is better read, and no subscript is clamped.
static TensorOp inlinable(ReadOp read, const llvm::DenseSet<Value> &roots) {
  auto tensor = read.getTensor().getDefiningOp<TensorOp>();
  if (!tensor || roots.contains(tensor.getResult()) || isStoredWithPairs(tensor) || isDearOutput(tensor) ||
      !isInRange(read))
    return {};
  AttnTensorType type = tensor.getResult().getType();
  return type.getElementType() == type.getComputeType() ? tensor : TensorOp();
}

/// Whether computing an element costs no more than reading it: arithmetic on what is there.
static bool isCheap(TensorOp tensor) {
  return llvm::none_of(tensor.getBody().front(),
                       [](Operation &op) { return isa<ReduceOp, DropoutOp>(op) || isFunction(&op); });
}

/// Whether the formula contains a reduction.
static bool reduces(TensorOp tensor) { return !tensor.getBody().front().getOps<ReduceOp>().empty(); }

/// Whether the formula is more than sums and products of reductions: then no reassociation of matrix products does
/// better than computing it where it is used.
static bool isNonlinear(TensorOp tensor) {
  return llvm::any_of(tensor.getBody().front(), [](Operation &op) {
    if (isa<ReduceOp, ReadOp, SizeOp, YieldOp, arith::AddFOp, arith::SubFOp, arith::MulFOp, arith::DivFOp,
            arith::NegFOp>(op))
      return false;
    return llvm::any_of(op.getOperands(), [](Value operand) { return isa<FloatType>(operand.getType()); });
  });
}

/// Whether the formula has an element that it reads for every element it computes: then storing it takes no more memory
/// than what is stored already.
static bool followsStored(TensorOp tensor) {
  return llvm::any_of(tensor.getBody().front().getOps<ReadOp>(), [&](ReadOp read) {
    return dependence(read.getSubscripts()).size() == tensor.getBody().getNumArguments();
  });
}

/// Whether `read` is in a sum's terms, of numbers that are found by dividing their last index: lanes along it lie
/// apart, for every pair again. Storing them takes no more memory than what is stored already.
static bool divides(ReadOp read, TensorOp tensor) {
  auto reduce = dyn_cast<ReduceOp>(read->getParentOp());
  Block::BlockArgListType indices = tensor.getBody().getArguments();
  bool isTerm = reduce && reduce.getKind() == ReduceKind::Sum && isa<FloatType>(read.getType());
  if (!isTerm || indices.empty() || !followsStored(tensor))
    return false;
  return llvm::any_of(tensor.getBody().front(), [&](Operation &op) {
    return isa<ModOp, FloorDivOp>(op) && dependence(op.getResult(0)).contains(indices.back());
  });
}

/// Whether one of the two sums terms that have places, which it does only as the sole sum of a statement.
static bool endsPlacedSum(TensorOp source, TensorOp tensor) {
  return (PlacedSum::of(source) && reduces(tensor)) || (PlacedSum::of(tensor) && reduces(source));
}

/// Rule 2.
bool Inline::belongsInside(Root &root, ReadOp read) {
  TensorOp tensor = inlinable(read, roots);
  if (!tensor)
    return false;
  IndexSet used = root.indicesOf(read);
  if (!used.contains(root.key))
    return false;
  if (readsPairs(root.tensor) && !isPairs(root.tensor.getResult()))
    return root.query && used.contains(root.query);
  if (root.isSum()) {
    // What depends on the last index is a value.
    Block::BlockArgListType indices = root.tensor.getBody().getArguments();
    if (indices.empty() || used.contains(indices.back()))
      return false;
    // A sum that is no root yet may be a matrix product, whose factors are stored.
    bool factor = followsStored(tensor) ||
                  (reduces(tensor) && !isNonlinear(tensor) && !cast<ReduceOp>(root.formula).isConditional());
    if (!roots.contains(root.tensor.getResult()) && factor)
      return false;
  }
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
        substituteFormula(read, read.getTensor().getDefiningOp<TensorOp>());
        roots.insert(root.tensor.getResult());
        changed = true;
      }
    return changed;
  };
  while (step()) {
  }
  if (root.query)
    return;
  for (bool changed = true; changed; changed = step())
    root.query = root.findQuery();
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

/// Erases the tensors that nobody reads, and leaves the others in `tensors`.
static void eraseUnread(SmallVector<TensorOp> &tensors) {
  for (TensorOp &tensor : llvm::reverse(tensors))
    if (tensor.getResult().use_empty()) {
      tensor.erase();
      tensor = {};
    }
  llvm::erase(tensors, TensorOp());
}

void Inline::runOnOperation() {
  KernelOp kernel = getOperation();
  roots.clear();
  SmallVector<TensorOp> tensors = llvm::to_vector(kernel.getBody().front().getOps<TensorOp>());
  llvm::DenseSet<Value> weights = weightTensors(kernel);
  auto readsWeights = [&](ReduceOp reduce) {
    return reduce.getBody()
        .walk([&](ReadOp read) {
          return weights.contains(read.getTensor()) ? WalkResult::interrupt() : WalkResult::advance();
        })
        .wasInterrupted();
  };
  for (TensorOp tensor : tensors) {
    ReduceOp sum = soleReduction(tensor);
    bool summed =
        sum && sum.getKind() == ReduceKind::Sum && readsWeights(sum) && !valuesDependOnQueries(tensor, weights);
    if (isSoftmax(tensor) || isLogSumExp(tensor) || summed)
      roots.insert(tensor.getResult());
  }

  // Rule 1, in the order of definition, so that what is inlined has swallowed its own sources before.
  for (TensorOp tensor : tensors) {
    SmallVector<ReadOp> reads;
    tensor.getBody().walk([&](ReadOp read) { reads.push_back(read); });
    for (ReadOp read : reads)
      if (TensorOp source = inlinable(read, roots); source && isCheap(source) && !divides(read, source))
        substituteFormula(read, source);
  }

  // Rule 2. A sum is treated as one over keys when something in it belongs inside; then it is a root from there on.
  for (TensorOp tensor : tensors) {
    ReduceOp reduce = soleReduction(tensor);
    bool sums = reduce && reduce.getKind() == ReduceKind::Sum && !valuesDependOnQueries(tensor, weights);
    if (isStoredWithPairs(tensor) || !(roots.contains(tensor.getResult()) || sums))
      continue;
    Root root = Root::of(tensor);
    inlineInto(root);
  }
  inlineIntoPairs(kernel);

  // Rule 3.
  eraseUnread(tensors);
  for (TensorOp tensor : tensors) {
    SmallVector<ReadOp> reads(tensor.getBody().front().getOps<ReadOp>());
    for (ReadOp read : reads) {
      TensorOp source = inlinable(read, roots);
      bool once = source && source.getResult().hasOneUse() &&
                  dependence(read.getSubscripts()).size() == tensor.getBody().getNumArguments();
      if (once && !endsPlacedSum(source, tensor))
        substituteFormula(read, source);
    }
  }

  eraseUnread(tensors);
}

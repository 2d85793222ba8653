//===- Cost.cpp - What a kernel's formulas cost ---------------------------===//

#include "attn/Analysis/Cost.h"
#include "attn/Analysis/Dependence.h"
#include "attn/Analysis/PlacedSum.h"
#include "attn/Analysis/Scan.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace attn;

Cost &Cost::operator+=(const Cost &other) {
  flops += other.flops;
  calls += other.calls;
  bytes += other.bytes;
  return *this;
}

/// Whether `reduce` is the other choice: its condition is a flag's negation.
static bool isOtherwise(ReduceOp reduce) {
  if (!reduce.isConditional())
    return false;
  auto negation = yielded(reduce.getWhere()).getDefiningOp<arith::XOrIOp>();
  return negation && matchPattern(negation.getRhs(), m_One()) && dependence(negation.getResult()).empty();
}

/// Operations of arith on floats that compute something.
static bool isArithmetic(Operation *op) {
  return isa<arith::AddFOp, arith::SubFOp, arith::MulFOp, arith::DivFOp, arith::NegFOp, arith::MaximumFOp,
             arith::MinimumFOp>(op);
}

bool attn::isFunction(Operation *op) {
  return isa<math::MathDialect>(op->getDialect()) && !isa<math::AbsFOp, math::AbsIOp>(op);
}

/// What a softmax costs for one score: one exponential; maximum, difference, sum, quotient.
static Cost softmaxOf(const SizePolynomial &scores) { return {scores * 4, scores, 0}; }

namespace {
/// How often an operation is computed: once for all values of the indices around it, or once at all where it depends on
/// none; in a score or weight, once for all but the key where it does not depend on that, and once for all columns but
/// where it depends on these.
struct Times {
  SizePolynomial pairs, rows;
  BlockArgument key;         ///< Null where no index is a key; then `rows` means nothing.
  BlockArgument column = {}; ///< The value index of a weighted sum, which `pairs` and `rows` do not count.

  SizePolynomial of(Operation &op) const {
    IndexSet indices = dependence(op.getResult(0));
    if (indices.empty() && !isa<ReduceOp>(op))
      return 1;
    const SizePolynomial &times = key && !indices.contains(key) ? rows : pairs;
    return column && indices.contains(column) ? times * indexSize(column) : times;
  }
  Times operator*(const SizePolynomial &size) const { return {pairs * size, rows * size, key, column}; }
};
} // namespace

/// Adds the cost of what `block` computes `times` times, and of its reductions, `ofReductions` times.
static void addBlock(Block &block, const Times &times, const Times &ofReductions, Cost &cost);

static void addReduction(ReduceOp reduce, Times times, Cost &cost) {
  bool whole = isExponential(reduce.getKind());
  if (whole) {
    // Once for each row, not for each of its elements.
    IndexSet rows;
    for (Region &region : reduce->getRegions())
      if (!region.empty())
        for (BlockArgument index : dependence(region.front().getTerminator()->getOperands()))
          if (index.getParentRegion() != &region)
            rows.insert(index);
    times = {1, 1, {}};
    for (BlockArgument row : rows)
      times = times * indexSize(row);
  }
  for (SizeAttr size : reduce.getSizes().getAsRange<SizeAttr>())
    times = times * size;
  for (Region &region : reduce->getRegions())
    if (!region.empty())
      addBlock(region.front(), times, times, cost);
  if (whole)
    cost += softmaxOf(times.pairs);
  else if (isa<FloatType>(reduce.getType()))
    cost.flops += times.of(*reduce);
}

static void addBlock(Block &block, const Times &times, const Times &ofReductions, Cost &cost) {
  for (Operation &op : block) {
    if (auto reduce = dyn_cast<ReduceOp>(op)) {
      if (!isOtherwise(reduce))
        addReduction(reduce, ofReductions, cost);
    } else if (isArithmetic(&op)) {
      cost.flops += times.of(op);
    } else if (isFunction(&op)) {
      cost.calls += times.of(op);
    }
  }
}

static SizePolynomial elements(AttnTensorType type) {
  SizePolynomial count = 1;
  for (SizeAttr size : type.getShape())
    count = count * size;
  return count;
}

static SizePolynomial bytesOf(AttnTensorType type, Type element) {
  return elements(type) * std::max(1u, element.getIntOrFloatBitWidth() / 8);
}

Cost attn::costOf(Operation *op) {
  auto definition = dyn_cast<DefinitionOpInterface>(op);
  if (auto softmax = dyn_cast<SoftmaxOp>(op))
    return softmaxOf(elements(cast<AttnTensorType>(softmax.getScore().getType())));
  Cost cost;
  if (!definition)
    return cost;
  Times times = {1, 1, {}};
  std::optional<PlacedSum> placed = PlacedSum::of(definition);
  std::optional<Scan> scan = Scan::of(definition);
  auto isFree = [&](BlockArgument index) { // a term is computed for its own place, and once for the ends after it
    return (placed && placed->isPlace(index.getArgNumber())) || (scan && scan->end == index);
  };
  Block::BlockArgListType indices = definition.getBody().getArguments();
  bool isSum = isa<WeightedSumOp>(op);
  if (!isa<TensorOp>(op)) {
    times.key = indices.back();
    times.pairs = indexSize(times.key);
    indices = indices.drop_back();
  }
  if (isSum && !indices.empty()) {
    times.column = indices.back();
    indices = indices.drop_back();
  }
  Times ofReductions = times;
  for (BlockArgument index : indices) {
    times = times * indexSize(index);
    if (!isFree(index))
      ofReductions = ofReductions * indexSize(index);
  }
  addBlock(definition.getBody().front(), times, ofReductions, cost);
  if (isSum)
    cost.flops += (times.column ? times.pairs * indexSize(times.column) : times.pairs) * 2;
  return cost;
}

Cost attn::costOf(KernelOp kernel) {
  Cost cost;
  for (Operation &op : kernel.getBody().front()) {
    cost += costOf(&op);
    for (Value result : op.getResults()) {
      auto type = dyn_cast<AttnTensorType>(result.getType());
      bool inside = llvm::any_of(result.getUsers(), [](Operation *user) { return !isa<ReturnOp>(user); });
      // Written, and read again.
      if (type && isa<TensorOp, WeightedSumOp>(op) && inside)
        cost.bytes += bytesOf(type, type.getElementType()) * 2;
    }
  }
  for (auto [index, parameter] : llvm::enumerate(kernel.getParameters())) {
    AttnTensorType type = kernel.getParameterType(index);
    cost.bytes += bytesOf(type, type.getElementType());
  }
  ReturnOp returned = kernel.getReturn();
  for (auto [index, output] : llvm::enumerate(returned.getOutputs()))
    cost.bytes += bytesOf(cast<AttnTensorType>(output.getType()), returned.getOutputType(index).getElementType());
  return cost;
}

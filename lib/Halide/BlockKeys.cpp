//===- BlockKeys.cpp - The keys that a block of rows needs -----------------===//
//
// From the masks of a block's pairs, as for the tiles of a softmax: the least lower and the greatest upper bound of the
// keys over its rows. Outside, its pairs are 0, and are neither computed nor read.
//
//===----------------------------------------------------------------------===//

#include "KeyBounds.h"
#include "StepLowering.h"

using Halide::Expr;
using Halide::Func;
using Halide::RDom;

namespace attn::lowering {

/// The keys at which `pairs` may be other than 0.
static KeyRange rangeOf(TensorOp pairs) {
  mlir::Value mask = maskOf(pairs);
  return mask ? maskRange(mask, pairs.getBody().getArguments().back()).possible : KeyRange();
}

/// The smallest (or largest) bound over the rows of the block.
static Expr overRows(StepLowering &step, TensorOp pairs, const KeyBound &bound, bool largest, Expr keyCount) {
  Environment environment;
  Halide::Region ranges = {{0, 1}};
  llvm::SmallVector<mlir::BlockArgument> rows;
  IndexSet indices = dependence(maskOf(pairs));
  for (mlir::BlockArgument index : indices)
    if (index != pairs.getBody().getArguments().back()) {
      auto [first, count] = step.values(index);
      rows.push_back(index);
      ranges.push_back({first, count});
    }
  RDom domain(ranges);
  for (auto [dimension, index] : llvm::enumerate(rows))
    environment.indices[index] = {domain[dimension + 1], {}, false, {}};
  PlainRegion lowering(step, environment);
  // An update is a loop over the variables that it mentions.
  Expr key = boundOfKeys(bound, lowering, keyCount) + Halide::select(domain[0] < 0, 1, 0);
  Func keys(step.uniqueName(largest ? "upper" : "lower"));
  keys() = largest ? Expr(0) : keyCount;
  keys() = largest ? Halide::max(keys(), key) : Halide::min(keys(), key);
  keys.compute_root();
  return keys();
}

bool StepLowering::storeKeys() {
  if (plan.gpu) // the host, which decides what is run, would have to wait for the device to find them
    return false;
  mlir::BlockArgument key = blocks->indices().back();
  Expr count = extent(*this, indexSize(key)), lower = count, upper = 0;
  llvm::SmallVector<std::pair<TensorOp, KeyRange>> ranges;
  for (TensorOp statement : blocks->statements)
    if (isPairs(statement.getResult()))
      ranges.push_back({statement, rangeOf(statement)});
  bool isBounded = llvm::all_of(ranges, [](const auto &each) { return each.second.lower || each.second.upper; });
  if (!isBounded)
    return false;
  for (auto &[pairs, range] : ranges) {
    Expr least = range.lower ? overRows(*this, pairs, *range.lower, false, count) : Expr(0);
    Expr most = range.upper ? overRows(*this, pairs, *range.upper, true, count) : count;
    lower = Halide::min(lower, least);
    upper = Halide::max(upper, most);
  }
  Halide::Var which("which");
  Func func(uniqueName("keys"));
  func(which) = Halide::select(which == 0, lower, upper);
  addOutput(func, {HalideArgument::Keys, 0});
  return true;
}

} // namespace attn::lowering

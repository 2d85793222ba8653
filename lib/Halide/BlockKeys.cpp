//===- BlockKeys.cpp - The keys that a block of rows needs -----------------===//
//
// From the masks of a block's pairs, as for the tiles of a softmax: the least lower and the greatest upper bound of the
// keys over its rows. Outside, its pairs are 0, and are neither computed nor read.
//
//===----------------------------------------------------------------------===//

#include "KeyBounds.h"
#include "StepLowering.h"
#include "attn/Analysis/Scan.h"

using Halide::Expr;
using Halide::Func;
using Halide::RDom;

namespace attn::lowering {

namespace {
/// A condition with bounds for the keys at which it may hold.
struct BoundedMask {
  mlir::Value condition;
  mlir::BlockArgument key;
  KeyRange range;

  static BoundedMask of(mlir::Value condition, mlir::BlockArgument key) {
    return {condition, key, condition ? maskRange(condition, key).possible : KeyRange()};
  }
  bool isBounded() const { return range.lower || range.upper; }
};
} // namespace

/// Whether the terms of `scan`, a sum, are 0 where some pairs are that have a mask.
static bool followsMasked(const Scan &scan) {
  if (ReduceOp(scan.reduce).getKind() != ReduceKind::Sum)
    return false;
  mlir::Region &body = ReduceOp(scan.reduce).getBody();
  return llvm::any_of(body.getOps<ReadOp>(), [&](ReadOp read) {
    auto source = read.getTensor().getDefiningOp<TensorOp>();
    return isPairs(read.getTensor()) && maskOf(source) && isMultipleOf(yielded(body), read);
  });
}

/// What bounds the keys at which some row needs `pairs`: their mask; or the conditions of the terms of a scan along
/// keys that pairs alone read, none where its terms have the keys of other pairs. Without a bound it needs all.
static llvm::SmallVector<BoundedMask> masksOf(TensorOp pairs) {
  std::optional<Scan> scan = Scan::of(pairs);
  bool isReadByPairs = llvm::all_of(pairs.getResult().getUsers(), [](mlir::Operation *user) {
    return isPairs(user->getParentOfType<TensorOp>().getResult());
  });
  if (!scan || !scan->isAlongLast() || !isReadByPairs)
    return {BoundedMask::of(maskOf(pairs), pairs.getBody().getArguments().back())};
  llvm::SmallVector<BoundedMask> masks;
  auto add = [&](mlir::Value condition, mlir::Region &region) {
    if (BoundedMask mask = BoundedMask::of(condition, region.getArgument(0)); mask.isBounded())
      masks.push_back(mask);
  };
  for (mlir::Value condition : scan->conditions)
    add(condition, scan->reduce.getWhere());
  auto choice = yielded(scan->reduce.getBody()).getDefiningOp<mlir::arith::SelectOp>();
  if (choice && choosesZero(choice) && scan->reduce.getKind() == ReduceKind::Sum)
    add(choice.getCondition(), scan->reduce.getBody());
  if (masks.empty() && !followsMasked(*scan))
    masks.emplace_back();
  return masks;
}

/// The smallest (or largest) bound over the rows of the block.
static Expr overRows(StepLowering &step, const BoundedMask &mask, bool largest, Expr keyCount) {
  Environment environment;
  Halide::Region ranges = {{0, 1}};
  llvm::SmallVector<mlir::BlockArgument> rows;
  for (mlir::BlockArgument index : dependence(mask.condition))
    if (index != mask.key) {
      auto [first, count] = step.values(index);
      rows.push_back(index);
      ranges.push_back({first, count});
    }
  RDom domain(ranges);
  for (auto [dimension, index] : llvm::enumerate(rows))
    environment.indices[index] = {domain[dimension + 1], {}, false, {}};
  PlainRegion lowering(step, environment);
  const KeyBound &bound = largest ? *mask.range.upper : *mask.range.lower;
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
  llvm::SmallVector<BoundedMask> masks;
  for (TensorOp statement : blocks->statements)
    if (isPairs(statement.getResult()))
      masks.append(masksOf(statement));
  if (masks.empty() || !llvm::all_of(masks, [](const BoundedMask &mask) { return mask.isBounded(); }))
    return false;
  for (const BoundedMask &mask : masks) {
    Expr least = mask.range.lower ? overRows(*this, mask, false, count) : Expr(0);
    Expr most = mask.range.upper ? overRows(*this, mask, true, count) : count;
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

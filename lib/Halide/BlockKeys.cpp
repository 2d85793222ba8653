//===- BlockKeys.cpp - The keys that a block of rows needs -----------------===//
//
// From the masks of a block's pairs, as for the tiles of a softmax: the least lower and the greatest upper bound of the
// keys over its rows, by their text or by a look at the keys. Outside, its pairs are 0, and are neither computed nor
// read.
//
//===----------------------------------------------------------------------===//

#include "KeyBounds.h"
#include "KeySearch.h"
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
  int inVector = 0; ///< As many keys are looked at together, if not the text alone bounds them.

  BoundedMask() = default;
  BoundedMask(mlir::Value condition, mlir::BlockArgument key, int lanes) : condition(condition), key(key) {
    if (!condition)
      return;
    range = maskRange(condition, key).possible;
    inVector = keysInVector(condition, key, lanes);
  }
  bool isBounded() const { return range.lower || range.upper || inVector; }
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
static llvm::SmallVector<BoundedMask> masksOf(TensorOp pairs, int lanes) {
  std::optional<Scan> scan = Scan::of(pairs);
  bool isReadByPairs = llvm::all_of(pairs.getResult().getUsers(), [](mlir::Operation *user) {
    return isPairs(user->getParentOfType<TensorOp>().getResult());
  });
  if (!scan || !scan->isAlongLast() || !isReadByPairs)
    return {BoundedMask(maskOf(pairs), pairs.getBody().getArguments().back(), lanes)};
  llvm::SmallVector<BoundedMask> masks;
  auto add = [&](mlir::Value condition, mlir::Region &region) {
    if (BoundedMask mask(condition, region.getArgument(0), lanes); mask.isBounded())
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

/// Whether formulas without reductions, of statements with the same indices, are the same.
static bool isSameFormula(mlir::Value a, mlir::Value b) {
  auto argument = mlir::dyn_cast<mlir::BlockArgument>(a), other = mlir::dyn_cast<mlir::BlockArgument>(b);
  if (a == b || argument || other)
    return a == b || (argument && other && argument.getArgNumber() == other.getArgNumber() &&
                      indexName(argument) == indexName(other) && indexSize(argument) == indexSize(other));
  auto areSame = [](mlir::Value x, mlir::Value y) { return mlir::success(isSameFormula(x, y)); };
  return mlir::OperationEquivalence::isEquivalentTo(a.getDefiningOp(), b.getDefiningOp(), areSame, nullptr,
                                                    mlir::OperationEquivalence::IgnoreLocations);
}

/// The rows of the block that change a mask: by which indices, and which of each.
static std::pair<llvm::SmallVector<mlir::BlockArgument>, Halide::Region> rowsOf(StepLowering &step,
                                                                                const BoundedMask &mask) {
  llvm::SmallVector<mlir::BlockArgument> rows;
  Halide::Region ranges;
  llvm::SmallVector<mlir::BlockArgument> all = inOrder(dependence(mask.condition));
  for (mlir::BlockArgument index : llvm::reverse(all))
    if (index != mask.key) {
      auto [first, count] = step.values(index);
      rows.push_back(index);
      ranges.push_back({first, count});
    }
  return {rows, ranges};
}

/// Such a row.
static Environment bindRow(llvm::ArrayRef<mlir::BlockArgument> indices, llvm::ArrayRef<Expr> row) {
  Environment environment;
  for (auto [index, at] : llvm::zip(indices, row))
    environment.indices[index] = {at, {}, false, {}};
  return environment;
}

/// The smallest (or largest) bound over the rows of the block.
static Expr overRows(StepLowering &step, const BoundedMask &mask, bool largest, Expr keyCount) {
  auto [rows, ranges] = rowsOf(step, mask);
  ranges.push_back({0, 1}); // for a mask that no row changes
  RDom domain(ranges);
  Environment environment = bindRow(rows, loopsOf(domain, 0, rows.size()));
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

/// Of the keys that the step is given those from `least` to `most` are looked at.
static KeySearch searchKeys(StepLowering &step, const BoundedMask &mask, Expr least, Expr most, Expr keyCount,
                            int lanes) {
  auto [rows, ranges] = rowsOf(step, mask);
  auto [first, count] = step.values(mask.key);
  KeySearch::Part part{
      first / mask.inVector * mask.inVector, count / mask.inVector, first + count >= keyCount, keyCount, least, most};
  auto atRow = [&](mlir::Value value, llvm::ArrayRef<Expr> row, const IndexBinding &key) {
    Environment environment = bindRow(rows, row);
    environment.indices[mask.key] = key;
    return PlainRegion(step, environment).expression(value);
  };
  KeySearch search(step, {}, ranges, part, mask.inVector, mask.condition, atRow);
  search.computeAt(Halide::LoopLevel::root(), Halide::LoopLevel::root(), lanes);
  return search;
}

BlockKeys StepLowering::storeKeys() {
  if (plan.gpu) // the host, which decides what is run, would have to wait for the device to find them
    return BlockKeys::All;
  mlir::BlockArgument key = blocks->indices().back();
  Expr count = extent(*this, indexSize(key)), lower = count, upper = 0;
  llvm::SmallVector<BoundedMask> masks;
  for (TensorOp statement : blocks->statements)
    if (isPairs(statement.getResult()))
      for (const BoundedMask &mask : masksOf(statement, plan.lanes)) {
        auto isSame = [&](const BoundedMask &other) {
          return mask.inVector && other.inVector && isSameFormula(mask.condition, other.condition);
        };
        if (llvm::none_of(masks, isSame))
          masks.push_back(mask);
      }
  if (masks.empty() || !llvm::all_of(masks, [](const BoundedMask &mask) { return mask.isBounded(); }))
    return BlockKeys::All;
  for (const BoundedMask &mask : masks) {
    Expr first = mask.range.lower ? overRows(*this, mask, false, count) : Expr(0);
    Expr end = mask.range.upper ? overRows(*this, mask, true, count) : count;
    if (mask.inVector) {
      KeySearch search = searchKeys(*this, mask, first, end, count, plan.lanes);
      first = search.firstOr(0);
      end = search.endOr(count);
    }
    lower = Halide::min(lower, first);
    upper = Halide::max(upper, end);
  }
  bool isSearched = llvm::any_of(masks, [](const BoundedMask &mask) { return mask.inVector; });
  if (isSearched) {
    auto [first, given] = values(key);
    lower = Halide::max(lower, first);
    upper = Halide::min(upper, first + given);
  }
  Halide::Var which("which");
  Func func(uniqueName("keys"));
  func(which) = Halide::select(which == 0, lower, upper);
  addOutput(func, {HalideArgument::Keys, 0});
  return isSearched ? BlockKeys::Searched : BlockKeys::OfText;
}

} // namespace attn::lowering

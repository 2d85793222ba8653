//===- Scan.cpp - Reductions of the terms up to an index ------------------===//

#include "attn/Analysis/Scan.h"
#include "attn/Analysis/Dependence.h"
#include "attn/Analysis/PlacedSum.h"

using namespace mlir;
using namespace attn;

/// The scan of `reduce` whose end `condition` compares its index with. Its other conditions are not there yet.
static std::optional<Scan> comparedBy(Value condition, ReduceOp reduce) {
  std::optional<IndexOrder> order = IndexOrder::of(condition);
  BlockArgument term = reduce.getWhere().getArgument(0);
  if (!order || (order->smaller == term) == (order->larger == term))
    return std::nullopt;
  bool isReversed = order->larger == term;
  return Scan{reduce, isReversed ? order->smaller : order->larger, isReversed, order->isStrict, condition, {}};
}

/// Whether `a` is further in than `b`.
static bool isInside(BlockArgument a, BlockArgument b) {
  if (a.getOwner() == b.getOwner())
    return a.getArgNumber() > b.getArgNumber();
  return b.getParentRegion()->isProperAncestor(a.getParentRegion());
}

std::optional<Scan> Scan::of(ReduceOp reduce) {
  bool isPlain = reduce.getKind() == ReduceKind::Sum || isExtreme(reduce.getKind());
  if (!isPlain || reduce.getSizes().size() != 1 || !reduce.isConditional())
    return std::nullopt;
  std::optional<Scan> innermost;
  SmallVector<Value> conjuncts = conjunctsOf(yielded(reduce.getWhere()));
  for (Value condition : conjuncts) {
    std::optional<Scan> scan = comparedBy(condition, reduce);
    if (!scan || (innermost && !isInside(scan->end, innermost->end)))
      continue;
    llvm::copy_if(conjuncts, std::back_inserter(scan->conditions), [&](Value each) { return each != condition; });
    SmallVector<Value> others(scan->conditions);
    others.push_back(yielded(reduce.getBody()));
    if (!dependence(others).contains(scan->end))
      innermost = std::move(scan);
  }
  return innermost;
}

std::optional<Scan> Scan::of(DefinitionOpInterface op) {
  auto tensor = dyn_cast<TensorOp>(op.getOperation());
  auto reduce = tensor ? yielded(tensor.getBody()).getDefiningOp<ReduceOp>() : ReduceOp();
  std::optional<Scan> scan = reduce ? of(reduce) : std::nullopt;
  bool isPlain = scan && reduce.getBody().getOps<ReduceOp>().empty() && reduce.getWhere().getOps<ReduceOp>().empty();
  return isPlain && scan->end.getParentRegion() == &tensor.getBody() ? std::move(scan) : std::nullopt;
}

Value attn::indexAlong(Value subscript, TensorOp statement) {
  std::optional<Scan> scan = Scan::of(statement);
  auto isTerms = [&](Region &region) { return subscript == region.getArgument(0); };
  bool isOfLast = scan && scan->isAlongLast() && llvm::any_of(scan->reduce->getRegions(), isTerms);
  return isOfLast ? scan->end : subscript;
}

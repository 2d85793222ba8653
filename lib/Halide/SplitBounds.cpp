//===- SplitBounds.cpp - The split plan: between which keys groups of rows see some ---===//
//
// Of all rows that share keys, so that all stages of a task have the same: from the text of the mask, or, where that
// does not say all of it and it takes little, by a look at all keys. These are read for each column of a value, the
// mask once.
//
//===----------------------------------------------------------------------===//

#include "KeyBounds.h"
#include "Split.h"

using Halide::Expr;
using Halide::Func;
using Halide::RDom;
using Halide::select;

namespace attn::lowering {

Halide::Region Split::allRows() {
  llvm::ArrayRef<SizeAttr> shape = op.getResult().getType().getShape();
  Halide::Region sizes;
  for (const Shared &index : shared)
    for (unsigned position = 0; position < vars.size(); ++position)
      if (vars[vars.size() - 1 - position].same_as(index.index))
        sizes.push_back({0, extent(kernel, shape[position])});
  return sizes;
}

Environment Split::bindRows(llvm::ArrayRef<Expr> row, IndexBinding key) {
  mlir::Region &region = softmax || op.getWhere().empty() ? op.getBody() : op.getWhere();
  Environment environment = bindResult(region, key);
  for (auto [index, at] : llvm::zip(shared, row))
    environment.rebind(index.index, {at, {}, false, {}});
  if (softmax)
    bindScore(environment);
  return environment;
}

std::vector<Halide::Var> Split::groupVars() const {
  std::vector<Halide::Var> result;
  for (const Own &index : own)
    result.push_back(index.index);
  return result;
}

void Split::boundKeys() {
  upper = keyCount;
  mlir::Value condition;
  if (softmax && softmax.getMask())
    condition = yielded(bodyOf(softmax.getMask()));
  else if (!softmax && !op.getWhere().empty())
    condition = yielded(op.getWhere());
  if (!condition)
    return;
  std::vector<Expr> ofTask, ofGroup;
  for (const Own &index : own) {
    ofTask.push_back(index.value);
    ofGroup.push_back(index.index);
  }
  mlir::BlockArgument key = condition.getParentRegion()->getArguments().back();
  KeyRange range = maskRange(condition, key).possible;
  Func first = range.lower ? boundOverRows("lower", *range.lower, false) : Func();
  Func end = range.upper ? boundOverRows("upper", *range.upper, true) : Func();
  if (int inVector = keysInVector(condition, key, lanes)) {
    KeySearch::Part all{0,
                        keyCount / inVector,
                        Halide::Internal::const_true(),
                        keyCount,
                        range.lower ? Expr(first(ofGroup)) : Expr(0),
                        range.upper ? Expr(end(ofGroup)) : keyCount};
    auto atRow = [&](mlir::Value value, llvm::ArrayRef<Expr> row, const IndexBinding &key) {
      Environment environment = bindRows(row, key);
      return PlainRegion(kernel, environment).expression(value);
    };
    search.emplace(kernel, groupVars(), allRows(), all, inVector, condition, atRow);
    seenKeys = Func(kernel.uniqueName("seen_keys"));
    seenKeys(groupVars()) = {search->firstOr(0, ofGroup), search->endOr(keyCount, ofGroup)};
    rangeFuncs.push_back(seenKeys);
    lower = seenKeys(ofTask)[0];
    upper = seenKeys(ofTask)[1];
    return;
  }
  if (range.lower)
    lower = first(ofTask);
  if (range.upper)
    upper = end(ofTask);
}

Func Split::boundOverRows(const char *name, const KeyBound &bound, bool largest) {
  Halide::Region sizes = allRows();
  RDom all = sizes.empty() ? RDom(0, 1) : RDom(sizes);
  Environment environment = bindRows(loopsOf(all, 0, shared.size()), {Expr(0), {}, false, {}});
  PlainRegion lowering(kernel, environment);
  std::vector<Halide::Var> group = groupVars();
  std::vector<Expr> at(group.begin(), group.end());
  Func keys(kernel.uniqueName(name));
  Expr key = boundOfKeys(bound, lowering, keyCount);
  keys(group) = largest ? Expr(0) : keyCount;
  // Halide takes an update for a reduction only if it mentions the variable.
  key += select(all[0] < 0, 1, 0);
  keys(at) = largest ? Halide::max(keys(at), key) : Halide::min(keys(at), key);
  rangeFuncs.push_back(keys);
  return keys;
}

} // namespace attn::lowering

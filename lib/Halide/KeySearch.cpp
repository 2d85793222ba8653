//===- KeySearch.cpp - Keys that a condition lets through ------------------===//

#include "KeySearch.h"
#include "Hints.h"
#include "attn/Analysis/KeyRange.h"

using Halide::cast;
using Halide::Expr;
using Halide::RDom;
using Halide::select;

namespace attn::lowering {

int keysInVector(mlir::Value condition, mlir::BlockArgument key, int lanes) {
  return std::min<int64_t>(keysSearchedAtOnce(condition, key), 4 * lanes);
}

/// With keys in lanes, as they lie in memory: whole vectors, then one that ends with the last key.
KeySearch::KeySearch(StepLowering &kernel, const std::vector<Halide::Var> &group, const Halide::Region &rows,
                     const Part &part, int inVector, Condition condition, Visit visit)
    : inVector(inVector), isEnough(part.keyCount >= inVector), seen(kernel.uniqueName("seen")),
      first(kernel.uniqueName("first_seen")), end(kernel.uniqueName("end_seen")) {
  Expr last = part.keyCount - inVector;
  std::vector<Expr> at(group.begin(), group.end()), element = at;
  element.insert(element.begin(), {lane, vector});
  seen(element) = cast<uint8_t>(0);
  auto search = [&](const RDom &domain, Expr vector, Expr firstKey) {
    Expr key = Halide::unsafe_promise_clamped(firstKey + lane, 0, Halide::max(part.keyCount, 1) - 1);
    Expr isSeen = unconditional(condition(domain, {key, {lane}, false, {}}));
    element[1] = vector;
    seen(element) = select(isSeen, cast<uint8_t>(1), seen(element));
  };
  Halide::Region ranges = rows;
  ranges.push_back({0, part.vectors});
  RDom whole(ranges);
  Expr number = whole[rows.size()];
  visit(whole, number);
  whole.where(part.first + number * inVector <= last);
  search(whole, number, part.first + number * inVector);
  ranges.back() = {0, 1};
  RDom rest(ranges);
  rest.where(rest[rows.size()] < select(isEnough && part.hasEnd && part.keyCount % inVector != 0, 1, 0));
  search(rest, part.vectors + rest[rows.size()], last);

  all = RDom(0, inVector, 0, part.vectors + 1);
  element[0] = all.x;
  element[1] = all.y;
  Expr key = select(all.y < part.vectors, part.first + all.y * inVector, last) + all.x, isSeen = seen(element) != 0;
  first(at) = part.keyCount;
  first(at) = Halide::min(first(at), select(isSeen, key, part.keyCount));
  end(at) = 0;
  end(at) = Halide::max(end(at), select(isSeen, key + 1, 0));
}

void KeySearch::computeAt(const Halide::LoopLevel &level, int lanes) {
  seen.compute_at(level).bound(lane, 0, inVector).vectorize(lane);
  seen.update(0).vectorize(lane);
  seen.update(1).vectorize(lane);
  for (Halide::Func each : {first, end}) {
    each.compute_at(level);
    each.update().atomic().vectorize(all.x, std::min(lanes, inVector));
  }
}

Expr KeySearch::firstOr(const Expr &otherwise, const std::vector<Expr> &at) const {
  return select(isEnough, first(at), otherwise);
}

Expr KeySearch::endOr(const Expr &otherwise, const std::vector<Expr> &at) const {
  return select(isEnough, end(at), otherwise);
}

} // namespace attn::lowering

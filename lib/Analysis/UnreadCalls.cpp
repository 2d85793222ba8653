//===- UnreadCalls.cpp - Calls in which nobody reads a tensor --------------===//

#include "attn/Analysis/UnreadCalls.h"
#include "attn/Analysis/PlacedSum.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/Matchers.h"

#include <algorithm>

using namespace mlir;
using namespace attn;

using Calls = SmallVector<SizeLimit>;

/// Adds the calls within `limit`.
static void add(Calls &calls, SizeLimit limit) {
  auto *same = llvm::find_if(calls, [&](const SizeLimit &each) { return each.size == limit.size; });
  if (same == calls.end())
    calls.push_back(limit);
  else
    same->atMost = std::max(same->atMost, limit.atMost);
}

static void add(Calls &calls, const Calls &others) {
  for (const SizeLimit &limit : others)
    add(calls, limit);
}

/// Those in which `condition` is false because a size is too small.
static Calls falseIn(Value condition) {
  Calls found;
  for (Value each : conjunctsOf(condition)) {
    if (auto read = each.getDefiningOp<ReadOp>())
      if (auto flag = read.getTensor().getDefiningOp<TensorOp>(); flag && flag.getIndices().empty())
        add(found, falseIn(yielded(flag.getBody())));
    auto compare = each.getDefiningOp<arith::CmpIOp>();
    auto size = compare ? compare.getLhs().getDefiningOp<SizeOp>() : SizeOp();
    APInt limit;
    if (size && size.getSize().isName() && compare.getPredicate() == arith::CmpIPredicate::sgt &&
        matchPattern(compare.getRhs(), m_ConstantInt(&limit)))
      add(found, {size.getSize(), limit.getSExtValue()});
  }
  return found;
}

/// Those in which the read is of terms that are skipped.
static Calls skippedIn(ReadOp read) {
  Calls found;
  for (Operation *inner = read; !isa<KernelOp>(inner->getParentOp()); inner = inner->getParentOp())
    if (auto reduce = dyn_cast<ReduceOp>(inner->getParentOp());
        reduce && reduce.isConditional() && inner->getParentRegion() == &reduce.getBody())
      add(found, falseIn(yielded(reduce.getWhere())));
  return found;
}

/// Those of both.
static Calls intersect(const Calls &first, const Calls &second) {
  Calls both;
  for (const SizeLimit &a : first)
    for (const SizeLimit &b : second)
      if (a.size == b.size)
        add(both, {a.size, std::min(a.atMost, b.atMost)});
  return both;
}

/// Those in which `tensor` is empty, because a size is too small for one of its dimensions, the size by a constant.
static Calls emptyIn(Value tensor) {
  Calls found;
  for (SizeAttr size : cast<AttnTensorType>(tensor.getType()).getShape())
    if (size.getKind() == SizeKind::FloorDiv && size.getLhs().isName() && size.getRhs().isConstant() &&
        size.getRhs().getValue() > 1)
      add(found, {size.getLhs(), size.getRhs().getValue() - 1});
  return found;
}

SmallVector<SizeLimit> attn::findUnreadCalls(Value tensor) {
  std::optional<Calls> all;
  for (Operation *user : tensor.getUsers()) {
    auto read = dyn_cast<ReadOp>(user);
    if (!read)
      return {};
    Calls calls = skippedIn(read);
    all = all ? intersect(*all, calls) : calls;
  }
  Calls found = all.value_or(Calls());
  add(found, emptyIn(tensor));
  return found;
}

//===- Distance.cpp - What the distance of two indices decides ------------===//

#include "attn/Analysis/Distance.h"
#include "attn/Analysis/Cost.h"
#include "attn/Analysis/Dependence.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace attn;

bool Distance::decides(Value value) {
  auto [known, isNew] = decided.try_emplace(value, false);
  if (isNew) {
    bool result = isDecided(value); // which adds to the map
    return decided[value] = result;
  }
  return known->second;
}

bool Distance::choosesRows(Value value) {
  if (!dependence(value).contains(query))
    return true;
  Operation *op = value.getDefiningOp();
  if (!op || op->getNumRegions())
    return false;
  auto read = dyn_cast<ReadOp>(op);
  if (!read)
    return llvm::all_of(op->getOperands(), [&](Value operand) { return choosesRows(operand); });
  auto changing = llvm::make_filter_range(read.getSubscripts(), [&](Value subscript) { return changes(subscript); });
  return isa<FloatType>(read.getType()) && llvm::hasSingleElement(changing) && decides(*changing.begin());
}

bool Distance::isCostly(Value value) const {
  return anyInSlice(value,
                    [&](Operation *op) { return (isFunction(op) || isa<ReduceOp>(op)) && changes(op->getResult(0)); });
}

bool Distance::changes(Value value) const {
  IndexSet used = dependence(value);
  return used.contains(query) || used.contains(key);
}

bool Distance::isDecided(Value value) {
  if (!changes(value))
    return true;
  if (std::optional<Place> place = placeOf(value); place && place->query + place->key == 0)
    return true;
  Operation *op = value.getDefiningOp();
  return op && llvm::all_of(op->getOperands(), [&](Value operand) { return decides(operand); }) &&
         llvm::all_of(op->getRegions(), [&](Region &region) { return region.empty() || decides(yielded(region)); });
}

std::optional<Distance::Place> Distance::placeOf(Value value) const {
  if (!isa<IntegerType>(value.getType()))
    return std::nullopt;
  if (value == query)
    return Place{1, 0};
  if (value == key)
    return Place{0, 1};
  if (!changes(value))
    return Place{0, 0};
  Operation *op = value.getDefiningOp();
  if (!isa_and_nonnull<arith::AddIOp, arith::SubIOp, arith::MulIOp>(op))
    return std::nullopt;
  std::optional<Place> left = placeOf(op->getOperand(0)), right = placeOf(op->getOperand(1));
  if (!left || !right)
    return std::nullopt;
  if (isa<arith::MulIOp>(op)) {
    APInt factor;
    Place place;
    if (!matchPattern(op->getOperand(1), m_ConstantInt(&factor)) ||
        llvm::MulOverflow(left->query, factor.getSExtValue(), place.query) ||
        llvm::MulOverflow(left->key, factor.getSExtValue(), place.key))
      return std::nullopt;
    return place;
  }
  int sign = isa<arith::AddIOp>(op) ? 1 : -1;
  return Place{left->query + sign * right->query, left->key + sign * right->key};
}

static bool shareNames(SizeAttr a, SizeAttr b) {
  bool found = false;
  a.forEachName([&](StringAttr name) { b.forEachName([&](StringAttr other) { found |= name == other; }); });
  return found;
}

bool attn::choosesFewRows(Value row, SizeAttr rows) {
  SmallVector<BlockArgument> pair = inOrder(dependence(row));
  auto counts = [&](BlockArgument index) { return shareNames(rows, indexSize(index)); };
  return pair.size() == 2 && llvm::none_of(pair, counts) && Distance(pair[0], pair[1]).decides(row);
}

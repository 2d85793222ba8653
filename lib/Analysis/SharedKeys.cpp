//===- SharedKeys.cpp - Which rows of a weighted sum read the same keys ----===//

#include "attn/Analysis/SharedKeys.h"
#include "attn/Analysis/Dependence.h"
#include "attn/Analysis/Fusion.h"
#include "attn/Analysis/KeyRange.h"

#include "llvm/ADT/DenseSet.h"

using namespace attn;

//===----------------------------------------------------------------------===//
// Groups
//===----------------------------------------------------------------------===//

SizeAttr SharedKeys::sharers() const {
  if (!group)
    return indexSize(index);
  // At least 1: group + 1 // (group + 1).
  SizeAttr one = SizeAttr::constant(group.getContext(), 1);
  SizeAttr isZero = SizeAttr::binary(SizeKind::FloorDiv, one, SizeAttr::binary(SizeKind::Add, group, one));
  return group.isConstant() ? group : SizeAttr::binary(SizeKind::Add, group, isZero);
}

SizeAttr SharedKeys::groups() const {
  SizeAttr one = SizeAttr::constant(index.getContext(), 1);
  if (!group)
    return one;
  SizeAttr rounded = SizeAttr::binary(SizeKind::Add, indexSize(index), SizeAttr::binary(SizeKind::Sub, sharers(), one));
  return SizeAttr::binary(SizeKind::FloorDiv, rounded, sharers());
}

/// G, where `value` is made with `index // G`.
static SizeAttr groupOf(mlir::Value value, mlir::BlockArgument index) {
  mlir::Operation *op = value.getDefiningOp();
  if (!op || !dependence(value).contains(index))
    return {};
  if (auto division = mlir::dyn_cast<FloorDivOp>(op); division && division.getLhs() == index)
    if (std::optional<SizeAttr> group = sizeOf(division.getRhs()))
      return isNeverNegative(*group) && !(group->isConstant() && group->getValue() < 2) ? *group : SizeAttr();
  for (mlir::Value operand : op->getOperands())
    if (SizeAttr group = groupOf(operand, index))
      return group;
  return {};
}

bool attn::isShared(mlir::Value value, mlir::BlockArgument index, SizeAttr group) {
  if (!dependence(value).contains(index))
    return true;
  mlir::Operation *op = value.getDefiningOp();
  if (!op || op->getNumRegions())
    return false;
  auto division = mlir::dyn_cast<FloorDivOp>(op);
  if (group && division && division.getLhs() == index && sizeOf(division.getRhs()) == group)
    return true;
  return llvm::all_of(op->getOperands(), [&](mlir::Value operand) { return isShared(operand, index, group); });
}

/// Of a bound that there is not, too.
static bool isShared(const KeyBound *bound, mlir::BlockArgument index, SizeAttr group) {
  if (!bound)
    return true;
  llvm::SmallVector<mlir::Value> values(llvm::make_first_range(bound->terms));
  for (mlir::Value value : {bound->condition, bound->factor})
    if (value)
      values.push_back(value);
  return llvm::all_of(values, [&](mlir::Value value) { return isShared(value, index, group); }) &&
         isShared(bound->lhs.get(), index, group) && isShared(bound->rhs.get(), index, group);
}

//===----------------------------------------------------------------------===//
// Indices
//===----------------------------------------------------------------------===//

/// Whether terms of a reduction read it: in their formula, or through a value from outside.
static bool isReadByTerms(ReadOp read) {
  llvm::SmallVector<mlir::Operation *> found = {read};
  llvm::DenseSet<mlir::Operation *> seen;
  while (!found.empty()) {
    mlir::Operation *op = found.pop_back_val();
    if (op->getParentOfType<ReduceOp>())
      return true;
    if (seen.insert(op).second)
      llvm::append_range(found, op->getUsers());
  }
  return false;
}

namespace {
/// An index of a weighted sum, which has other names where the formulas of its softmax stand.
class Sharing {
public:
  Sharing(WeightedSumOp sum, mlir::BlockArgument index)
      : sum(sum), weight(softmaxWeight(sum)), softmax(softmaxOf(sum)), index(index) {}

  std::optional<SharedKeys> find();
  bool isWithinKeys();
  bool readsPairs(mlir::BlockArgument query);

private:
  using Visit = llvm::function_ref<void(mlir::Value value, mlir::BlockArgument index)>;

  mlir::BlockArgument nameIn(mlir::Region &region);
  void visitReads(mlir::Region &region, llvm::function_ref<void(ReadOp read, mlir::BlockArgument name)> visit);
  void visitSubscripts(mlir::Region &region, Visit visit);
  void visitKeys(Visit visit);
  bool sharesRange(SizeAttr group);

  WeightedSumOp sum;
  ReadOp weight; ///< Of the softmax, if there is one.
  SoftmaxOp softmax;
  mlir::BlockArgument index;
};
} // namespace

/// Null where the formula does not depend on the index.
mlir::BlockArgument Sharing::nameIn(mlir::Region &region) {
  if (region.getParentOp() == sum)
    return region.getArgument(index.getArgNumber());
  for (auto [argument, subscript] : llvm::zip(region.getArguments(), weight.getSubscripts()))
    if (subscript == index)
      return argument;
  return {};
}

/// What is read at keys.
void Sharing::visitReads(mlir::Region &region, llvm::function_ref<void(ReadOp read, mlir::BlockArgument name)> visit) {
  mlir::BlockArgument key = region.getArguments().back(), name = nameIn(region);
  if (name)
    region.walk([&](ReadOp read) {
      if (dependence(read.getSubscripts()).contains(key))
        visit(read, name);
    });
}

/// The subscripts of what reductions read at keys.
void Sharing::visitSubscripts(mlir::Region &region, Visit visit) {
  visitReads(region, [&](ReadOp read, mlir::BlockArgument name) {
    if (isReadByTerms(read))
      llvm::for_each(read.getSubscripts(), [&](mlir::Value subscript) { visit(subscript, name); });
  });
}

/// Where keys are read, and the value.
void Sharing::visitKeys(Visit visit) {
  visitSubscripts(sum.getBody(), visit);
  if (softmax)
    visitSubscripts(bodyOf(softmax.getScore()), visit);
  visit(yielded(sum.getBody(), 1), index);
}

bool Sharing::sharesRange(SizeAttr group) {
  mlir::Region *condition = nullptr;
  if (softmax && softmax.getMask())
    condition = &bodyOf(softmax.getMask());
  else if (!softmax && !sum.getWhere().empty())
    condition = &sum.getWhere();
  mlir::BlockArgument name = condition ? nameIn(*condition) : mlir::BlockArgument();
  if (!name)
    return true;
  KeyRange range = maskRange(yielded(*condition), condition->getArguments().back()).possible;
  return isShared(range.lower.get(), name, group) && isShared(range.upper.get(), name, group);
}

std::optional<SharedKeys> Sharing::find() {
  SizeAttr group;
  visitKeys([&](mlir::Value value, mlir::BlockArgument name) {
    if (!group)
      group = groupOf(value, name);
  });
  bool areShared = true;
  visitKeys([&](mlir::Value value, mlir::BlockArgument name) { areShared &= isShared(value, name, group); });
  if (!areShared)
    return std::nullopt;
  return SharedKeys{index, group, sharesRange(group)};
}

/// A bias, which scores read beside their reductions, is one of pairs of queries and keys.
bool Sharing::isWithinKeys() {
  bool isWithin = false, isElsewhere = false;
  auto visit = [&](ReadOp read, mlir::BlockArgument name) {
    mlir::Region *region = name.getParentRegion();
    bool isOfPair = region == &sum.getBody() ? read == weight : !isReadByTerms(read);
    if (isOfPair || !dependence(read.getSubscripts()).contains(name))
      return;
    unsigned lastOfKey = 0, firstOfIndex = read.getSubscripts().size();
    for (auto [position, subscript] : llvm::enumerate(read.getSubscripts())) {
      if (dependence(subscript).contains(region->getArguments().back()))
        lastOfKey = position;
      if (dependence(subscript).contains(name))
        firstOfIndex = std::min<unsigned>(firstOfIndex, position);
    }
    (lastOfKey < firstOfIndex ? isWithin : isElsewhere) = true;
  };
  visitReads(sum.getBody(), visit);
  if (softmax)
    visitReads(bodyOf(softmax.getScore()), visit);
  return isWithin && !isElsewhere && sharesRange({});
}

/// What is read at keys has `query` in some places, and the index in others: vectors of pairs, which values of the
/// index share, and keys, which queries do. Where the index is the query itself: it has that in some places only.
bool Sharing::readsPairs(mlir::BlockArgument query) {
  bool hasPairs = false, hasKeys = false, hasBoth = false;
  auto find = [&](mlir::Region &region) {
    mlir::BlockArgument key = region.getArguments().back();
    Sharing ofQuery(sum, query);
    region.walk([&](ReadOp read) {
      IndexSet indices = dependence(read.getSubscripts());
      bool isBias = region.getParentOp() != sum && !isReadByTerms(read);
      if (read == weight || isBias || !indices.contains(key))
        return;
      bool isOfQuery = indices.contains(ofQuery.nameIn(region)), isOfIndex = indices.contains(nameIn(region));
      hasPairs |= isOfQuery;
      hasKeys |= index == query ? !isOfQuery : isOfIndex;
      hasBoth |= index != query && isOfQuery && isOfIndex;
    });
  };
  find(sum.getBody());
  if (softmax)
    find(bodyOf(softmax.getScore()));
  return hasPairs && hasKeys && !hasBoth && sharesRange({});
}

llvm::SmallVector<mlir::BlockArgument> attn::indicesWithinKeys(WeightedSumOp sum) {
  auto indices = llvm::reverse(sum.getBody().getArguments().drop_back(2));
  for (mlir::BlockArgument index : indices)
    if (Sharing(sum, index).isWithinKeys())
      return {index};
  for (mlir::BlockArgument query : indices)
    if (Sharing(sum, query).readsPairs(query)) {
      llvm::SmallVector<mlir::BlockArgument> result;
      for (mlir::BlockArgument index : indices)
        if (index != query && result.empty() && Sharing(sum, index).readsPairs(query))
          result.push_back(index);
      result.push_back(query);
      return result;
    }
  return {};
}

llvm::SmallVector<SharedKeys> attn::sharedKeys(WeightedSumOp sum) {
  llvm::SmallVector<SharedKeys> result;
  for (mlir::BlockArgument index : sum.getBody().getArguments().drop_back(2))
    if (std::optional<SharedKeys> shared = Sharing(sum, index).find())
      result.push_back(*shared);
  return result;
}

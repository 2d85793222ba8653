//===- Sharing.cpp - Heads that share keys ---------------------------------===//

#include "Pattern.h"
#include "attn/Analysis/Dependence.h"
#include "attn/Analysis/KeyRange.h"

#include "llvm/ADT/DenseSet.h"

using namespace attn;
using namespace attn::cuda;

SizeAttr Sharing::sharers() const {
  if (!group)
    return indexSize(index);
  // At least 1: group + 1 // (group + 1).
  SizeAttr one = SizeAttr::constant(group.getContext(), 1);
  SizeAttr isZero = SizeAttr::binary(SizeKind::FloorDiv, one, SizeAttr::binary(SizeKind::Add, group, one));
  return group.isConstant() ? group : SizeAttr::binary(SizeKind::Add, group, isZero);
}

SizeAttr Sharing::groups() const {
  SizeAttr one = SizeAttr::constant(sharers().getContext(), 1);
  if (!group)
    return one;
  SizeAttr rounded = SizeAttr::binary(SizeKind::Add, indexSize(index), SizeAttr::binary(SizeKind::Sub, sharers(), one));
  return SizeAttr::binary(SizeKind::FloorDiv, rounded, sharers());
}

bool Attention::isGroup(mlir::Value value) {
  auto division = sharing && sharing->group ? value.getDefiningOp<FloorDivOp>() : FloorDivOp();
  return division && indices.lookup(division.getLhs()) == sharing->index && sizeOf(division.getRhs()) == sharing->group;
}

bool Attention::isOfRow(mlir::BlockArgument own) { return own == queryIndex() || (sharing && own == sharing->index); }

static bool dependsOn(Attention &attention, const KeyBound *bound, mlir::BlockArgument own) {
  if (!bound)
    return false;
  llvm::SmallVector<mlir::Value> values;
  for (mlir::Value value : {bound->condition, bound->factor})
    if (value)
      values.push_back(value);
  for (auto [term, coefficient] : bound->terms)
    values.push_back(term);
  return llvm::any_of(values, [&](mlir::Value value) { return attention.dependsOn(value, own); }) ||
         dependsOn(attention, bound->lhs.get(), own) || dependsOn(attention, bound->rhs.get(), own);
}

/// Whether other keys are visited for another value of the index: a tile of several would visit those of all.
static bool boundsKeys(Attention &attention, mlir::BlockArgument index) {
  mlir::Value mask = attention.mask();
  if (!mask)
    return false;
  KeyRange range = maskRange(mask, mask.getParentRegion()->getArguments().back()).possible;
  return dependsOn(attention, range.lower.get(), index) || dependsOn(attention, range.upper.get(), index);
}

/// How queries of one index share keys and values; nothing where each has its own.
static std::optional<Sharing> sharingOf(Attention &attention, mlir::BlockArgument index) {
  Sharing sharing{index, {}};
  llvm::SmallVector<mlir::Value> todo(attention.key.getSubscripts());
  llvm::append_range(todo, attention.value.getSubscripts());
  llvm::DenseSet<mlir::Value> seen;
  while (!todo.empty()) {
    mlir::Value value = todo.pop_back_val();
    if (!seen.insert(value).second || mlir::isa<AttnTensorType>(value.getType()))
      continue;
    if (attention.indices.lookup(value) == index)
      return std::nullopt;
    mlir::Operation *op = value.getDefiningOp();
    if (auto division = mlir::dyn_cast_or_null<FloorDivOp>(op);
        division && attention.indices.lookup(division.getLhs()) == index) {
      std::optional<SizeAttr> group = sizeOf(division.getRhs());
      if (!group || !isNeverNegative(*group) || (sharing.group && sharing.group != *group) ||
          (group->isConstant() && group->getValue() <= 1))
        return std::nullopt;
      sharing.group = *group;
    } else if (op) {
      llvm::append_range(todo, op->getOperands());
    }
  }
  return sharing;
}

std::optional<Sharing> cuda::findSharing(Attention &attention) {
  for (mlir::BlockArgument index : llvm::reverse(attention.sum.getBody().getArguments().drop_back(2)))
    if (index != attention.queryIndex() && !boundsKeys(attention, index))
      if (std::optional<Sharing> sharing = sharingOf(attention, index))
        return sharing;
  return std::nullopt;
}

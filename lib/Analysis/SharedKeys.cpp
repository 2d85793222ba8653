//===- SharedKeys.cpp - Which rows of a weighted sum read the same keys ----===//

#include "attn/Analysis/SharedKeys.h"
#include "attn/Analysis/Dependence.h"
#include "attn/Analysis/Fusion.h"

using namespace attn;

/// G, where `value` is made with `index // G`.
static std::optional<SizeAttr> groupOf(mlir::Value value, mlir::BlockArgument index) {
  mlir::Operation *op = value.getDefiningOp();
  if (!op || !dependence(value).contains(index))
    return std::nullopt;
  if (auto division = mlir::dyn_cast<FloorDivOp>(op); division && division.getLhs() == index)
    return sizeOf(division.getRhs());
  for (mlir::Value operand : op->getOperands())
    if (std::optional<SizeAttr> group = groupOf(operand, index))
      return group;
  return std::nullopt;
}

bool attn::isShared(mlir::Value value, mlir::BlockArgument index, std::optional<SizeAttr> group) {
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

/// Visits the subscripts of the reads in `region` that depend on the key: of all reads, or of those in reductions.
static void visitSubscripts(mlir::Region &region, bool onlyReduced, llvm::function_ref<void(mlir::Value)> visit) {
  mlir::BlockArgument key = region.getArguments().back();
  region.walk([&](ReadOp read) {
    bool isReduced = read->getParentOfType<ReduceOp>();
    if ((isReduced || !onlyReduced) && !read.getTensor().getDefiningOp<SoftmaxOp>() &&
        dependence(read.getSubscripts()).contains(key))
      llvm::for_each(read.getSubscripts(), visit);
  });
}

llvm::SmallVector<SharedKeys> attn::sharedKeys(WeightedSumOp sum) {
  mlir::Region &body = sum.getBody();
  ReadOp weight = proportionalTo(body.front().getTerminator()->getOperand(0));
  auto softmax = weight ? weight.getTensor().getDefiningOp<SoftmaxOp>() : SoftmaxOp();
  llvm::SmallVector<SharedKeys> result;
  for (unsigned position = 0; position + 1 < sum.getIndices().size(); ++position) {
    // The subscripts, and the name that the index has where they stand.
    llvm::SmallVector<std::pair<mlir::Value, mlir::BlockArgument>> subscripts;
    auto visit = [&](mlir::Region &region, bool onlyReduced, mlir::BlockArgument index) {
      visitSubscripts(region, onlyReduced, [&](mlir::Value subscript) { subscripts.push_back({subscript, index}); });
    };
    visit(body, false, body.getArgument(position));
    if (softmax) {
      mlir::Region &score = softmax.getScore().getDefiningOp<DefinitionOpInterface>().getBody();
      for (auto [argument, subscript] : llvm::zip(score.getArguments(), weight.getSubscripts()))
        if (subscript == body.getArgument(position))
          visit(score, true, argument);
    }
    std::optional<SizeAttr> group;
    for (auto [subscript, index] : subscripts)
      if (!group)
        group = groupOf(subscript, index);
    if (llvm::all_of(subscripts, [&](const auto &each) { return isShared(each.first, each.second, group); }))
      result.push_back({position, group});
  }
  return result;
}

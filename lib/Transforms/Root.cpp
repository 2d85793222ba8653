//===- Root.cpp - What formulas are inlined into --------------------------===//

#include "Root.h"
#include "Form.h"

using namespace mlir;
using namespace attn;

Root Root::of(TensorOp tensor) {
  ReduceOp reduce = soleReduction(tensor);
  Root root{tensor, reduce, reduce.getBody().getArgument(0), {}, {}};
  Block::BlockArgListType indices = tensor.getBody().getArguments();
  root.rows.assign(indices.begin(), indices.end());
  if (reduce.getKind() == ReduceKind::Softmax)
    llvm::erase(root.rows, cast<BlockArgument>(reduce.getAt().front()));
  else if (reduce.getKind() == ReduceKind::Sum && !root.rows.empty())
    root.rows.pop_back(); // the value index
  return root;
}

bool Root::isSum() {
  auto reduce = dyn_cast<ReduceOp>(formula);
  return reduce && reduce.getKind() == ReduceKind::Sum;
}

IndexSet Root::indicesOf(ReadOp read) {
  IndexSet used;
  auto reduce = dyn_cast<ReduceOp>(formula);
  for (BlockArgument index : dependence(read.getSubscripts())) {
    bool inCondition = reduce && index.getOwner()->getParent() == &reduce.getWhere();
    used.insert(inCondition ? reduce.getBody().getArgument(index.getArgNumber()) : index);
  }
  return used;
}

BlockArgument Root::findQuery() {
  bool sum = isSum();
  Block::BlockArgListType indices = tensor.getBody().getArguments();
  SmallVector<ReadOp> outside, inside;
  formula->getRegion(0).walk([&](ReadOp read) {
    IndexSet used = indicesOf(read);
    bool counts = isa<FloatType>(read.getType()) && used.contains(key) &&
                  (!sum || (!indices.empty() && used.contains(indices.back())));
    if (counts)
      (read->getParentOp() == formula ? outside : inside).push_back(read);
  });
  for (BlockArgument row : llvm::reverse(rows))
    for (ReadOp read : inside.empty() ? outside : inside)
      if (!indicesOf(read).contains(row))
        return row;
  return {};
}

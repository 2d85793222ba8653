//===- Slice.cpp - Moves a formula to another region ----------------------===//

#include "Slice.h"

using namespace mlir;
using namespace attn;

/// Clones what `op` and its regions use of the regions around it.
static void cloneOperands(Operation *op, IRMapping &mapping, OpBuilder &builder) {
  op->walk([&](Operation *user) {
    for (Value operand : user->getOperands())
      if (!op->isAncestor(operand.getParentBlock()->getParentOp()))
        cloneSlice(operand, mapping, builder);
  });
}

Value attn::cloneSlice(Value value, IRMapping &mapping, OpBuilder &builder) {
  if (mapping.contains(value) || isa<AttnTensorType>(value.getType()))
    return mapping.lookupOrDefault(value);
  Operation *op = value.getDefiningOp();
  assert(op && "the mapping must cover the index variables of the slice");
  cloneOperands(op, mapping, builder);
  if (op->getNumRegions() == 0) {
    builder.clone(*op, mapping);
    return mapping.lookup(value);
  }
  // What a reduction's own variables, and values in it, are outside is of no concern to its copy.
  IRMapping inside = mapping;
  op->walk([&](Block *block) {
    for (BlockArgument index : block->getArguments())
      inside.erase(index);
  });
  mapping.map(op->getResults(), builder.clone(*op, inside)->getResults());
  return mapping.lookup(value);
}

SmallVector<Value> attn::cloneBlock(Block &block, IRMapping &mapping, OpBuilder &builder) {
  SmallVector<Value> results;
  for (Value value : cast<YieldOp>(block.getTerminator()).getValues())
    results.push_back(cloneSlice(value, mapping, builder));
  return results;
}

void attn::fillFormula(DefinitionOpInterface op, Value value, ValueRange indices) {
  Block &body = op.getBody().front();
  IRMapping mapping;
  for (auto [index, argument] : llvm::zip_equal(indices, body.getArguments()))
    mapping.map(index, argument);
  OpBuilder builder = OpBuilder::atBlockEnd(&body);
  Value copy = cloneSlice(value, mapping, builder);
  YieldOp::create(builder, op.getLoc(), copy);
}

TensorOp attn::tensorOf(Value value, ValueRange indices, StringRef name, ArrayAttr indexNames, AttnTensorType type,
                        OpBuilder &builder) {
  auto tensor = TensorOp::create(builder, value.getLoc(), name, indexNames, type);
  fillFormula(tensor, value, indices);
  return tensor;
}

void attn::substituteFormula(ReadOp read, TensorOp tensor) {
  IRMapping mapping;
  mapping.map(tensor.getBody().getArguments(), read.getSubscripts());
  OpBuilder builder(read);
  for (Operation &op : tensor.getBody().front().without_terminator())
    builder.clone(op, mapping);
  read.getResult().replaceAllUsesWith(mapping.lookup(yielded(tensor.getBody())));
  read.erase();
}

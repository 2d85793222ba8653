//===- SplitKeys.cpp - The split plan: what is made of keys -----------------===//
//
// A tensor that scores alone read, a row of it at a key (attn/Analysis/KeyTensors.h), such as keys that are turned by
// their positions, is not stored for all keys: a register tile of the scores has the rows of its keys made before it,
// where they stay in the first cache. A row at a query is made where it is packed.
//
//===----------------------------------------------------------------------===//

#include "Mathematics.h"
#include "Rows.h"
#include "SplitRegions.h"

using Halide::Expr;
using Halide::Func;
using Halide::LoopLevel;
using Halide::RVar;

namespace attn::lowering {

TensorOp Split::keyTensor(ReadOp read) const {
  auto tensor = read.getTensor().getDefiningOp<TensorOp>();
  return tensor && llvm::is_contained(kernel.plan.sum(op).keyTensors, tensor) ? tensor : TensorOp();
}

bool Split::readsQueryTensor(ReadOp read) const {
  return llvm::is_contained(kernel.plan.sum(op).queryTensors, read.getTensor().getDefiningOp<TensorOp>());
}

RowsMade Split::queryRows() const {
  return [this](ReadOp read, const Environment &environment) {
    return readsQueryTensor(read) ? elementOfRow(kernel, read, environment) : Expr();
  };
}

Split::KeyTensor Split::defineKeyTensor(ReadOp read, const Environment &environment, const TileKey &key) {
  TensorOp tensor = keyTensor(read);
  Environment ofKey = ofBlock(environment, block);
  ofKey.rebind(k, keyBinding(k));
  KeyTensor result{read, key.rows, key.isOfRest, Func(kernel.uniqueName(tensor.getName()))};
  defineByParts(result.func, rowFormulas(kernel, read, ofKey), {k, block},
                storageType(tensor.getResult().getType().getElementType()));
  return result;
}

Expr Split::keyTensorAt(ReadOp read, const Environment &environment, const TileKey &key) {
  auto found = llvm::find_if(keyTensors, [&](const KeyTensor &each) {
    return each.read == read && each.rows == key.rows && each.isOfRest == key.isOfRest;
  });
  if (found == keyTensors.end())
    found = keyTensors.insert(found, defineKeyTensor(read, environment, key));
  Expr last = environment.indices.find(read.getSubscripts().back())->second.expr;
  return cast(computeType(read.getType()), found->func(last, key.key, blockOfTile(key.rows)));
}

bool Split::readsKeyTensor(ReduceOp op) const {
  return llvm::any_of(op.getBody().getOps<ReadOp>(), [&](ReadOp read) { return keyTensor(read); });
}

Expr Split::firstReadOfKeyTensor(ReadOp read, const Environment &environment) const {
  Environment inner = bindRow(kernel, read, environment, 0);
  for (ReadOp source : keyTensor(read).getBody().getOps<ReadOp>())
    for (mlir::BlockArgument index : dependence(source.getSubscripts()))
      if (environment.changesWith(read.getSubscripts()[index.getArgNumber()], k))
        return PlainRegion(kernel, inner).expression(source.getResult());
  return {};
}

void Split::scheduleKeyTensors(const Product &product, int rows, bool isOfRest, const RVar &loop) {
  for (KeyTensor &each : keyTensors) {
    if (each.read->getParentOp() != product.op || each.rows != rows || each.isOfRest != isOfRest)
      continue;
    each.func.compute_at(product.func, loop);
    each.func.align_storage(each.func.args()[0], lanes).store_in(Halide::MemoryType::Stack);
    vectorizeParts(each.func, lanes);
  }
}

} // namespace attn::lowering

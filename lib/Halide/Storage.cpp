//===- Storage.cpp - Where tensors lie between steps ----------------------===//

#include "Storage.h"

#include "StepLowering.h"

using namespace attn;
using namespace attn::lowering;

Storage::Storage(KernelOp kernel, llvm::ArrayRef<PairBlocks> blocks) {
  auto isAdded = [&](mlir::Value tensor) {
    auto statement = tensor.getDefiningOp<TensorOp>();
    return llvm::any_of(blocks,
                        [&](const PairBlocks &each) { return each.contains(statement) && each.isAdded(statement); });
  };
  for (auto [index, parameter] : llvm::enumerate(kernel.getParameters()))
    places[parameter] = {HalideArgument::Input, static_cast<unsigned>(index)};
  ReturnOp returned = kernel.getReturn();
  for (unsigned index = 0; index < returned.getOutputs().size(); ++index) {
    mlir::Value tensor = returned.getOutputs()[index];
    auto type = mlir::cast<AttnTensorType>(tensor.getType());
    Halide::Type written = storageType(returned.getOutputType(index).getElementType());
    bool sameType = written == storageType(type.getElementType());
    // What nobody else reads is rounded as it is written.
    bool isWritten = sameType || (tensor.getDefiningOp() && tensor.hasOneUse() && !isAdded(tensor));
    if (!isWritten || !places.try_emplace(tensor, HalideArgument{HalideArgument::Output, index}).second)
      converted.push_back(index);
    else if (!sameType)
      rounded[tensor] = written;
  }
}

Halide::Type Storage::type(mlir::Value tensor) const {
  auto found = rounded.find(tensor);
  return found != rounded.end() ? found->second
                                : storageType(mlir::cast<AttnTensorType>(tensor.getType()).getElementType());
}

bool Storage::isPlacedLike(mlir::Value tensor, mlir::Value other) const {
  auto place = places.find(tensor), same = places.find(other);
  return place != places.end() && same != places.end() && place->second == same->second;
}

HalideArgument Storage::place(mlir::Value tensor) {
  unsigned next = intermediates.size();
  auto [found, isNew] = places.try_emplace(tensor, HalideArgument{HalideArgument::Intermediate, next});
  if (isNew)
    intermediates.push_back(tensor);
  return found->second;
}

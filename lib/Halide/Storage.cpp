//===- Storage.cpp - Where tensors lie between steps ----------------------===//

#include "Storage.h"

#include "StepLowering.h"

using namespace attn;
using namespace attn::lowering;

Storage::Storage(KernelOp kernel) {
  for (auto [index, parameter] : llvm::enumerate(kernel.getParameters()))
    places[parameter] = {HalideArgument::Input, static_cast<unsigned>(index)};
  ReturnOp returned = kernel.getReturn();
  for (unsigned index = 0; index < returned.getOutputs().size(); ++index) {
    mlir::Value tensor = returned.getOutputs()[index];
    auto type = mlir::cast<AttnTensorType>(tensor.getType());
    bool sameType = storageType(returned.getOutputType(index).getElementType()) == storageType(type.getElementType());
    if (!sameType || !places.try_emplace(tensor, HalideArgument{HalideArgument::Output, index}).second)
      converted.push_back(index);
  }
}

HalideArgument Storage::place(mlir::Value tensor) {
  unsigned next = intermediates.size();
  auto [found, isNew] = places.try_emplace(tensor, HalideArgument{HalideArgument::Intermediate, next});
  if (isNew)
    intermediates.push_back(tensor);
  return found->second;
}

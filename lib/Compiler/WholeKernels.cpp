//===- WholeKernels.cpp - Kernels that are not cut into blocks ------------===//
//
// Which kernels these are shows when they are simplified in both ways. That happens in a context of its own, so that
// what passes report is reported once.
//
//===----------------------------------------------------------------------===//

#include "WholeKernels.h"

#include "attn/Analysis/Dependence.h"
#include "attn/Analysis/PairBlocks.h"
#include "attn/Transforms/Passes.h"

#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "llvm/ADT/DenseSet.h"

using namespace attn;
using namespace mlir;

static void mark(KernelOp kernel) { kernel->setAttr(KernelOp::wholeName, UnitAttr::get(kernel.getContext())); }

/// Whether a tensor of `whole` that is no output is as large as pairs that `inBlocks`, the same kernel, stores a block
/// of at a time.
static bool storesPairs(KernelOp whole, KernelOp inBlocks) {
  llvm::DenseSet<Attribute> shapes;
  auto shapeOf = [](TensorOp tensor) {
    auto shape = tensor.getResult().getType().getShape();
    return ArrayAttr::get(tensor.getContext(), SmallVector<Attribute>(shape.begin(), shape.end()));
  };
  for (TensorOp tensor : inBlocks.getBody().front().getOps<TensorOp>())
    if (isPairs(tensor.getResult()))
      shapes.insert(shapeOf(tensor));
  return llvm::any_of(whole.getBody().front().getOps<TensorOp>(), [&](TensorOp tensor) {
    return shapes.contains(shapeOf(tensor)) && !isReturned(tensor.getResult());
  });
}

void attn::markWhole(ModuleOp module) {
  std::string text;
  llvm::raw_string_ostream(text) << module;
  MLIRContext context(module.getContext()->getDialectRegistry(), MLIRContext::Threading::DISABLED);
  PassManager passes(&context);
  buildSimplification(passes, /*forGpu=*/true);
  auto inBlocks = parseSourceString<ModuleOp>(text, &context);
  OwningOpRef<ModuleOp> whole = inBlocks->clone();
  llvm::for_each(whole->getOps<KernelOp>(), mark);
  // What fails here fails again in `module`, and is reported there.
  if (failed(passes.run(*inBlocks)) || failed(passes.run(*whole)))
    return;
  for (KernelOp kernel : module.getOps<KernelOp>()) {
    auto sameIn = [&](ModuleOp other) { return other.lookupSymbol<KernelOp>(kernel.getSymName()); };
    if (!storesPairs(sameIn(*whole), sameIn(*inBlocks)))
      mark(kernel);
  }
}

//===- WholeKernels.cpp - Kernels that are not cut into blocks ------------===//
//
// Which kernels these are shows when they are simplified in both ways. That happens in a context of its own, so that
// what passes report is reported once.
//
//===----------------------------------------------------------------------===//

#include "WholeKernels.h"

#include "attn/Analysis/PairBlocks.h"
#include "attn/Transforms/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "llvm/ADT/DenseSet.h"

using namespace attn;
using namespace mlir;

DialectRegistry attn::attnDialects() {
  DialectRegistry registry;
  registry.insert<AttnDialect, arith::ArithDialect, math::MathDialect>();
  return registry;
}

static void markAll(ModuleOp module) {
  for (KernelOp kernel : module.getOps<KernelOp>())
    kernel->setAttr(KernelOp::wholeName, UnitAttr::get(kernel.getContext()));
}

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
    return shapes.contains(shapeOf(tensor)) && llvm::none_of(tensor.getResult().getUsers(), llvm::IsaPred<ReturnOp>);
  });
}

void attn::markWhole(ModuleOp module) {
  std::string text;
  llvm::raw_string_ostream(text) << module;
  MLIRContext context(attnDialects(), MLIRContext::Threading::DISABLED);
  PassManager passes(&context);
  buildSimplification(passes);
  auto inBlocks = parseSourceString<ModuleOp>(text, &context);
  OwningOpRef<ModuleOp> whole = inBlocks->clone();
  markAll(*whole);
  // What fails here fails again in `module`, and is reported there.
  bool areKnown = succeeded(passes.run(*inBlocks)) && succeeded(passes.run(*whole));
  for (KernelOp kernel : module.getOps<KernelOp>()) {
    auto sameIn = [&](ModuleOp other) { return other.lookupSymbol<KernelOp>(kernel.getSymName()); };
    if (areKnown && !storesPairs(sameIn(*whole), sameIn(*inBlocks)))
      kernel->setAttr(KernelOp::wholeName, UnitAttr::get(kernel.getContext()));
  }
}

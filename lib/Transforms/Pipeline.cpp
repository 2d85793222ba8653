//===- Pipeline.cpp - The passes in the order they run --------------------===//

#include "attn/Transforms/Passes.h"

#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassRegistry.h"
#include "mlir/Transforms/Passes.h"

using namespace mlir;

void attn::buildSimplification(OpPassManager &manager) {
  OpPassManager &kernel = manager.nest<KernelOp>();
  kernel.addPass(createCanonicalizerPass());
  kernel.addPass(createCSEPass());
  kernel.addPass(createAttnOutline()); // every softmax and every sum over keys is a tensor of its own
  kernel.addPass(createAttnInline());  // scores and masks hold their whole formula
  kernel.addPass(createCanonicalizerPass());
  kernel.addPass(createCSEPass());
  kernel.addPass(createAttnRaise());         // score, mask, softmax, weighted sum
  kernel.addPass(createCanonicalizerPass()); // also drops the tensors that nobody reads
  kernel.addPass(createCSEPass());
}

void attn::registerSimplification() {
  PassPipelineRegistration<>("attn-simplify", "All passes from the front end's form to raised attention",
                             buildSimplification);
}

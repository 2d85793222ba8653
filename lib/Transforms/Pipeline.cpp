//===- Pipeline.cpp - The passes in the order they run --------------------===//

#include "attn/Transforms/Passes.h"

#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassRegistry.h"
#include "mlir/Transforms/Passes.h"

using namespace mlir;

void attn::buildDifferentiation(OpPassManager &manager, ArrayRef<std::string> inputs) {
  OpPassManager &kernel = manager.nest<KernelOp>();
  kernel.addPass(createCanonicalizerPass());
  kernel.addPass(createCSEPass());
  kernel.addPass(createAttnStateSums());
  kernel.addPass(createAttnScan({.differentiated = true}));
  kernel.addPass(createAttnFlattenKeys());
  kernel.addPass(createAttnOutline({.differentiated = true}));
  kernel.addPass(createAttnSegment());
  kernel.addPass(createAttnPlace());
  kernel.addPass(createAttnSplitSums());
  kernel.addPass(createAttnTableProducts());
  AttnDifferentiateOptions options;
  options.inputs.assign(inputs.begin(), inputs.end());
  manager.addPass(createAttnDifferentiate(options));
  OpPassManager &made = manager.nest<KernelOp>();
  made.addPass(createCSEPass());
  made.addPass(createAttnTableProducts()); // of gradients with the rows of values
  made.addPass(createAttnFactorOut());     // before what gradients share is looked for
  made.addPass(createAttnAssociate());
}

void attn::buildSimplification(OpPassManager &manager, bool forGpu) {
  OpPassManager &kernel = manager.nest<KernelOp>();
  kernel.addPass(createCanonicalizerPass());
  kernel.addPass(createCSEPass());
  if (!forGpu)
    kernel.addPass(createAttnStateSums()); // no matrix for each token
  kernel.addPass(createAttnScan());        // running totals are tensors of their own
  kernel.addPass(createAttnFlattenKeys()); // every softmax has one key
  kernel.addPass(createAttnOutline());     // every softmax and every sum over keys is a tensor of its own
  if (!forGpu)
    kernel.addPass(createAttnSegment());   // a key of one query has one weight
  kernel.addPass(createAttnPlace());       // a term is visited where a number says it is
  kernel.addPass(createAttnSplitSums());   // every sum has the weights of one softmax
  if (!forGpu)
    kernel.addPass(createAttnChunkSums()); // linear attention takes linear time
  kernel.addPass(createAttnStorePairs());  // gradients: what several sums over pairs read
  kernel.addPass(createAttnInline());      // scores and masks hold their whole formula
  kernel.addPass(createCanonicalizerPass());
  kernel.addPass(createCSEPass());
  kernel.addPass(createAttnRecomputeWeights()); // sums of weights over heads or queries
  kernel.addPass(createAttnFoldConditions());   // what a sum's `where` says already
  kernel.addPass(createAttnFoldMasks());        // masks have no sums
  kernel.addPass(createAttnRaise());            // score, mask, softmax, weighted sum
  kernel.addPass(createCanonicalizerPass());    // also drops the tensors that nobody reads
  kernel.addPass(createCSEPass());
  kernel.addPass(createAttnShare()); // what is written twice is computed once
  if (!forGpu)
    kernel.addPass(createAttnTabulate());      // what distances decide
  kernel.addPass(createAttnContract());        // dot products: query factors first
  kernel.addPass(createAttnSeparate());        // functions of a query part plus a key part
  kernel.addPass(createAttnExpandDistances()); // dot products in the place of distances
  kernel.addPass(createAttnHoist());           // from here on a scale is never a reduction
  kernel.addPass(createAttnFoldScale());       // brings the terms of a score to the top
  kernel.addPass(createAttnShiftInvariance()); // drops those that no key changes
  kernel.addPass(createCanonicalizerPass());
  kernel.addPass(createCSEPass());
  kernel.addPass(createAttnOrder()); // a sum has its log-sum-exp at hand
  if (!forGpu)
    kernel.addPass(createAttnSumWeights()); // and a log-sum-exp has a sum
}

void attn::registerSimplification() {
  PassPipelineRegistration<>("attn-simplify", "All passes from the front end's form to raised attention",
                             [](OpPassManager &manager) { buildSimplification(manager); });
}

//===- Plan.cpp - The choice of tile sizes ---------------------------------===//

#include "attn/Plan/Plan.h"

#include "llvm/Support/raw_ostream.h"

using namespace attn;

/// Register tiles of queries × keys whose accumulators fill most of the vector registers: the product
/// loads `vectors` query vectors and `keyUnroll` broadcast keys for vectors · keyUnroll multiply-adds.
/// 32 registers: 3 × 8 = 24 accumulators; 16 registers: 3 × 4 = 12.
Plan Plan::choose(KernelOp kernel, const Machine &machine) {
  constexpr unsigned vectors = 3;
  bool isDouble = llvm::any_of(kernel.getParameters(), [](mlir::Value parameter) {
    return llvm::cast<AttnTensorType>(parameter.getType()).getElementType().isF64();
  });
  unsigned bytesPerScore = isDouble ? 8 : 4;
  Plan plan;
  plan.lanes = machine.vectorBytes / bytesPerScore;
  plan.tile.lanes = plan.lanes;
  plan.tile.queries = vectors * plan.lanes;
  plan.tile.keyUnroll = plan.tile.valueUnroll = machine.vectorRegisters >= 32 ? 8 : 4;
  plan.tile.chunk = 256;
  return plan;
}

void Plan::print(llvm::raw_ostream &os) const {
  os << "tiled: " << tile.queries << " queries a tile in vectors of " << tile.lanes << ", " << tile.chunk
     << " keys a chunk, register tiles of " << tile.queries << " x " << tile.keyUnroll << " scores and " << tile.queries
     << " x " << tile.valueUnroll << " outputs\n"
     << "other statements: vectors of " << lanes << '\n';
}

//===- GpuPlan.cpp - The choice of plans on a GPU --------------------------===//

#include "attn/Plan/Plan.h"

using namespace attn;

void Plan::chooseForGpu() {
  gpu = GpuPlan();
  matrices.clear();
  for (SumPlan &sum : sums)
    sum.tiled = sum.split = false;
}

void Plan::printForGpu(llvm::raw_ostream &os) const {
  os << "statements: an element a thread, " << gpu->elementThreads << " threads a block\n";
  for (const SumPlan &sum : sums)
    os << "sum " << sum.name << ": an element a thread\n";
  printRanges(os);
}

//===- GpuNestSchedule.cpp - An element a thread ----------------------------===//

#include "GpuNest.h"

using Halide::Func;
using Halide::LoopLevel;
using Halide::TailStrategy;
using Halide::Var;

namespace attn::lowering {

/// The loops over blocks and over the threads of one; every Func has its own of these names.
static Var blockLoop() { return Var("block$"); }
static Var threadLoop() { return Var("thread$"); }

void launchElementwise(Func func, const std::vector<Var> &vars, int threads) {
  func.compute_root();
  if (vars.empty()) {
    func.split(Var::outermost(), Var::outermost(), threadLoop(), 1)
        .split(Var::outermost(), Var::outermost(), blockLoop(), 1)
        .gpu_blocks(blockLoop())
        .gpu_threads(threadLoop());
    return;
  }
  Var elements = vars[0];
  for (const Var &var : llvm::ArrayRef(vars).drop_front()) {
    Var fused(elements.name() + "_" + var.name());
    func.fuse(elements, var, fused);
    elements = fused;
  }
  func.split(elements, blockLoop(), threadLoop(), threads, TailStrategy::GuardWithIf)
      .gpu_blocks(blockLoop())
      .gpu_threads(threadLoop());
}

LoopLevel GpuNest::level(const Stage &stage) const {
  const Stage &consumer = stages[stage.consumer];
  if (stage.loop)
    return LoopLevel(consumer.func, *stage.loop);
  return consumer.consumer < 0 ? LoopLevel(consumer.func, threadLoop()) : level(consumer);
}

void GpuNest::schedule() {
  for (Stage &stage : stages) {
    if (stage.consumer < 0) {
      launchElementwise(stage.func, stage.vars, kernel.plan.gpu->elementThreads);
      continue;
    }
    // A thread needs one element, which Halide does not see through the loops that are fused.
    stage.func.compute_at(level(stage));
    for (const Var &var : stage.vars)
      stage.func.bound_extent(var, 1);
  }
}

} // namespace attn::lowering

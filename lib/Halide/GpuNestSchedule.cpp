//===- GpuNestSchedule.cpp - An element a thread ----------------------------===//

#include "GpuNest.h"

using Halide::Func;
using Halide::LoopLevel;
using Halide::RVar;
using Halide::TailStrategy;
using Halide::Var;

namespace attn::lowering {

// The loops over blocks and over the threads of one; every Func has its own of these names.
static const char blockLoop[] = "block$", threadLoop[] = "thread$";

LoopLevel GpuNest::level(const Stage &stage) const {
  const Stage &consumer = stages[stage.consumer];
  if (stage.loop)
    return LoopLevel(consumer.func, *stage.loop);
  if (consumer.consumer >= 0)
    return level(consumer);
  bool isOwn = &consumer == &stages.front();
  return isOwn && elements ? LoopLevel(consumer.func, RVar(threadLoop)) : LoopLevel(consumer.func, Var(threadLoop));
}

void GpuNest::schedule() {
  int threads = kernel.plan.gpu->elementThreads;
  Var block(blockLoop), thread(threadLoop);
  for (Stage &stage : stages) {
    Func &own = stage.func;
    if (stage.consumer >= 0) {
      own.compute_at(level(stage));
      continue;
    }
    own.compute_root();
    if (!stage.vars.empty()) {
      own.split(stage.vars[0], block, thread, threads, TailStrategy::GuardWithIf).gpu_blocks(block).gpu_threads(thread);
    } else if (elements) {
      // No two elements are in one place.
      RVar blocks(blockLoop), within(threadLoop);
      own.update()
          .allow_race_conditions()
          .split(elements->x, blocks, within, threads, TailStrategy::GuardWithIf)
          .gpu_blocks(blocks)
          .gpu_threads(within);
    } else {
      own.split(Var::outermost(), Var::outermost(), thread, 1)
          .split(Var::outermost(), Var::outermost(), block, 1)
          .gpu_blocks(block)
          .gpu_threads(thread);
    }
  }
}

} // namespace attn::lowering

//===- GpuPlan.h - How a kernel is to be computed on a GPU ------*- C++ -*-===//
//
// Plain, printable data, as Plan.h: chosen from the kernel and the device, read by lib/Halide/Gpu*.cpp.
//
//===----------------------------------------------------------------------===//

#ifndef ATTN_PLAN_GPUPLAN_H
#define ATTN_PLAN_GPUPLAN_H

#include "llvm/Support/raw_ostream.h"

namespace attn {

/// Where a kernel runs.
enum class Device { Cpu, Cuda, OpenCl };

/// Sizes of the plans on a GPU: see docs/plans.md for their loop nests.
struct GpuPlan {
  int elementThreads = 64; ///< Threads of a block of statements that are not tiled: an element each.
};

} // namespace attn

#endif // ATTN_PLAN_GPUPLAN_H

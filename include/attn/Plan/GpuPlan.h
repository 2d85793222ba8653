//===- GpuPlan.h - How a kernel is to be computed on a GPU ------*- C++ -*-===//
//
// Plain, printable data, as Plan.h: chosen from the kernel and the device, read by lib/Halide/Gpu*.cpp.
//
//===----------------------------------------------------------------------===//

#ifndef ATTN_PLAN_GPUPLAN_H
#define ATTN_PLAN_GPUPLAN_H

#include <string>

namespace attn {

/// Where a kernel runs.
enum class Device { Cpu, Cuda, OpenCl };

/// An architecture of NVIDIA's GPUs: sm_80, or sm_90a.
struct CudaArchitecture {
  unsigned capability = 80; ///< 8.0
  bool isExact = false;     ///< "a": its code runs on this capability alone.

  std::string name() const;
  bool operator==(const CudaArchitecture &) const = default;
};

/// Sizes of the plans on a GPU: see docs/plans.md for their loop nests.
struct GpuPlan {
  int elementThreads = 64; ///< Threads of a block of statements that are not tiled: an element each.

  // Of tiled sums. A block has threads × threads threads.
  int queries = 32; ///< Queries of a block; 16 in f64 or with 128 columns.
  int columns = 64; ///< Value columns of a block; 128 in f32 where there are known to be more than 64.
  int chunk = 32;   ///< Keys between two rescalings.
  int threads = 16; ///< Divides the three above.
  int bytes = 4;    ///< Of a number.

  /// Shared memory of a block: state, scores, weights, weights with their other factors, two numbers for each query and
  /// the bounds of its keys.
  int sharedBytes() const { return (3 * queries * columns + 3 * queries * chunk + 2 * queries) * bytes + 64; }
};

} // namespace attn

#endif // ATTN_PLAN_GPUPLAN_H

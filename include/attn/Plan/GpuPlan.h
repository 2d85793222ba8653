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

/// Sizes of a block of a weighted sum.
struct GpuTilePlan {
  /// Threads along the columns of a block's tiles: half a warp, so that a warp's loads of a row are whole sectors.
  static constexpr int columnThreads = 16;
  /// Threads that find the maximum of a row together.
  static constexpr int rowParts = 8;
  /// Sums over products of rows and keys whose factors are in shared memory; the factors of others are read from
  /// caches.
  static constexpr int stagedSums = 2;

  int rows = 32;       ///< Of a block: of the sum's result, for the same keys.
  int columns = 64;    ///< Of the value.
  int chunk = 32;      ///< Keys between two rescalings.
  int slice = 32;      ///< Terms of a sum whose factors are in shared memory at once.
  int rowThreads = 16; ///< A block has columnThreads × rowThreads threads.

  int rowsEach() const { return rows / rowThreads; } ///< Of a thread.
  int columnsEach() const { return columns / columnThreads; }
  int keysEach() const { return chunk / columnThreads; }
  int padded(int count) const { return count + 4; } ///< So that columns of a tile are not all in one bank.
};

/// Sizes of the plans on a GPU: see docs/plans.md for their loop nests.
struct GpuPlan {
  int elementThreads = 64; ///< Threads of a block of statements that are not tiled: an element each.
  bool isDouble = false;   ///< Numbers in shared memory are f64.
  GpuTilePlan tiled;
  GpuTilePlan split = {8, 128, 32, 64, 8};
  int splitQueries = 8;   ///< The most queries for which keys are split between blocks.
  int splitBlocks = 1024; ///< Keys are split until there are as many blocks,
  int partChunks = 8;     ///< but into no parts of fewer chunks.
};

} // namespace attn

#endif // ATTN_PLAN_GPUPLAN_H

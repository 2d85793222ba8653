//===- LoweredProgram.h - A kernel before it is compiled --------*- C++ -*-===//

#ifndef ATTN_LIB_COMPILER_LOWEREDPROGRAM_H
#define ATTN_LIB_COMPILER_LOWEREDPROGRAM_H

#include "attn/CUDA/Emission.h"
#include "attn/Halide/Lowering.h"

namespace attn {

/// A kernel for one machine.
struct LoweredProgram {
  LoweredKernel steps;
  /// On tensor cores: what takes the place of some steps in calls that it is for, and the architectures.
  std::optional<CudaKernel> tensorCores = std::nullopt;
  std::vector<CudaArchitecture> architectures = {};
  /// On a GPU, tensors in the CPU's memory are copied to it and back.
  bool copies = false;
};

} // namespace attn

#endif // ATTN_LIB_COMPILER_LOWEREDPROGRAM_H

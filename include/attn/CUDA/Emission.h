//===- Emission.h - Attention on tensor cores as CUDA C++ -------*- C++ -*-===//
//
// For scores built on a dot product of f16 or bf16 tensors; everything else keeps the Halide plan. docs/tensor-cores.md
// describes the kernel, lib/CUDA/*.cuh is the part of its text that all kernels share.
//
//===----------------------------------------------------------------------===//

#ifndef ATTN_CUDA_EMISSION_H
#define ATTN_CUDA_EMISSION_H

#include "attn/Plan/Plan.h"

namespace attn {

/// The CUDA C++ of `kernel`, which follows that of lib/CUDA/Attention.cuh. Fails where it computes something else than
/// one attention on tensor cores: the error names what is not supported.
llvm::Expected<std::string> emitCuda(KernelOp kernel, const Plan &plan);

} // namespace attn

#endif // ATTN_CUDA_EMISSION_H

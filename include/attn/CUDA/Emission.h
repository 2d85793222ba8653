//===- Emission.h - Attention on tensor cores as CUDA C++ -------*- C++ -*-===//
//
// For scores built on a dot product of f16 or bf16 tensors; everything else keeps the Halide plan. docs/tensor-cores.md
// describes the kernel, lib/CUDA/*.cuh is the part of its text that all kernels share.
//
//===----------------------------------------------------------------------===//

#ifndef ATTN_CUDA_EMISSION_H
#define ATTN_CUDA_EMISSION_H

#include "attn/Plan/Plan.h"
#include "attn/Runtime/Signature.h"

namespace attn {

/// A map of keys or values, which a launch is given so that tiles of keys are copied by it.
struct CudaTensorMap {
  mlir::Value tensor;
  unsigned axis; ///< Of the keys: dimensions from the last one on, which is 0.
};

/// A kernel for tensor cores, which computes one weighted sum of a KernelOp and its softmax's log-sum-exp, and what a
/// launch of it takes. It is given one structure: for each tensor its value, or its address and strides; the sizes; and
/// in how many parts keys are visited, with memory for what these leave.
struct CudaKernel {
  static constexpr int64_t mostArgumentBytes = ATTN_MAX_LAUNCH_BYTES;

  std::string name; ///< Of its function; NAME_merge is that which merges parts.
  std::string text; ///< CUDA C++ that follows that of lib/CUDA/Attention.cuh.
  TensorCorePlan plan;

  /// There is a block for each tile of the rows that share keys, each combination of the other indices, and each part
  /// of the keys.
  SizeAttr rows;
  std::vector<SizeAttr> others;
  SizeAttr keys;
  std::string sharer; ///< The index whose queries share keys; empty where rows are one query each.
  /// It is for calls in which these sizes are at most so many,
  std::vector<SizeLimit> limits;
  /// and rows of these tensors have stride 1.
  std::vector<mlir::Value> contiguous;

  /// A parameter, or what a statement computes.
  struct Tensor {
    mlir::Value tensor;
    bool isWritten;
  };
  std::vector<Tensor> tensors;         ///< In the structure's order. Parameters of rank 0 are values.
  std::vector<std::string> statements; ///< What others compute among those that are read.
  /// Maps of keys and of values, which follow the rest of what a launch is given; none where their rows are not side
  /// by side in a dimension, or the plan has no warpgroups.
  std::vector<CudaTensorMap> maps;
};

/// Fails where `kernel` computes something else than one attention on tensor cores: the error names what is not
/// supported.
llvm::Expected<CudaKernel> emitCuda(KernelOp kernel, const Plan &plan);

} // namespace attn

#endif // ATTN_CUDA_EMISSION_H

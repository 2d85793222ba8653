//===- Nvrtc.h - CUDA C++ to machine code -----------------------*- C++ -*-===//
//
// NVRTC is NVIDIA's compiler as a library, which is loaded when it is first needed. docs/tensor-cores.md says where it
// is looked for.
//
//===----------------------------------------------------------------------===//

#ifndef ATTN_CUDA_NVRTC_H
#define ATTN_CUDA_NVRTC_H

#include "attn/Plan/GpuPlan.h"

#include "llvm/Support/Error.h"

#include <vector>

namespace attn {

/// See attn_image.
struct CudaImage {
  int64_t capability;
  int64_t kind;
  std::string data; ///< Of PTX with the 0 that ends it.
};

/// `text`, which is called `name` in errors, for each of `architectures`, in this order; then, if `forLater`, for
/// later devices as PTX.
llvm::Expected<std::vector<CudaImage>> compileCuda(const std::string &text, const std::string &name,
                                                   const std::vector<CudaArchitecture> &architectures, bool forLater);

/// The PTX of what `compileCuda` makes for `architecture`, as text.
llvm::Expected<std::string> ptxOfCuda(const std::string &text, const std::string &name,
                                      const CudaArchitecture &architecture);

} // namespace attn

#endif // ATTN_CUDA_NVRTC_H

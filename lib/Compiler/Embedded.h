//===- Embedded.h - Files that the library carries --------------*- C++ -*-===//

#ifndef ATTN_LIB_COMPILER_EMBEDDED_H
#define ATTN_LIB_COMPILER_EMBEDDED_H

#include "attn/Plan/GpuPlan.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"

#include <string>

namespace attn {

struct RuntimeAssembly {
  std::string symbols; ///< The names that it defines and uses, with spaces between them.
  std::string text;
};

/// Halide's runtime and lib/Runtime as assembly for Linux on an architecture, "x86_64" or "aarch64", with what
/// drives `devices`.
RuntimeAssembly runtimeAssembly(llvm::StringRef architecture, llvm::ArrayRef<Device> devices);
/// Halide's runtime for this machine, as an object.
llvm::StringRef halideRuntimeObject();
/// The text of include/attn/Runtime/DLPack.h and Runtime.h.
llvm::StringRef dlpackHeader();
llvm::StringRef runtimeHeader();
/// The text of lib/CUDA/*.cuh, in the order in which they need each other.
std::string cudaHeaders();

} // namespace attn

#endif // ATTN_LIB_COMPILER_EMBEDDED_H

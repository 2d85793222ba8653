//===- Embedded.h - Files that the library carries --------------*- C++ -*-===//

#ifndef ATTN_LIB_COMPILER_EMBEDDED_H
#define ATTN_LIB_COMPILER_EMBEDDED_H

#include "llvm/ADT/StringRef.h"

#include <string>

namespace attn {

/// lib/Runtime as LLVM bitcode for an architecture (llvm::Triple's name of it); empty where there is none.
llvm::StringRef runtimeBitcode(llvm::StringRef architecture);
/// Halide's runtime for this machine, as an object.
llvm::StringRef halideRuntimeObject();
/// The text of include/attn/Runtime/DLPack.h and Runtime.h.
llvm::StringRef dlpackHeader();
llvm::StringRef runtimeHeader();
/// The text of lib/CUDA/*.cuh, in the order in which they need each other.
std::string cudaHeaders();

} // namespace attn

#endif // ATTN_LIB_COMPILER_EMBEDDED_H

//===- Jit.h - Kernels in this process --------------------------*- C++ -*-===//

#ifndef ATTN_LIB_COMPILER_JIT_H
#define ATTN_LIB_COMPILER_JIT_H

#include "attn/Runtime/Signature.h"
#include "llvm/Support/Error.h"
#include <string>

namespace attn {

/// Loads a static library into this process and finds its program `name`. Thread-safe. What is loaded stays: kernels
/// are cached for the life of the process, and Halide's worker threads may be in them until its end.
llvm::Expected<const attn_program *> loadProgram(const std::string &library, const std::string &name);

/// See attn::setNumThreads.
llvm::Error setHalideThreads(int threads);

} // namespace attn

#endif // ATTN_LIB_COMPILER_JIT_H

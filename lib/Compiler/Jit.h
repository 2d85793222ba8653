//===- Jit.h - Kernels in this process --------------------------*- C++ -*-===//

#ifndef ATTN_LIB_COMPILER_JIT_H
#define ATTN_LIB_COMPILER_JIT_H

#include "attn/Runtime/Runtime.h"
#include "llvm/Support/Error.h"
#include <string>

namespace attn {

using ArgvFunction = int (*)(void **);

/// Loads an object into this process and finds its function `name`. Thread-safe. Objects stay loaded: kernels are
/// cached for the life of the process, and Halide's worker threads may be in them until its end.
llvm::Expected<ArgvFunction> loadKernel(const std::string &object, const std::string &name);

/// See attn::setNumThreads.
llvm::Error setHalideThreads(int threads);
/// See attn::setThreadPool.
llvm::Error setHalideThreadPool(attn_parallel_for parallelFor, void *pool);

} // namespace attn

#endif // ATTN_LIB_COMPILER_JIT_H

//===- Jit.h - Kernels in this process --------------------------*- C++ -*-===//

#ifndef ATTN_LIB_COMPILER_JIT_H
#define ATTN_LIB_COMPILER_JIT_H

#include "attn/Runtime/Signature.h"
#include "llvm/Support/Error.h"
#include <string>

namespace attn {

/// In the place of a function of a program that is not compiled.
int attnUncompiled(void **arguments);

/// Loads an object into this process and finds `symbol` in it. Objects do not see each other; for them, attnUncompiled
/// is attn_uncompiled_argv. Thread-safe. What is loaded stays: kernels are cached for the life of the process, and
/// Halide's worker threads may be in them until its end.
llvm::Expected<void *> loadObject(const std::string &object, const std::string &symbol);

/// See attn::setNumThreads.
llvm::Error setHalideThreads(int threads);

} // namespace attn

#endif // ATTN_LIB_COMPILER_JIT_H

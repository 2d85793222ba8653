//===- Threads.h - The threads of a language's runtime ----------*- C++ -*-===//

#ifndef ATTN_COMPILER_THREADS_H
#define ATTN_COMPILER_THREADS_H

#include "attn/Runtime/ThreadPool.h"

namespace attn {

/// From now on the kernels of this process run on these threads in place of Halide's. For bindings to languages whose
/// libraries have threads already; programs have setThreadPool (Compiler.h).
void usePool(const attn_halide_pool &pool);

} // namespace attn

#endif // ATTN_COMPILER_THREADS_H

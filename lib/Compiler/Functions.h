//===- Functions.h - A kernel's functions, compiled in threads -*- C++ -*-===//

#ifndef ATTN_LIB_COMPILER_FUNCTIONS_H
#define ATTN_LIB_COMPILER_FUNCTIONS_H

#include "attn/Halide/Lowering.h"

namespace attn {

/// The bitcode of the functions PREFIX_NAME of `kernel`, in their order, or what `then` makes of each, which threads
/// call at once. The first error where there is one.
llvm::Expected<std::vector<std::string>>
compileFunctions(const LoweredKernel &kernel, const std::string &prefix,
                 llvm::function_ref<llvm::Expected<std::string>(llvm::StringRef bitcode)> then = nullptr);

} // namespace attn

#endif // ATTN_LIB_COMPILER_FUNCTIONS_H

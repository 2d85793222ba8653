//===- Functions.h - A kernel's functions, compiled in threads -*- C++ -*-===//

#ifndef ATTN_LIB_COMPILER_FUNCTIONS_H
#define ATTN_LIB_COMPILER_FUNCTIONS_H

#include "attn/Halide/Lowering.h"

namespace attn {

/// The bitcode of functions of `kernel`, or what `then` makes of each, which threads call at once. `numbers` says which
/// of functionsOf(kernel), in rising order, and `nameOf` what each is to be called. The first error where there is one.
/// Functions with the same code are compiled once, as the first of them.
llvm::Expected<std::vector<std::string>>
compileFunctions(const LoweredKernel &kernel, llvm::ArrayRef<unsigned> numbers,
                 llvm::function_ref<std::string(const HalideFunction &)> nameOf,
                 llvm::function_ref<llvm::Expected<std::string>(llvm::StringRef bitcode)> then = nullptr);

} // namespace attn

#endif // ATTN_LIB_COMPILER_FUNCTIONS_H

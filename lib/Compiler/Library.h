//===- Library.h - The functions of a kernel --------------------*- C++ -*-===//

#ifndef ATTN_LIB_COMPILER_LIBRARY_H
#define ATTN_LIB_COMPILER_LIBRARY_H

#include "Interface.h"
#include "llvm/ADT/STLFunctionalExtras.h"

namespace attn {

/// The functions of a kernel, in order.
std::vector<const HalideFunction *> functionsOf(const LoweredKernel &kernel);

/// What `compile` makes of each function, in their order, or its first error. They share no code, so they are compiled
/// in several threads.
llvm::Expected<std::vector<std::string>>
compileFunctions(llvm::ArrayRef<const HalideFunction *> functions,
                 llvm::function_ref<llvm::Expected<std::string>(const HalideFunction &)> compile);

/// A static library for this process, with the symbol FUNCTION_program: the attn_program of `kernel`.
llvm::Expected<std::string> compileToLibrary(const LoweredKernel &kernel, const ProgramInterface &program,
                                             const std::string &function);

} // namespace attn

#endif // ATTN_LIB_COMPILER_LIBRARY_H

//===- Library.h - A kernel for this process --------------------*- C++ -*-===//

#ifndef ATTN_LIB_COMPILER_LIBRARY_H
#define ATTN_LIB_COMPILER_LIBRARY_H

#include "Interface.h"

namespace attn {

/// A static library for this process, with the symbol FUNCTION_program: the attn_program of `kernel`. Its functions
/// share no code, so they are compiled in several threads.
llvm::Expected<std::string> compileToLibrary(const LoweredKernel &kernel, const ProgramInterface &program,
                                             const std::string &function);

} // namespace attn

#endif // ATTN_LIB_COMPILER_LIBRARY_H

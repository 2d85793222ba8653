//===- Launch.h - Kernels for tensor cores in objects and libraries -------===//

#ifndef ATTN_LIB_COMPILER_LAUNCH_H
#define ATTN_LIB_COMPILER_LAUNCH_H

#include "Interface.h"

namespace attn {

/// Compiles the code that `lowered` has for tensor cores, if it has any, and says in `program`, which is of this
/// kernel, how it is launched.
llvm::Error addLaunch(ProgramInterface &program, const LoweredProgram &lowered, const KernelInterface &interface);

} // namespace attn

#endif // ATTN_LIB_COMPILER_LAUNCH_H

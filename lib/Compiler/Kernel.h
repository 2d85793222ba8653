//===- Kernel.h - What a Kernel handle shares -------------------*- C++ -*-===//

#ifndef ATTN_LIB_COMPILER_KERNEL_H
#define ATTN_LIB_COMPILER_KERNEL_H

#include "Interface.h"
#include "attn/Compiler/Compiler.h"

namespace attn {

/// Immutable, so that any number of threads may use it. It holds no MLIR: the stages that are rarely asked for (emit,
/// reference) compile the source anew.
struct Kernel::Implementation {
  Implementation(std::string source, CompileOptions options, KernelInterface interface, KernelPrograms programs);

  const std::string source;
  const CompileOptions options; ///< With the kernel's name.
  const NativeSignature signature;
  const std::vector<TensorInfo> inputs, outputs;
};

} // namespace attn

#endif // ATTN_LIB_COMPILER_KERNEL_H

//===- Kernel.h - What a Kernel handle shares -------------------*- C++ -*-===//

#ifndef ATTN_LIB_COMPILER_KERNEL_H
#define ATTN_LIB_COMPILER_KERNEL_H

#include "Library.h"
#include "attn/Compiler/Compiler.h"

#include "llvm/Support/Error.h"

#include <functional>
#include <mutex>

namespace attn {

/// What a kernel is for its callers never changes, so that any number of threads may use it; what runs is loaded once,
/// when it is first asked for. After its first call it holds no MLIR: the stages that are rarely asked for (emit,
/// reference) compile the source anew, as do calls that need further functions.
struct Kernel::Implementation {
  using Load = std::function<llvm::Expected<KernelLibraries>()>;

  Implementation(std::string source, CompileOptions options, KernelInterface interface, Load load);

  /// The signature with what runs. Threads that ask for it at once wait for one of them. Throws CompileError.
  const NativeSignature &loaded() const;
  /// Makes the machine code that any call may need. Throws CompileError.
  void complete() const;

  const std::string source;
  const CompileOptions options;      ///< With the kernel's name.
  const NativeSignature declaration; ///< The signature without what runs: enough for the reference.
  const std::vector<TensorInfo> inputs, outputs;

private:
  mutable std::once_flag once;
  mutable Load load;
  mutable KernelLibraries libraries;
  mutable std::optional<NativeSignature> signature;
  mutable std::string error; ///< Why there is no signature.
};

} // namespace attn

#endif // ATTN_LIB_COMPILER_KERNEL_H

//===- Object.h - Kernels, their wrappers and the runtime as one object ---===//

#ifndef ATTN_LIB_COMPILER_OBJECT_H
#define ATTN_LIB_COMPILER_OBJECT_H

#include "Interface.h"
#include "attn/Halide/Lowering.h"
#include "llvm/Support/Error.h"

namespace attn {

/// The Halide function of a kernel: its name in bitcode, and what it is called by (FUNCTION_argv).
std::string halideFunction(const KernelInterface &interface);
std::string halideArgvFunction(const KernelInterface &interface);

/// Collects kernels, then writes them as one relocatable object in which the kernels alone are strong symbols. The
/// runtime's are weak, so that several such objects make one program.
class ObjectBuilder {
public:
  /// `target` is a Halide target whose architecture and system all kernels share.
  ObjectBuilder(std::string target, bool runtime);
  ~ObjectBuilder();

  /// Adds a kernel as it was compiled for each of several sets of instructions, the first of which that the processor
  /// has is used. `targets` names them in an error.
  llvm::Error add(llvm::ArrayRef<HalideKernel> variants, const KernelInterface &interface, llvm::StringRef targets);
  llvm::Expected<std::string> finish();

private:
  llvm::Error startWithRuntime();

  struct Implementation;
  std::unique_ptr<Implementation> implementation;
};

} // namespace attn

#endif // ATTN_LIB_COMPILER_OBJECT_H

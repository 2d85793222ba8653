//===- Object.h - Kernels, their wrappers and the runtime as one object ---===//

#ifndef ATTN_LIB_COMPILER_OBJECT_H
#define ATTN_LIB_COMPILER_OBJECT_H

#include "Interface.h"
#include "attn/Halide/Lowering.h"
#include "llvm/IR/Function.h"
#include "llvm/Support/Error.h"

namespace attn {

/// The Halide function of a kernel or of its checking kernel in bitcode. It is called by FUNCTION_argv.
std::string halideFunction(llvm::StringRef kernel);
std::string halideCheckingFunction(llvm::StringRef kernel);

/// Collects kernels, then writes them as one relocatable object in which the kernels alone are strong symbols. The
/// runtime's are weak, so that several such objects make one program.
class ObjectBuilder {
public:
  /// `target` is a Halide target whose architecture and system all kernels share.
  ObjectBuilder(std::string target, bool runtime);
  ~ObjectBuilder();

  /// Adds a kernel as it was compiled for each of several sets of instructions, the first of which that the processor
  /// has is used. `targets` names them in an error. `checking` are those of its checking kernel, if it has one.
  llvm::Error add(llvm::ArrayRef<HalideKernel> variants, llvm::ArrayRef<HalideKernel> checking,
                  const KernelInterface &interface, llvm::StringRef targets);
  llvm::Expected<std::string> finish();

private:
  llvm::Error startWithRuntime();
  /// One function for all variants: `int NAME_argv(void **arguments)`.
  llvm::Expected<llvm::Function *> addFunction(llvm::ArrayRef<HalideKernel> variants, const std::string &name,
                                               const std::string &kernel, llvm::StringRef targets);

  struct Implementation;
  std::unique_ptr<Implementation> implementation;
};

} // namespace attn

#endif // ATTN_LIB_COMPILER_OBJECT_H

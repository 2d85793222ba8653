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

/// Collects kernels of one target, then writes them as one relocatable object in which the kernels alone are
/// strong symbols. The runtime's are weak, so that several such objects make one program.
class ObjectBuilder {
public:
  explicit ObjectBuilder(bool runtime);
  ~ObjectBuilder();

  llvm::Error add(const HalideKernel &kernel, const KernelInterface &interface);
  llvm::Expected<std::string> finish();

private:
  struct Implementation;
  std::unique_ptr<Implementation> implementation;
};

} // namespace attn

#endif // ATTN_LIB_COMPILER_OBJECT_H

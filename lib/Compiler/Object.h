//===- Object.h - Kernels, their wrappers and the runtime as one object ---===//

#ifndef ATTN_LIB_COMPILER_OBJECT_H
#define ATTN_LIB_COMPILER_OBJECT_H

#include "Interface.h"
#include "attn/Halide/Lowering.h"
#include "llvm/IR/Function.h"
#include "llvm/Support/Error.h"

namespace attn {

/// What the names of the Halide functions of a kernel or of its checking kernel begin with.
std::string halideFunction(llvm::StringRef kernel);
std::string halideCheckingFunction(llvm::StringRef kernel);

/// Collects kernels, then writes them as one relocatable object in which the kernels alone are strong symbols. The
/// runtime's are weak, so that several such objects make one program.
class ObjectBuilder {
public:
  /// `machines` are those that kernels are compiled for, of one architecture and system.
  ObjectBuilder(llvm::ArrayRef<Machine> machines, bool runtime);
  ~ObjectBuilder();

  /// Adds a kernel as it was lowered for each of several sets of instructions, the first of which that the processor
  /// has is used. `targets` names them in an error. `checking` is its checking kernel, if it has one.
  llvm::Error add(llvm::ArrayRef<LoweredProgram> kernels, llvm::ArrayRef<LoweredProgram> checking,
                  const KernelInterface &interface, llvm::StringRef targets);
  llvm::Expected<std::string> finish();

private:
  /// Once: as assembly, which LLVM adds to the object without compiling it.
  void addRuntime();
  /// Adds the functions FUNCTION_NAME of a kernel.
  llvm::Error addFunctions(const LoweredKernel &kernel, const std::string &function);
  /// The same for each of several sets of instructions.
  llvm::Expected<std::vector<ProgramInterface>> addPrograms(llvm::ArrayRef<LoweredProgram> kernels,
                                                            const KernelInterface &interface, size_t outputs,
                                                            const std::string &function);

  struct Implementation;
  std::unique_ptr<Implementation> implementation;
};

} // namespace attn

#endif // ATTN_LIB_COMPILER_OBJECT_H

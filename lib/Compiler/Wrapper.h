//===- Wrapper.h - The C function of a kernel in LLVM IR --------*- C++ -*-===//

#ifndef ATTN_LIB_COMPILER_WRAPPER_H
#define ATTN_LIB_COMPILER_WRAPPER_H

#include "Interface.h"
#include "llvm/IR/Module.h"
#include "llvm/Support/Error.h"

namespace attn {

/// Adds to `module`, which has Halide's `argvFunction`, the kernel's table and the function that is called from C:
///
///   int NAME(const DLTensor *input, ..., DLTensor *output, ...) {
///     const DLTensor *tensors[] = {input, ..., output, ...};
///     return attn_invoke(&table, tensors);
///   }
llvm::Error addWrapper(llvm::Module &module, const KernelInterface &interface, llvm::Function &argvFunction);

} // namespace attn

#endif // ATTN_LIB_COMPILER_WRAPPER_H

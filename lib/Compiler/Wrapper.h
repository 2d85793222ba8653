//===- Wrapper.h - The C function of a kernel in LLVM IR --------*- C++ -*-===//

#ifndef ATTN_LIB_COMPILER_WRAPPER_H
#define ATTN_LIB_COMPILER_WRAPPER_H

#include "Interface.h"
#include "llvm/IR/Module.h"
#include "llvm/Support/Error.h"

namespace attn {

/// Adds to `module`, which has Halide's `kernel` and, unless that is null, `checking`, the kernel's tables and the
/// function that is called from C:
///
///   int NAME(const DLTensor *input, ..., DLTensor *output, ...) {
///     const DLTensor *tensors[] = {input, ..., output, ...};
///     return attn_invoke(&table, tensors); // or attn_invoke_checked(&table, &bounds, tensors)
///   }
llvm::Error addWrapper(llvm::Module &module, const KernelInterface &interface, llvm::Function &kernel,
                       llvm::Function *checking);

} // namespace attn

#endif // ATTN_LIB_COMPILER_WRAPPER_H

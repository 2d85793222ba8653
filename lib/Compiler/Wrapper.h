//===- Wrapper.h - The C function of a kernel in LLVM IR --------*- C++ -*-===//

#ifndef ATTN_LIB_COMPILER_WRAPPER_H
#define ATTN_LIB_COMPILER_WRAPPER_H

#include "Interface.h"
#include "llvm/IR/Module.h"

namespace attn {

/// Adds to `module` the tables of a kernel and the function that is called from C:
///
///   int NAME(const DLTensor *input, ..., DLTensor *output, ...) {
///     const DLTensor *tensors[] = {input, ..., output, ...};
///     return attn_invoke(&table, tensors); // or attn_invoke_checked(&table, &bounds, tensors)
///   }
///
/// It runs the first of `programs` whose instructions the processor has; where it has those of none, the error names
/// `targets`. `checking` are those of its checking kernel, none where it has none.
void addWrapper(llvm::Module &module, const KernelInterface &interface, llvm::ArrayRef<ProgramInterface> programs,
                llvm::ArrayRef<ProgramInterface> checking, llvm::StringRef targets);

} // namespace attn

#endif // ATTN_LIB_COMPILER_WRAPPER_H

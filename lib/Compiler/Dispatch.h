//===- Dispatch.h - One function from variants of a kernel ------*- C++ -*-===//

#ifndef ATTN_LIB_COMPILER_DISPATCH_H
#define ATTN_LIB_COMPILER_DISPATCH_H

#include "llvm/IR/Module.h"

#include <string>
#include <vector>

namespace attn {

/// A kernel compiled for one set of instructions.
struct KernelVariant {
  llvm::Function *function;       ///< Halide's FUNCTION_argv.
  std::vector<uint64_t> features; ///< See HalideKernel::features.
};

/// Adds `int NAME(void **arguments)` to `module`: it calls the first variant whose instructions the processor has.
/// Where it has none of them, the error is `message`.
llvm::Function *addDispatch(llvm::Module &module, const std::string &name, const std::vector<KernelVariant> &variants,
                            const std::string &message);

} // namespace attn

#endif // ATTN_LIB_COMPILER_DISPATCH_H

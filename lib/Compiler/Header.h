//===- Header.h - The C declarations of an object's kernels -----*- C++ -*-===//

#ifndef ATTN_LIB_COMPILER_HEADER_H
#define ATTN_LIB_COMPILER_HEADER_H

#include "Interface.h"
#include "llvm/Support/Error.h"

namespace attn {

/// The text of a header for C99 and C++ that declares `kernels` and documents their parameters. `name` is that of the
/// file, "scaled_dot.h". An error where a kernel's name is a keyword.
llvm::Expected<std::string> writeHeader(llvm::ArrayRef<KernelInterface> kernels, const std::string &name);

/// "f32[B, M, D]", or "f32" for a scalar.
std::string describeType(const TensorInterface &tensor);

} // namespace attn

#endif // ATTN_LIB_COMPILER_HEADER_H

//===- KernelSizes.h - What gives the sizes of a kernel ---------*- C++ -*-===//

#ifndef ATTN_LIB_LANGUAGE_KERNELSIZES_H
#define ATTN_LIB_LANGUAGE_KERNELSIZES_H

#include "SizeTable.h"

#include "attn/Language/Language.h"
#include "llvm/ADT/ArrayRef.h"

namespace attn::language {

/// Adds the sizes that brackets declare, and those of the parameters' shapes that `options` set.
void declareSizes(const Kernel &kernel, const LanguageOptions &options, SizeTable &sizes, Diagnostics &diagnostics);

/// Reports every size that is neither declared nor set and does not follow from `dimensions`, those of the parameters:
/// from a dimension of its own, or by solving an expression for it.
void checkSizesCanBeFound(const Kernel &kernel, llvm::ArrayRef<SizeAttr> dimensions, const LanguageOptions &options,
                          Diagnostics &diagnostics);

} // namespace attn::language

#endif // ATTN_LIB_LANGUAGE_KERNELSIZES_H

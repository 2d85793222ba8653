//===- Reciprocals.h - Estimates in whole vectors ---------------*- C++ -*-===//

#ifndef ATTN_LIB_COMPILER_RECIPROCALS_H
#define ATTN_LIB_COMPILER_RECIPROCALS_H

#include "llvm/IR/Module.h"

namespace attn {

/// Joins estimates of 1 / x of the two halves of a vector where AVX-512 has one of the whole vector (VRCP14PS, 14 bits
/// instead of 12). Halide knows the estimate of AVX alone, and takes 16 floats apart for it.
void joinReciprocalEstimates(llvm::Module &module);

} // namespace attn

#endif // ATTN_LIB_COMPILER_RECIPROCALS_H

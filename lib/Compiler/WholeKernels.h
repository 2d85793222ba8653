//===- WholeKernels.h - Kernels that are not cut into blocks ----*- C++ -*-===//

#ifndef ATTN_LIB_COMPILER_WHOLEKERNELS_H
#define ATTN_LIB_COMPILER_WHOLEKERNELS_H

#include "mlir/IR/BuiltinOps.h"

namespace attn {

/// Marks the kernels of `module`, which are in the front end's form, that a GPU computes statement by statement
/// (KernelOp::wholeName): its tiles hold the pairs of query and key, and need no memory. Left are those of which
/// statements would be as large as all pairs, if they were not computed for one block of rows after the other.
void markWhole(mlir::ModuleOp module);

} // namespace attn

#endif // ATTN_LIB_COMPILER_WHOLEKERNELS_H

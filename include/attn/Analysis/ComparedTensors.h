//===- ComparedTensors.h - Numbers that must be computed once ---*- C++ -*-===//
//
//   score[m, n] = sum[d](q[m, d] * k[n, d])
//   best[m]     = max[n](score[m, n])
//   first[m, n] = score[m, n] == best[m]
//
// holds for one key of each row only where both sides read the same numbers. Two loops that compute a score add its
// terms in different orders, and their sums differ in the last bits.
//
//===----------------------------------------------------------------------===//

#ifndef ATTN_ANALYSIS_COMPAREDTENSORS_H
#define ATTN_ANALYSIS_COMPAREDTENSORS_H

#include "attn/IR/Attn.h"
#include "llvm/ADT/DenseSet.h"

namespace attn {

/// The tensors of floats some of whose elements a formula of the kernel compares with each other: both sides are among
/// them, or the least or greatest of some, or either with a number added, subtracted, multiplied or divided by (a
/// margin of 0); then those of the least or greatest, too. They are stored, and read wherever they are used.
llvm::DenseSet<mlir::Value> comparedTensors(KernelOp kernel);

} // namespace attn

#endif // ATTN_ANALYSIS_COMPAREDTENSORS_H

//===- Finiteness.h - Values that are never infinite or NaN -----*- C++ -*-===//
//
// Many identities of real numbers fail for infinities: x − x is 0 but for ∞, c · Σ x is Σ c·x but for c = ∞. What a
// floating-point parameter holds is up to the caller, and −∞ in a bias is a usual way to mask. So a rewrite asks here.
//
//===----------------------------------------------------------------------===//

#ifndef ATTN_ANALYSIS_FINITENESS_H
#define ATTN_ANALYSIS_FINITENESS_H

#include "attn/IR/Attn.h"
#include "llvm/ADT/DenseSet.h"

namespace attn {

using TensorSet = llvm::DenseSet<mlir::Value>;

/// The tensors all of whose elements are finite where `condition` is true. It may be a flag, a read of a tensor without
/// indices, whose formula is a conjunction of `max(|tensor|) <= constant`, or with `· |scale|` on the left.
TensorSet finiteWhere(mlir::Value condition);

/// Whether `value` is finite whatever the parameters hold: made of constants, integers, square roots of sizes and
/// elements of `finite` tensors, by sums and products, which are taken not to overflow.
bool isFinite(mlir::Value value, const TensorSet &finite);

} // namespace attn

#endif // ATTN_ANALYSIS_FINITENESS_H

//===- SharedKeys.h - Which rows of a weighted sum read the same keys -*- C++ -*-===//

#ifndef ATTN_ANALYSIS_SHAREDKEYS_H
#define ATTN_ANALYSIS_SHAREDKEYS_H

#include "attn/IR/Attn.h"

#include <optional>

namespace attn {

/// An index of a weighted sum, not its last one, whose values read the same keys and values: all of them or, where
/// there is a group, as many as that says, from each multiple of it on. (Formulas read keys at `index // group` then.)
struct SharedKeys {
  unsigned position; ///< Of the index.
  std::optional<SizeAttr> group;
};

/// The indices of `sum`, which is fusible (Fusion.h), whose values share keys. What a score reads outside reductions,
/// such as a bias, may differ between them.
llvm::SmallVector<SharedKeys> sharedKeys(WeightedSumOp sum);

/// Whether `value` is the same for all values of `index` that share keys.
bool isShared(mlir::Value value, mlir::BlockArgument index, std::optional<SizeAttr> group);

} // namespace attn

#endif // ATTN_ANALYSIS_SHAREDKEYS_H

//===- SharedKeys.h - Which rows of a weighted sum read the same keys -*- C++ -*-===//

#ifndef ATTN_ANALYSIS_SHAREDKEYS_H
#define ATTN_ANALYSIS_SHAREDKEYS_H

#include "attn/IR/Attn.h"

namespace attn {

/// An index of a weighted sum, not its last one, whose values read the same keys and values: all of them or, where
/// there is a group, as many as that says, from each multiple of it on. (Formulas read keys at `index // group` then.)
struct SharedKeys {
  mlir::BlockArgument index; ///< Of the sum's body.
  SizeAttr group = {};       ///< Never negative, and no constant below 2. Null: all of them share keys.
  bool sharesRange = false;  ///< So do they the range of keys that the mask, or the sum's condition, lets through.

  /// Of the index.
  unsigned position() const { return index.getArgNumber(); }
  /// How many in a row share keys. A group of 0 is read as the language does: h // 0 is 0, of each by itself.
  SizeAttr sharers() const;
  /// How many times there are so many; there are fewer in the last one where that does not come out even.
  SizeAttr groups() const;
};

/// The indices of `sum`, which is fusible (Fusion.h), whose values share keys, in order. What is read outside of the
/// reductions of scores and weights, such as a bias, may differ between them.
llvm::SmallVector<SharedKeys> sharedKeys(WeightedSumOp sum);

/// The indices of `sum`, not its last one, whose values read keys of their own, but are better computed together; the
/// range of keys is the same for all of them. None, or
///
///   * the one that chooses among what lies together at a key, as heads do in a cache of tokens `k[n, h // group, d]`:
///     in all tensors that are read at keys, its subscript comes after those of the key;
///   * where vectors of pairs are read beside keys, `k[h, n, d] + relation[m, n, d]`, the query `m`, whose values share
///     keys; and before it the index `h`, if there is one, whose values share vectors of pairs.
llvm::SmallVector<mlir::BlockArgument> indicesWithinKeys(WeightedSumOp sum);

/// Whether `value` is the same for all values of `index` that share keys.
bool isShared(mlir::Value value, mlir::BlockArgument index, SizeAttr group);

} // namespace attn

#endif // ATTN_ANALYSIS_SHAREDKEYS_H

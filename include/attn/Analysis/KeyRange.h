//===- KeyRange.h - Which keys a mask can let through -----------*- C++ -*-===//
//
// From the text of a mask: bounds on the keys for which it can be true, and on keys for which it certainly
// is. Comparisons that are affine in the key give a half-line, `and` intersects, `or` takes the hull,
// `not` is pushed to the comparisons; what bounds n // 8 or n * 8 bounds n; anything else bounds nothing. The bounds
// are formulas over sizes, other index variables and loaded data, so one rule covers causal masks, windows, lengths and
// document starts.
//
//   n <= m and n > m - w     possible: m - w + 1 <= n < m + 1     certain: the same
//   n < valid or bias[n]     possible: all                        certain: n < valid
//
//===----------------------------------------------------------------------===//

#ifndef ATTN_ANALYSIS_KEYRANGE_H
#define ATTN_ANALYSIS_KEYRANGE_H

#include "attn/IR/Attn.h"

#include <memory>
#include <utility>

namespace attn {

/// A formula for a key position, over values that do not depend on the key.
struct KeyBound {
  enum class Kind {
    Linear,   ///< constant + Σ coefficient · value
    Min,      ///< The smaller of two bounds.
    Max,      ///< The larger of two bounds.
    Guard,    ///< Where `condition` holds no bound at all, else 0.
    Times,    ///< `lhs`, or 0 if that is less, times `factor`.
    Quotient, ///< `lhs` by `constant`, which is positive, rounded down.
  };
  explicit KeyBound(Kind kind) : kind(kind) {}

  Kind kind;
  int64_t constant = 0;
  llvm::SmallVector<std::pair<mlir::Value, int64_t>> terms;
  std::shared_ptr<const KeyBound> lhs, rhs;
  mlir::Value condition;
  mlir::Value factor; ///< Positive wherever there are keys.
};

/// lower ≤ key < upper. A null bound is none.
struct KeyRange {
  std::shared_ptr<const KeyBound> lower, upper;
};

struct MaskRange {
  KeyRange possible; ///< Outside, the mask is false.
  KeyRange certain;  ///< Inside, the mask is true.
};

/// The ranges of the key for `condition`, an i1 of a region.
MaskRange maskRange(mlir::Value condition, mlir::BlockArgument key);

/// Whether they say all of `condition`: it is true inside and false outside.
bool isKeyRange(mlir::Value condition, mlir::BlockArgument key);

/// How many keys at a time can be looked at for whether `condition` lets them through, a power of two of at most 64:
/// its reads lie along the keys, or have an element for each `key // c` with a constant c, of which such keys have one.
/// 0 where there is no need, because its ranges say all of it, or where it is no matter of a few instructions: it
/// reduces something, calls a function, or divides what is different for each key and row by what is not constant, or
/// for the rest.
int64_t keysSearchedAtOnce(mlir::Value condition, mlir::BlockArgument key);

/// `bound` as text, with the names of the source: "min(m + 1, valid[b])".
std::string describe(const KeyBound &bound);

} // namespace attn

#endif // ATTN_ANALYSIS_KEYRANGE_H

//===- PlacedSum.h - Sums whose terms each have one place -------*- C++ -*-===//
//
//   y[j, d] = sum[i](term where clamp(g(i)) == j)
//
// or the largest of such terms. The gradient of what is read at computed subscripts is such a sum. As it is written,
// every term is asked for at every place j; a plan visits each once instead, and adds it where it belongs.
//
//===----------------------------------------------------------------------===//

#ifndef ATTN_ANALYSIS_PLACEDSUM_H
#define ATTN_ANALYSIS_PLACEDSUM_H

#include "attn/IR/Attn.h"

#include <optional>

namespace attn {

/// What must all hold for `condition` to.
llvm::SmallVector<mlir::Value> conjunctsOf(mlir::Value condition);

/// Whether `value` is max(min(…, size - 1), 0).
bool isClamped(mlir::Value value, SizeAttr size);

struct PlacedSum {
  ReduceOp sum; ///< The only one in the formula of its statement: a sum, or a maximum.
  /// Positions of the statement's indices, and what each is for a term: in the condition of the sum, between 0 and the
  /// last of the index.
  llvm::SmallVector<std::pair<unsigned, mlir::Value>> places;
  llvm::SmallVector<mlir::Value> conditions; ///< What else must hold for a term.

  /// Whether the index of the statement at `position` is one of the places.
  bool isPlace(unsigned position) const;
  /// The positions among the sum's indices of those that say where a term belongs.
  llvm::SmallVector<unsigned> deciding() const;

  /// That of the statement `op`, if it has one.
  static std::optional<PlacedSum> of(DefinitionOpInterface op);
};

} // namespace attn

#endif // ATTN_ANALYSIS_PLACEDSUM_H

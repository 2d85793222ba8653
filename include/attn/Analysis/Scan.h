//===- Scan.h - Reductions of the terms up to an index ----------*- C++ -*-===//
//
//   y[m, n] = sum[j](term[m, j] where j <= n)
//
// As it is written, every element asks for all terms before it. But it is the element before and one term more: a plan
// keeps the total as it goes along n. Contextual positions, stick-breaking weights and selective attention are made of
// such sums, and so are their gradients, which go the other way.
//
//===----------------------------------------------------------------------===//

#ifndef ATTN_ANALYSIS_SCAN_H
#define ATTN_ANALYSIS_SCAN_H

#include "attn/IR/Attn.h"

#include <optional>

namespace attn {

struct Scan {
  ReduceOp reduce;         ///< A sum, maximum or minimum over one index.
  mlir::BlockArgument end; ///< Its terms end here, or begin; they have nothing else to do with this index.
  bool isReversed;         ///< Terms begin at `end`, rather than end there.
  bool isExclusive;        ///< The term at `end` is none of them.
  mlir::Value comparison;  ///< Of a term's index with `end`.
  llvm::SmallVector<mlir::Value> conditions; ///< What else must hold for a term.

  /// Whether it runs along the last index of a statement: along keys, where its elements are pairs.
  bool isAlongLast() const { return end.getArgNumber() + 1 == end.getOwner()->getNumArguments(); }

  /// `reduce`, which may be a part of a formula, as a scan; of two ends, which a range has, the inner index.
  static std::optional<Scan> of(ReduceOp reduce);
  /// The scan that is the whole formula of `op`, without a reduction inside.
  static std::optional<Scan> of(DefinitionOpInterface op);
};

/// The index of `statement` that `subscript`, in its formula, runs along: itself or, for the terms of a scan along the
/// last index, that.
mlir::Value indexAlong(mlir::Value subscript, TensorOp statement);

} // namespace attn

#endif // ATTN_ANALYSIS_SCAN_H

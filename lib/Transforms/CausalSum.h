//===- CausalSum.h - Sums over what comes before, or after ------*- C++ -*-===//
//
//   out[m, e] = sum[n](sum[d](q[m, d] * k[n, d]) * v[n, e] where n <= m)
//
// Each term is a product of what row m has and what key n has, or a sum over d of such products: no function of both.
// So keys can be added up for many rows at a time. A decay, γ^(m − n) or e^(a · (m − n)), is no function of both either:
// it is one from the key to any place between, times one from there to the row.
//
//===----------------------------------------------------------------------===//

#ifndef ATTN_TRANSFORMS_CAUSALSUM_H
#define ATTN_TRANSFORMS_CAUSALSUM_H

#include "Product.h"
#include "attn/IR/Attn.h"
#include "llvm/ADT/SetVector.h"

#include <optional>
#include <vector>

namespace attn {

/// A part of each term: row factors · key factors, and maybe the sum over one index of such a product.
struct SeparableTerm {
  bool negative = false;
  llvm::SmallVector<Factor> rowFactors, keyFactors;
  ReduceOp dot; ///< Null: there is none.
  llvm::SmallVector<Factor> rowFactorsOfDot, keyFactorsOfDot;
  llvm::SmallVector<mlir::Value> decays; ///< Further factors, of the distance of row and key.
  /// Where one of them is false the term is 0. Of the row (or of neither), and of the key.
  llvm::SmallVector<mlir::Value> rowConditions, keyConditions;
  mlir::Value order; ///< The comparison of key and row.

  mlir::BlockArgument dotIndex() const { return ReduceOp(dot).getBody().getArgument(0); }
};

/// A sum of separable terms. Its values are those of a copy of the statement, in which pairs that are tensors of their
/// own have their formula.
struct CausalSum {
  TensorOp copy;                      ///< Of the statement. To be erased.
  mlir::BlockArgument row, key;       ///< Of the copy, and of its sum.
  mlir::BlockArgument keyOfCondition; ///< The same in the condition of the sum, if there is one.
  bool isReversed = false;            ///< The keys are those from the row on, in the place of those up to it.
  std::vector<SeparableTerm> terms;
  llvm::SetVector<TensorOp> pairs; ///< Tensors of pairs that are part of the terms.

  mlir::Block::BlockArgListType indices() const { return TensorOp(copy).getBody().getArguments(); }
  /// `sum`, of the formula of `tensor`, as one of terms of which at least one has a dot.
  static std::optional<CausalSum> of(ReduceOp sum, TensorOp tensor);
};

} // namespace attn

#endif // ATTN_TRANSFORMS_CAUSALSUM_H

//===- Product.h - The factors of a product, the terms of a sum -*- C++ -*-===//

#ifndef ATTN_TRANSFORMS_PRODUCT_H
#define ATTN_TRANSFORMS_PRODUCT_H

#include "attn/Analysis/Dependence.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/IRMapping.h"

namespace attn {

/// A factor of a product: `value`, or 1 / `value`.
struct Factor {
  mlir::Value value;
  bool inverse;
  IndexSet indices;

  /// Whether it changes with one of these.
  bool changesWith(mlir::Block::BlockArgListType indices) const;
};

/// A value as the product of factors, maybe times −1. The factors are no products themselves, unless there are very
/// many.
struct Product {
  llvm::SmallVector<Factor> factors;
  bool negative = false;

  static Product of(mlir::Value value);
};

/// Whether `read` has one element for each combination of `indices`: its subscripts are these, once each.
bool isReadByAll(ReadOp read, const IndexSet &indices);

/// A term of a sum: `value`, or −`value`.
struct Term {
  mlir::Value value;
  bool negative;
};

/// `value`, or −`value` where `negative`, as the sum of terms that are no sums themselves.
llvm::SmallVector<Term> termsOfSum(mlir::Value value, bool negative = false);

/// The product of `factors` (times −1 where `negative`) at the builder's place; 1 where there are none.
mlir::Value multiply(llvm::ArrayRef<Factor> factors, bool negative, mlir::Type type, mlir::IRMapping &mapping,
                     mlir::OpBuilder &builder, mlir::Location location);

} // namespace attn

#endif // ATTN_TRANSFORMS_PRODUCT_H

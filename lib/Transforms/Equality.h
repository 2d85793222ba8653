//===- Equality.h - Where a number that is read says a place ----*- C++ -*-===//

#ifndef ATTN_TRANSFORMS_EQUALITY_H
#define ATTN_TRANSFORMS_EQUALITY_H

#include "attn/IR/Attn.h"
#include "mlir/IR/Builders.h"

#include <optional>

namespace attn {

/// `condition` says that `index` is `value`, which does not change with it, and reads a tensor.
struct Equality {
  mlir::Value condition;
  mlir::BlockArgument index;
  mlir::Value value;
};

/// `condition` as an equality with an index of `block`, if it is one.
std::optional<Equality> equalityOf(mlir::Value condition, mlir::Block &block);

/// The first of what all must hold for a term of `reduce` that is an equality with an index of `block`.
std::optional<Equality> equalityIn(ReduceOp reduce, mlir::Block &block);

/// That `value` is a place in a dimension of `size`; nothing where it always is, as one that is clamped.
llvm::SmallVector<mlir::Value> insideOf(mlir::Value value, SizeAttr size, mlir::OpBuilder &builder);

/// `value`, or the nearest place.
mlir::Value placeIn(mlir::Value value, SizeAttr size, mlir::OpBuilder &builder);

} // namespace attn

#endif // ATTN_TRANSFORMS_EQUALITY_H

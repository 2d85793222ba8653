//===- Statement.h - Writes `name[i, j] = sum[k](term where c)` -*- C++ -*-===//

#ifndef ATTN_TRANSFORMS_STATEMENT_H
#define ATTN_TRANSFORMS_STATEMENT_H

#include "attn/IR/Attn.h"
#include "mlir/IR/Builders.h"

#include <string>

namespace attn {

/// An index variable that a statement is to have.
struct Axis {
  std::string name; ///< Made unique within the statement.
  SizeAttr size;
};

/// One like `index`.
Axis axisOf(mlir::BlockArgument index);

/// The index variables of an element and, after them, of a term.
using Indices = llvm::ArrayRef<mlir::Value>;

struct Statement {
  std::string name; ///< Made unique within the kernel.
  llvm::SmallVector<Axis> axes;
  llvm::SmallVector<Axis> summed = {}; ///< None: the element is the term.
  mlir::Type type;                     ///< f32, f64 or i1.
  /// The term, at the builder's place.
  std::function<mlir::Value(mlir::OpBuilder &, Indices)> term;
  /// Which terms there are, or null: the others are 0.
  std::function<mlir::Value(mlir::OpBuilder &, Indices)> condition = nullptr;
  ReduceKind kind = ReduceKind::Sum; ///< Of the terms: a sum, or the largest.

  /// Adds the statement at the builder's place in `kernel`.
  TensorOp write(KernelOp kernel, mlir::OpBuilder &builder, mlir::Location location) const;
};

/// Adds the statement `name[indices] = value` before `tensor`, whose formula has `value`; `axes` are like `indices`.
TensorOp define(llvm::StringRef name, mlir::Value value, llvm::ArrayRef<mlir::BlockArgument> indices,
                llvm::ArrayRef<Axis> axes, TensorOp tensor);

} // namespace attn

#endif // ATTN_TRANSFORMS_STATEMENT_H

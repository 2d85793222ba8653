//===- Root.h - What formulas are inlined into ------------------*- C++ -*-===//

#ifndef ATTN_TRANSFORMS_ROOT_H
#define ATTN_TRANSFORMS_ROOT_H

#include "attn/Analysis/Dependence.h"
#include "attn/IR/Attn.h"

namespace attn {

/// A tensor that raising takes as a whole (see Inline.cpp), and the roles of its index variables.
struct Root {
  TensorOp tensor;
  mlir::Operation *formula;                    ///< Its reduction, or the tensor itself.
  mlir::BlockArgument key;                     ///< Of the formula.
  llvm::SmallVector<mlir::BlockArgument> rows; ///< The tensor's indices that a score has besides the key.
  mlir::BlockArgument query;                   ///< The last row that keys do not depend on, or null.

  /// `tensor`, which is a reduction over one index. Its query is not known yet.
  static Root of(TensorOp tensor);

  bool isSum();
  /// The index variables that `read` depends on; those of a reduction's condition count as those of its body.
  IndexSet indicesOf(ReadOp read);
  /// The last row that some key or value does not depend on. Keys are the float reads that depend on the key
  /// index, within dot products if there are such; values those that depend on a sum's last index too.
  mlir::BlockArgument findQuery();
};

} // namespace attn

#endif // ATTN_TRANSFORMS_ROOT_H

//===- Conjunction.h - Conditions that must all hold ------------*- C++ -*-===//

#ifndef ATTN_TRANSFORMS_CONJUNCTION_H
#define ATTN_TRANSFORMS_CONJUNCTION_H

#include "mlir/Dialect/Arith/IR/Arith.h"

namespace attn {

/// What must all hold for `condition` to.
inline llvm::SmallVector<mlir::Value> conjunctsOf(mlir::Value condition) {
  llvm::SmallVector<mlir::Value> conjuncts{condition};
  for (size_t position = 0; position < conjuncts.size();)
    if (auto both = conjuncts[position].getDefiningOp<mlir::arith::AndIOp>()) {
      conjuncts[position] = both.getLhs();
      conjuncts.insert(conjuncts.begin() + position + 1, both.getRhs());
    } else {
      ++position;
    }
  return conjuncts;
}

/// Whether all of `conditions` hold; there is one at least.
inline mlir::Value conjunction(llvm::ArrayRef<mlir::Value> conditions, mlir::OpBuilder &builder) {
  mlir::Value all;
  for (mlir::Value condition : conditions)
    all = all ? mlir::arith::AndIOp::create(builder, condition.getLoc(), all, condition).getResult() : condition;
  return all;
}

} // namespace attn

#endif // ATTN_TRANSFORMS_CONJUNCTION_H

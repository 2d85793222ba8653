//===- Conjunction.h - Conditions that must all hold ------------*- C++ -*-===//

#ifndef ATTN_TRANSFORMS_CONJUNCTION_H
#define ATTN_TRANSFORMS_CONJUNCTION_H

#include "attn/Analysis/PlacedSum.h"
#include "mlir/IR/Builders.h"

namespace attn {

/// Whether all of `conditions` hold; there is one at least.
mlir::Value conjunction(llvm::ArrayRef<mlir::Value> conditions, mlir::OpBuilder &builder);

/// Makes `conditions`, values of its `where`, all that `reduce` asks for; where there are none it takes all its terms.
void setConditions(ReduceOp reduce, llvm::ArrayRef<mlir::Value> conditions);

} // namespace attn

#endif // ATTN_TRANSFORMS_CONJUNCTION_H

//===- Slice.h - Moves a formula to another region --------------*- C++ -*-===//

#ifndef ATTN_TRANSFORMS_SLICE_H
#define ATTN_TRANSFORMS_SLICE_H

#include "attn/IR/Attn.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/IRMapping.h"

namespace attn {

/// Copies to `builder`'s place what computes `value`, a value of some graph op's region. `mapping` says what its index
/// variables become, and remembers what was copied, so that slices with operations in common share them. Tensors stay
/// as they are.
mlir::Value cloneSlice(mlir::Value value, mlir::IRMapping &mapping, mlir::OpBuilder &builder);

/// Copies to `builder`'s place what computes the values that `block` yields, and returns the copies of these.
/// `mapping` covers the index variables.
llvm::SmallVector<mlir::Value> cloneBlock(mlir::Block &block, mlir::IRMapping &mapping, mlir::OpBuilder &builder);

/// Gives `op`, which has none yet, the formula of `value`, with its own index variables in the place of `indices`:
/// those that `value` depends on are among these.
void fillFormula(DefinitionOpInterface op, mlir::Value value, mlir::ValueRange indices);

/// Adds a tensor at `builder`'s place whose formula is that of `value`, with its own index variables in the place of
/// `indices`: those that `value` depends on are among these.
TensorOp tensorOf(mlir::Value value, mlir::ValueRange indices, llvm::StringRef name, mlir::ArrayAttr indexNames,
                  AttnTensorType type, mlir::OpBuilder &builder);

/// Puts the formula of `tensor` in the place of `read`, which reads it. No subscript may leave its dimension.
void substituteFormula(ReadOp read, TensorOp tensor);

} // namespace attn

#endif // ATTN_TRANSFORMS_SLICE_H

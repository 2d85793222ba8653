//===- Separation.h - Calls on a query part plus a key part -----*- C++ -*-===//
//
// See Separate.cpp for the mathematics.
//
//===----------------------------------------------------------------------===//

#ifndef ATTN_TRANSFORMS_SEPARATION_H
#define ATTN_TRANSFORMS_SEPARATION_H

#include "Product.h"
#include "attn/IR/Attn.h"
#include "mlir/IR/Builders.h"

#include <optional>

namespace attn {

enum class SeparableFunction { Tanh, Sigmoid, Exp };

/// A call of `function` on first + second, of which neither part has all index variables of the other.
struct SeparableCall {
  SeparableFunction function;
  mlir::Operation *op;  ///< Whose result is the function's value.
  mlir::Value argument; ///< Of tanh or exp; of a sigmoid, what it has the exponential of.
  llvm::SmallVector<Term> first, second;

  /// `op` as such a call, if it is one whose second part is what depends on `key`.
  static std::optional<SeparableCall> of(mlir::Operation *op, mlir::BlockArgument key);
  /// Whether so few rows share a factor, as a constant size says, that factors do not pay.
  bool hasFewRows() const;
  /// p of a tanh or sigmoid (see Separate.cpp) from the argument as it is, at the builder's place: at most e^80.
  mlir::Value exponential(mlir::OpBuilder &builder) const;
};

/// Elements of tensors that are computed once.
struct SeparatedFactors {
  mlir::Value first, second; ///< e^{±parts}, at the call.
  mlir::Value isBounded;     ///< Whether they may be used in the place of the function, at the sum.
};

/// Makes the tensors of a call in the formula of `op`, with `innermost` (if given) as the last index of those that have
/// it.
SeparatedFactors makeFactors(const SeparableCall &call, DefinitionOpInterface op, mlir::BlockArgument innermost,
                             mlir::OpBuilder &atCall, mlir::OpBuilder &atSum);

/// The smaller of `value` and e^80, NaN if it is. As a comparison, which is one instruction.
mlir::Value bounded(mlir::Value value, mlir::OpBuilder &builder);

} // namespace attn

#endif // ATTN_TRANSFORMS_SEPARATION_H

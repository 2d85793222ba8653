//===- Subscripts.h - Which elements are read at a place --------*- C++ -*-===//
//
// A read x[g(i)] for all i, seen from x: for a place j, the i with g(i) == j. Every i that may be one is visited, and a
// condition says which are:
//
//   subscript   i is                          visited
//   i           j                             one, where i and j have the same range; or that of i is a part of that of
//                                             j, unless others are visited
//   i * C + d   i = j // C, d = j % C         one, where i ranges over I, d over C and j over I * C; or j over a J of
//                                             which I is J // C or C is J // I, unless others are visited
//   i // C, i % C   j * C + l                 one, where these are two dimensions j, l of J x C and i ranges over J * C
//   otherwise   any                           all
//
// A subscript that is out of bounds is clamped, so the places at the edge have more.
//
//===----------------------------------------------------------------------===//

#ifndef ATTN_TRANSFORMS_SUBSCRIPTS_H
#define ATTN_TRANSFORMS_SUBSCRIPTS_H

#include "Statement.h"

#include "mlir/IR/IRMapping.h"

namespace attn {

/// `subscript` as attn.read takes it in a dimension of `size`: max(min(subscript, size - 1), 0).
mlir::Value clamp(mlir::Value subscript, SizeAttr size, mlir::OpBuilder &builder, mlir::Location location);

class Scatter {
public:
  /// Of `read`, whose subscripts depend on `variables`.
  Scatter(ReadOp read, llvm::ArrayRef<mlir::BlockArgument> variables);

  llvm::SmallVector<Axis> axes;   ///< Of a place j.
  llvm::SmallVector<Axis> summed; ///< Of what is visited for it.

  /// The variables at a place and what is visited there: the indices of `axes` and then of `summed`.
  llvm::SmallVector<mlir::Value> sources(mlir::OpBuilder &builder, Indices indices) const;

  bool isConditional() const { return !uncertain.empty() || !partly.empty(); }
  /// Whether they are read there.
  mlir::Value condition(mlir::OpBuilder &builder, Indices indices);

private:
  using Source = std::function<mlir::Value(mlir::OpBuilder &, Indices)>;
  /// The variables of a subscript i * C + d.
  struct Pair {
    unsigned dimension;
    mlir::BlockArgument outer, inner;
  };

  void solve(unsigned dimension);
  bool solveDigits(mlir::Value subscript);
  bool solvePair(mlir::Value subscript, unsigned dimension);
  mlir::IRMapping mapping(mlir::OpBuilder &builder, Indices indices) const;

  ReadOp read;
  llvm::SmallVector<mlir::BlockArgument> variables;
  llvm::SmallDenseMap<mlir::BlockArgument, Source> known; ///< What a variable is.
  llvm::SmallVector<mlir::BlockArgument> fromDigits;      ///< Variables that two subscripts tell.
  llvm::SmallVector<Pair> partly;                         ///< Subscripts that do not reach the end of a dimension.
  llvm::SmallVector<unsigned> uncertain;                  ///< Dimensions whose subscript has to be compared.
};

} // namespace attn

#endif // ATTN_TRANSFORMS_SUBSCRIPTS_H

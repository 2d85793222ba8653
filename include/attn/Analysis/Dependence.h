//===- Dependence.h - What a value is made of -------------------*- C++ -*-===//
//
// What most decisions about a formula come down to: does this value change with the key, with the
// query, with both, with what is read? An index variable is an i64 argument of a region of a graph op or of an
// attn.reduce.
//
//===----------------------------------------------------------------------===//

#ifndef ATTN_ANALYSIS_DEPENDENCE_H
#define ATTN_ANALYSIS_DEPENDENCE_H

#include "attn/IR/Attn.h"
#include "llvm/ADT/SetVector.h"

#include <optional>

namespace attn {

using IndexSet = llvm::SmallSetVector<mlir::BlockArgument, 6>;

/// The index variables that `value` depends on: through operands, and through the regions of reductions, whose own
/// variables are bound there and do not count. Tensors that are read are not looked into.
IndexSet dependence(mlir::Value value);

/// The index variables that any of `values` depends on.
IndexSet dependence(mlir::ValueRange values);

/// `indices` from the outermost region to the innermost, and in the order of the arguments.
llvm::SmallVector<mlir::BlockArgument> inOrder(const IndexSet &indices);

/// Calls `visit` on the operations that compute `value` inside the regions of its graph op, reductions' insides among
/// them, until it returns true. Returns whether it did. Each is visited once, however often the formula uses it.
bool anyInSlice(mlir::Value value, llvm::function_ref<bool(mlir::Operation *)> visit);

/// Calls `visit` on the operations that compute `value` in its own formula, not on those inside of reductions: once on
/// each, however often the formula uses it. What is behind one for which it returns false is left out.
void walkFormula(mlir::Value value, llvm::function_ref<bool(mlir::Operation *)> visit);

/// Whether `value` is made with a reduction.
bool reduces(mlir::Value value);

/// Whether a term of `op`, or its condition, is made with a reduction.
bool hasInnerReduction(ReduceOp op);

/// Whether the terms of `op` are made of a reduction that stands around it, as those of `sum[u](w[u] * relu(x * score))`
/// are: one value for all of them.
bool hasReductionAround(ReduceOp op);

/// Whether lanes should run along the last index of `op`: some read is contiguous in it, and none along `lane`. A term
/// that has a reduction of its own is one for each step of a loop.
bool isContiguous(ReduceOp op, mlir::Value lane);

/// Whether `value` is what `read` gives times something else, or made of such by sums and choices: 0 where it is 0,
/// twice as much where it is twice as much.
bool isMultipleOf(mlir::Value value, ReadOp read);

/// Whether some operand in `op`, or in an operation inside, is one of these: what reads tensors in its formulas has
/// them there.
bool uses(mlir::Operation *op, llvm::function_ref<bool(mlir::Value)> isOneOf);

/// Whether `tensor` is an output of the kernel.
bool isReturned(mlir::Value tensor);

/// The number of values that an index variable takes.
SizeAttr indexSize(mlir::BlockArgument index);

/// The size that `value` is, if it is one.
std::optional<SizeAttr> sizeOf(mlir::Value value);

/// Whether a size is 0 or more whatever the arguments are, as its text says: it has no difference.
bool isNeverNegative(SizeAttr size);

/// The name of an index variable in the source.
llvm::StringRef indexName(mlir::BlockArgument index);

/// A comparison of two index variables, however it is written: smaller < larger, or smaller <= larger.
struct IndexOrder {
  mlir::BlockArgument smaller, larger;
  bool isStrict;
  /// `condition` as one, if it is one.
  static std::optional<IndexOrder> of(mlir::Value condition);
};

/// The number `high` · S + `low` of two indices, the second below S: where the heads' columns of a matrix are, h · D +
/// d.
struct TwoDigits {
  mlir::BlockArgument high, low;
  /// `value` as such a number, if it is written as one.
  static std::optional<TwoDigits> of(mlir::Value value);
};

/// Whether a subscript stays inside a dimension of this size whatever the arguments are, so that the clamp of attn.read
/// does nothing: it is an index variable of that size, a remainder of a division by the size, n // B for an index n of
/// the size times B, a number of two digits in a dimension of as many numbers, or between 0 and a constant size for all
/// values of index variables whose sizes are constants.
bool isInRange(mlir::Value subscript, SizeAttr size);

/// Whether that holds of every subscript of `read`.
bool isInRange(ReadOp read);

} // namespace attn

#endif // ATTN_ANALYSIS_DEPENDENCE_H

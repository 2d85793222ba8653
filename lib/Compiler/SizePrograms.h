//===- SizePrograms.h - Size expressions as postfix programs ----*- C++ -*-===//

#ifndef ATTN_LIB_COMPILER_SIZEPROGRAMS_H
#define ATTN_LIB_COMPILER_SIZEPROGRAMS_H

#include "Interface.h"

namespace attn {

/// Positions of the sizes that are known, by name.
using SizePositions = llvm::StringMap<int64_t>;

/// The program that computes `size`. All its names have positions.
SizeProgram sizeProgram(SizeAttr size, const SizePositions &positions);

/// The name that `dimension = size` can be solved for: the only one in `size` without a position. Null where there is
/// none or where it cannot be isolated (it occurs twice, or is divided).
mlir::StringAttr solvableName(SizeAttr size, const SizePositions &positions);

/// The program that computes `name` from the dimension that `size` describes: for H * D and D it is dimension // H.
SizeProgram solutionProgram(SizeAttr size, mlir::StringAttr name, const SizePositions &positions);

/// The deepest that a program's stack gets.
int64_t stackDepth(const SizeProgram &program);

} // namespace attn

#endif // ATTN_LIB_COMPILER_SIZEPROGRAMS_H

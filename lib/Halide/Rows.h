//===- Rows.h - Rows of tensors that scores make ----------------*- C++ -*-===//
//
// A tensor of which scores read a row at a key or at a query (attn/Analysis/KeyTensors.h) is not stored: the plans have
// Funcs with the rows that a tile reads. Here is what is the same for all of them.
//
//===----------------------------------------------------------------------===//

#ifndef ATTN_LIB_HALIDE_ROWS_H
#define ATTN_LIB_HALIDE_ROWS_H

#include "Parts.h"

namespace attn::lowering {

/// The indices of the formula of the tensor that `read` reads, where `environment` has it read, but with the last one
/// at `last`.
Environment bindRow(StepLowering &kernel, ReadOp read, const Environment &environment, Halide::Expr last);

/// That formula along the row, in one part or several.
std::vector<PartFormula> rowFormulas(StepLowering &kernel, ReadOp read, const Environment &environment);

/// An element of the row as it would be read, had it been stored.
Halide::Expr elementOfRow(StepLowering &kernel, ReadOp read, const Environment &environment);

} // namespace attn::lowering

#endif // ATTN_LIB_HALIDE_ROWS_H

//===- Transposition.h - Copies that turn rows into columns -----*- C++ -*-===//

#ifndef ATTN_LIB_HALIDE_TRANSPOSITION_H
#define ATTN_LIB_HALIDE_TRANSPOSITION_H

#include "Halide.h"

namespace attn::lowering {

/// Loops of `pipeline` that copy vectors whose lanes lie in different rows of memory, and go along those rows:
///
///   for r:  packed[r, lanes] = rows[lanes, r]
///
/// read as many elements of each row at once as a vector has lanes, and turn those blocks in registers. (Lane by lane,
/// each vector would touch as many lines of memory as it has lanes.) Pairs of neighbours count as one element.
void transposeCopies(Halide::Pipeline &pipeline);

} // namespace attn::lowering

#endif // ATTN_LIB_HALIDE_TRANSPOSITION_H

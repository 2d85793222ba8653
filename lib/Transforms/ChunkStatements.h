//===- ChunkStatements.h - The statements of a sum of chunks ----*- C++ -*-===//
//
// See ChunkSums.cpp for the mathematics.
//
//===----------------------------------------------------------------------===//

#ifndef ATTN_TRANSFORMS_CHUNKSTATEMENTS_H
#define ATTN_TRANSFORMS_CHUNKSTATEMENTS_H

#include "CausalSum.h"

namespace attn {

/// Keys of a chunk: a multiple of the queries of a tile (12, 24, 48; two of 64 visit as many keys as with 128). Zen 3,
/// one thread, 8 heads of 64 columns: 1024 tokens take 8.5 ms; 10.4 with 128, 10.7 with 192, 31.7 without chunks.
constexpr int64_t chunkSize = 96;

/// Writes the statements that take the place of `sum`, in the formula of `tensor`: the sum over the row's own chunk,
/// and what keys of other chunks come to.
void writeChunks(ReduceOp sum, TensorOp tensor, const CausalSum &causal);

} // namespace attn

#endif // ATTN_TRANSFORMS_CHUNKSTATEMENTS_H

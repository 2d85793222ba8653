//===- TrimChunks.h - Loops over the chunks that a mask lets through -*- C++ -*-===//

#ifndef ATTN_LIB_HALIDE_TRIMCHUNKS_H
#define ATTN_LIB_HALIDE_TRIMCHUNKS_H

#include "Halide.h"

namespace attn::lowering {

/// Loops in which stages are computed, and whose results are stored under a condition, go over those steps alone where
/// it is true. Halide itself cuts such a loop short only if nothing in it has an effect without the condition: a stage
/// that is set to zero before it adds up has, unless Halide puts the condition around it, and so has a barrier. A
/// window over many keys would take time for all.
void trimChunks(Halide::Pipeline &pipeline);

} // namespace attn::lowering

#endif // ATTN_LIB_HALIDE_TRIMCHUNKS_H

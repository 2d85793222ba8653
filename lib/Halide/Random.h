//===- Random.h - The random numbers of dropout -----------------*- C++ -*-===//

#ifndef ATTN_LIB_HALIDE_RANDOM_H
#define ATTN_LIB_HALIDE_RANDOM_H

#include "Halide.h"

namespace attn::lowering {

/// Whether dropout with probability `p` (a float) drops the element with this row-major number. A function of seed and
/// number alone, so that every schedule, thread count and target drops the same ones: Philox4x32-10 with the seed as
/// key and the number as counter, low words first; dropped where the first word is below p · 2³².
/// Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC 2011).
Halide::Expr isDropped(Halide::Expr p, Halide::Expr seed, Halide::Expr element);

} // namespace attn::lowering

#endif // ATTN_LIB_HALIDE_RANDOM_H

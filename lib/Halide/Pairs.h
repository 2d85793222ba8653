//===- Pairs.h - Products of bf16 numbers, two at a time --------*- C++ -*-===//
//
// Processors with bf16 arithmetic multiply two pairs of numbers and add both products to a float in one instruction.
// A pair is one 32-bit integer, its first number in the low half, as two neighbours lie in memory.
//
//===----------------------------------------------------------------------===//

#ifndef ATTN_LIB_HALIDE_PAIRS_H
#define ATTN_LIB_HALIDE_PAIRS_H

#include "Halide.h"

namespace attn::lowering {

/// Two floats as a pair: rounded to nearest, ties to even, unless they were read from bf16 tensors.
Halide::Expr pairOf(Halide::Expr first, Halide::Expr second);

/// a[0] · b[0] + a[1] · b[1] in f32, where a and b are pairs. Subnormal numbers count as 0. Added to a float, it is one
/// instruction.
Halide::Expr productOfPairs(Halide::Expr a, Halide::Expr b);

/// What both become in vectors: Halide's names for the instructions, once it has vectorised `pipeline`.
void lowerPairs(Halide::Pipeline &pipeline);

} // namespace attn::lowering

#endif // ATTN_LIB_HALIDE_PAIRS_H

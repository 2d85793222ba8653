//===- Division.h - Integer division in double precision --------*- C++ -*-===//
//
// No processor divides integers in lanes: a vector's numbers are taken out, divided one by one, and put in again. In
// double precision they are divided side by side, and the quotient of two numbers of 32 bits comes out right: where it
// is not whole, it is at least 1 / divisor from the next whole number, which no rounding of 53 bits bridges.
//
// So is a single number that stays the same in a loop: LLVM takes a division of integers out of no loop, for the
// divisor may be 0 where the loop is never entered, and the head of the keys, h // (H // G), was found again for each
// vector of a key. One that changes in each pass is divided sooner as an integer.
//
//===----------------------------------------------------------------------===//

#ifndef ATTN_LIB_HALIDE_DIVISION_H
#define ATTN_LIB_HALIDE_DIVISION_H

#include "Halide.h"

namespace attn::lowering {

/// Divides such numbers of `pipeline` in double precision, where divisors are no constants.
void divideInDoubles(Halide::Pipeline &pipeline);

} // namespace attn::lowering

#endif // ATTN_LIB_HALIDE_DIVISION_H

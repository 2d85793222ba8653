//===- Division.h - Integer division in lanes -------------------*- C++ -*-===//
//
// No processor divides integers in lanes: a vector's numbers are taken out, divided one by one, and put in again. In
// double precision they are divided side by side, and the quotient of two numbers of 32 bits comes out right: where it
// is not whole, it is at least 1 / divisor from the next whole number, which no rounding of 53 bits bridges.
//
//===----------------------------------------------------------------------===//

#ifndef ATTN_LIB_HALIDE_DIVISION_H
#define ATTN_LIB_HALIDE_DIVISION_H

#include "Halide.h"

namespace attn::lowering {

/// Divides the vectors of `pipeline` in lanes, where divisors are no constants.
void divideInLanes(Halide::Pipeline &pipeline);

} // namespace attn::lowering

#endif // ATTN_LIB_HALIDE_DIVISION_H

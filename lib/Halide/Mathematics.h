//===- Mathematics.h - Functions that vectorise -----------------*- C++ -*-===//
//
// Halide calls libm one lane at a time for some functions. These are written with
// multiply-adds, comparisons and integer shifts only. Errors are in docs/numerics.md.
//
//===----------------------------------------------------------------------===//

#ifndef ATTN_LIB_HALIDE_MATHEMATICS_H
#define ATTN_LIB_HALIDE_MATHEMATICS_H

#include "Halide.h"

namespace attn::lowering {

/// 2^x for x ≤ 0 (f32): results below 2^-126.5 are 0, NaN stays NaN.
Halide::Expr exp2OfNonPositive(Halide::Expr x);
/// 2^x for all x (f32; f64 by libm).
Halide::Expr exp2(Halide::Expr x);
/// e^x for all x (f32; f64 by libm).
Halide::Expr exp(Halide::Expr x);
/// e^x for −87 ≤ x ≤ 87 (f32), where neither it nor its parts leave the range of normal numbers; NaN stays NaN.
Halide::Expr expOfBounded(Halide::Expr x);
/// tanh x for all x (f32; f64 by libm).
Halide::Expr tanh(Halide::Expr x);
/// The natural logarithm, subnormals and special values included.
Halide::Expr log(Halide::Expr x);
/// The natural logarithm of 2^maximum · total: −∞ where total is 0.
Halide::Expr logSumExp(Halide::Expr maximum, Halide::Expr total);
/// The error function (f32: absolute error 1.5e-7; f64 by libm).
Halide::Expr erf(Halide::Expr x);
/// x to the power y, by libm, called lane by lane.
Halide::Expr pow(Halide::Expr x, Halide::Expr y);
/// fmod: of the quotient rounded toward zero, exact; by libm, lane by lane.
Halide::Expr remainder(Halide::Expr x, Halide::Expr y);
/// log2(e): scores are kept in powers of two.
Halide::Expr log2e(Halide::Type type);
/// `b` where it is larger than `a`, else `a`: one comparison, which passes over a `b` that is NaN.
Halide::Expr larger(Halide::Expr a, Halide::Expr b);
/// Takes the last digit, to base `size`, off `number`.
Halide::Expr takeDigit(Halide::Expr &number, const Halide::Expr &size);
/// `a` / `b` for integers, rounded up.
Halide::Expr ceilDivide(Halide::Expr a, Halide::Expr b);

/// The larger (smaller) of two floats, NaN if either is.
Halide::Expr maximum(Halide::Expr a, Halide::Expr b);
Halide::Expr minimum(Halide::Expr a, Halide::Expr b);

/// `value` as `type`: floats are rounded to nearest, ties to even; integers wrap.
Halide::Expr convert(Halide::Expr value, Halide::Type type);

/// The upper half of a float as UInt(16), rounded by integers; a NaN stays one.
Halide::Expr bfloat16Bits(Halide::Expr value);
/// A double as a float rounded to odd: towards zero, with the last bit set where something was lost. Rounding that to
/// 16 bits is rounding the double itself.
Halide::Expr toOddFloat(Halide::Expr value);

/// Constants of a float type.
Halide::Expr constant(Halide::Type type, double value);
Halide::Expr infinity(Halide::Type type);
Halide::Expr lowest(Halide::Type type);

} // namespace attn::lowering

#endif // ATTN_LIB_HALIDE_MATHEMATICS_H

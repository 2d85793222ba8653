//===- Mathematics.cpp - Functions that vectorise --------------------------===//

#include "Mathematics.h"

#include <initializer_list>
#include <limits>

using namespace Halide;

namespace attn::lowering {

/// c0 x^n + c1 x^(n-1) + … + cn, by Horner's rule.
static Expr polynomial(Expr x, std::initializer_list<float> coefficients) {
  Expr result;
  for (float coefficient : coefficients)
    result = result.defined() ? result * x + coefficient : Expr(coefficient);
  return result;
}

/// 2^f for |f| ≤ 1/2: 1 + f·g(f), g the Chebyshev approximation of (2^f − 1)/f. Relative error 7.1e-8.
static Expr exp2OfFraction(Expr f) {
  return polynomial(f, {0.00015453163f, 0.0013390863f, 0.009618083f, 0.05550357f, 0.2402265f, 0.6931472f, 1.0f});
}

/// 2^n for integer-valued n in [−127, 128], made of exponent bits; −127 gives 0 and 128 infinity.
static Expr powerOfTwo(Expr n) { return reinterpret<float>((cast<int32_t>(n) + 127) << 23); }

Expr constant(Type type, double value) { return Internal::make_const(type, value); }

Expr infinity(Type type) { return constant(type, std::numeric_limits<double>::infinity()); }

Expr lowest(Type type) {
  return constant(type,
                  type.bits() == 64 ? std::numeric_limits<double>::lowest() : std::numeric_limits<float>::lowest());
}

Expr exp2OfNonPositive(Expr x) {
  if (x.type().bits() == 64)
    return Internal::Call::make(x.type(), "exp2", {x}, Internal::Call::PureExtern);
  // Written so that a NaN passes the comparison's second branch.
  Expr bounded = select(x < -127.0f, -127.0f, x);
  Expr whole = round(bounded);
  return powerOfTwo(whole) * exp2OfFraction(bounded - whole);
}

/// 2^n · m in two steps, so that neither leaves the exponent's range before the product does.
static Expr scaleByPowerOfTwo(Expr m, Expr n) {
  Expr half = floor(n * 0.5f);
  return m * powerOfTwo(half) * powerOfTwo(n - half);
}

Expr exp2(Expr x) {
  if (x.type().bits() == 64)
    return Internal::Call::make(x.type(), "exp2", {x}, Internal::Call::PureExtern);
  Expr bounded = select(x < -160.0f, -160.0f, x > 130.0f, 130.0f, x);
  Expr whole = round(bounded);
  return scaleByPowerOfTwo(exp2OfFraction(bounded - whole), whole);
}

/// e^x is 2^n times e^r for these n and r: x = n ln 2 + r with ln 2 in two parts, so that r is exact to the last bit.
static std::pair<Expr, Expr> partsOfExp(Expr x) {
  Expr whole = round(x * 1.44269504088896341f);
  Expr r = (x - whole * 0.693359375f) - whole * -2.12194440e-4f;
  return {whole, polynomial(r, {0.0013926182f, 0.008363178f, 0.041666556f, 0.16666576f, 0.5f, 1.0f, 1.0f})};
}

Expr exp(Expr x) {
  if (x.type().bits() == 64)
    return Halide::exp(x);
  auto [whole, power] = partsOfExp(select(x < -110.0f, -110.0f, x > 90.0f, 90.0f, x));
  return scaleByPowerOfTwo(power, whole);
}

Expr expOfBounded(Expr x) {
  auto [whole, power] = partsOfExp(x);
  return power * powerOfTwo(whole);
}

/// tanh(x) = 2 t / (1 + t²), where t = tanh(x / 2) is a quotient a / b, with a = x p(x²) and b = q(x²): 2 a b / (b² +
/// a²). p and q are fitted between ±9.05, to 1.3e-9; what is lost is by rounding, at most 6 units in the last place:
/// the error of t matters less, the larger it is. From 9.05 on, where it rounds to 1, the result is 1. A NaN fails all
/// comparisons.
Expr tanh(Expr x) {
  if (x.type().bits() == 64)
    return Halide::tanh(x);
  auto within = [](const Expr &value, float limit) {
    return select(value > limit, limit, value < -limit, -limit, value);
  };
  x = within(x, 9.05f);
  Expr square = x * x;
  Expr a = x * polynomial(square, {4.45653683e-08f, 8.09381017e-05f, 0.0157853495f, 0.5f});
  Expr b = polynomial(square, {2.79816391e-06f, 0.00140388461f, 0.114904024f, 1.0f});
  return within((a + a) * b / (b * b + a * a), 1.0f);
}

Expr log(Expr x) {
  if (x.type().bits() == 64)
    return Halide::log(x);
  // Subnormals are scaled into the normal range by 2^24.
  Expr subnormal = x < std::numeric_limits<float>::min();
  Expr finite = Halide::log(select(subnormal, x * 16777216.0f, x)) - select(subnormal, 16.635532f, 0.0f);
  Type type = x.type();
  Expr notANumber = constant(type, std::numeric_limits<double>::quiet_NaN());
  return select(x > 0.0f && x < infinity(type), finite, x == 0.0f, -infinity(type), x > 0.0f, x, notANumber);
}

Expr logSumExp(Expr maximum, Expr total) {
  Expr value = maximum * constant(total.type(), 0.693147180559945309417) + lowering::log(total);
  return Halide::select(total == 0.0f, -infinity(total.type()), value);
}

Expr erf(Expr x) {
  if (x.type().bits() == 64)
    return Internal::Call::make(x.type(), "erf", {x}, Internal::Call::PureExtern);
  // From 4 on it is 1 to the last bit; a NaN fails both comparisons.
  return Halide::erf(select(x > 4.0f, 4.0f, x < -4.0f, -4.0f, x));
}

Expr pow(Expr x, Expr y) {
  return Internal::Call::make(x.type(), x.type().bits() == 64 ? "pow" : "powf", {x, y}, Internal::Call::PureExtern);
}

Expr remainder(Expr x, Expr y) {
  return Internal::Call::make(x.type(), x.type().bits() == 64 ? "fmod" : "fmodf", {x, y}, Internal::Call::PureExtern);
}

Expr bfloat16Bits(Expr value) {
  Expr bits = reinterpret<uint32_t>(cast<float>(value));
  Expr rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  Expr notANumber = (bits >> 16) | 0x40;
  return cast<uint16_t>(select(is_nan(value), notANumber, rounded));
}

static Expr toBFloat16(Expr value) { return reinterpret(BFloat(16), bfloat16Bits(value)); }

Expr toOddFloat(Expr value) {
  Expr nearest = cast<float>(value), back = cast<double>(nearest), bits = reinterpret<uint32_t>(nearest);
  Expr truncated = select(abs(back) > abs(value), bits - 1, bits);
  return reinterpret<float>(select(back == value || is_nan(value), bits, truncated | 1));
}

/// The low bits of an integer as a number of `type`. In arithmetic, because Halide takes a narrowing cast of a cast
/// from float for one cast, which saturates.
static Expr wrap(Expr value, Type type) {
  int64_t half = type.is_int() ? int64_t(1) << (type.bits() - 1) : 0;
  int64_t mask = (int64_t(1) << (type.bits() - 1) << 1) - 1;
  return cast(type, ((cast<int64_t>(value) + Expr(half)) & Expr(mask)) - Expr(half));
}

Expr convert(Expr value, Type type) {
  if (value.type() == type)
    return value;
  if (value.type().is_int() && (type.is_int() || type.is_uint()) && !type.is_bool() &&
      type.bits() < value.type().bits())
    return wrap(value, type);
  if (type.is_float() && type.bits() == 16 && value.type().bits() == 64)
    value = toOddFloat(value);
  // Halide takes a cast of a cast from f64 for one cast, which no processor has. LLVM drops the product.
  if (type == Float(16) && value.type() == Float(32))
    value = value * 1.0f;
  return type.is_bfloat() ? toBFloat16(value) : cast(type, value);
}

/// Whether `value` is a constant other than NaN and ±0.
static bool isNonzero(const Expr &value) {
  auto number = Internal::as_const_float(value);
  return number && (*number < 0 || *number > 0);
}

Expr log2e(Halide::Type type) { return constant(type, 1.44269504088896340736); }

Expr larger(Expr a, Expr b) { return select(b > a, b, a); }

Expr takeDigit(Expr &number, const Expr &size) {
  Expr digit = number % size;
  number = number / size;
  return digit;
}

Expr ceilDivide(Expr a, Expr b) { return (a + b - 1) / b; }

/// A constant is compared first, so that a NaN, which no comparison is true of, is the result: one instruction. (Halide
/// makes `a >= b` of vectors the negation of `a < b`.)
Expr maximum(Expr a, Expr b) {
  if (isNonzero(b))
    std::swap(a, b);
  return isNonzero(a) ? select(a > b, a, b) : select(a > b || is_nan(a), a, b);
}

Expr minimum(Expr a, Expr b) {
  if (isNonzero(b))
    std::swap(a, b);
  return isNonzero(a) ? select(a < b, a, b) : select(a < b || is_nan(a), a, b);
}

} // namespace attn::lowering

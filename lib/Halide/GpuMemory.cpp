//===- GpuMemory.cpp - How elements lie in a device's memory ---------------===//

#include "GpuMemory.h"
#include "Mathematics.h"

using namespace Halide;

namespace attn::lowering {

static Expr word(uint32_t value) { return Internal::make_const(UInt(32), value); }

static bool isHalf(Type type) { return type.is_float() && type.bits() == 16; }

Type typeOnDevice(Type type) {
  if (isHalf(type))
    return UInt(16);
  return type.is_bool() ? UInt(8) : type;
}

/// Exponent and fraction move to where f32 has them; a factor of 2^112 makes up for the exponents' different zeros, and
/// makes normal numbers of subnormal ones.
static Expr widenFloat16(Expr bits) {
  Expr magnitude = (bits & word(0x7fff)) << 13;
  Expr scaled = reinterpret<uint32_t>(reinterpret<float>(magnitude) * 5.192296858534828e33f);
  Expr special = (bits & word(0x7c00)) == word(0x7c00); // infinity or NaN
  Expr sign = (bits & word(0x8000)) << 16;
  return reinterpret<float>(select(special, magnitude | word(0x7f800000), scaled) | sign);
}

static Expr roundToFloat16(Expr value) {
  Expr bits = reinterpret<uint32_t>(value), magnitude = bits & word(0x7fffffff);
  // The last bit of 1/2 is what a subnormal is a multiple of: adding it rounds to one.
  Expr subnormal = reinterpret<uint32_t>(reinterpret<float>(magnitude) + 0.5f) - word(0x3f000000);
  Expr normal = (magnitude + word(0xfff) + ((magnitude >> 13) & word(1)) - word(112u << 23)) >> 13;
  Expr rounded = select(magnitude > word(0x7f800000), word(0x7e00),  // NaN
                        magnitude >= word(0x477ff000), word(0x7c00), // from 65520 on: infinity
                        magnitude < word(0x38800000), subnormal, normal);
  return cast<uint16_t>(rounded | ((bits >> 16) & word(0x8000)));
}

Expr fromDeviceMemory(Expr loaded, Type type) {
  if (type.is_bfloat())
    return reinterpret<float>(cast<uint32_t>(loaded) << 16);
  if (isHalf(type))
    return widenFloat16(cast<uint32_t>(loaded));
  return type.is_bool() ? loaded != cast<uint8_t>(0) : loaded;
}

Expr toDeviceMemory(Expr value, Type type) {
  if (type.is_bool())
    return cast<uint8_t>(value);
  if (!isHalf(type))
    return convert(value, type);
  Expr single = value.type().bits() == 64 ? toOddFloat(value) : cast<float>(value);
  return type.is_bfloat() ? bfloat16Bits(single) : roundToFloat16(single);
}

Expr atLeastOne(Expr count) { return max(count, 1); }

} // namespace attn::lowering

//===- Array.cpp - Element types and their conversions --------------------===//

#include "Array.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <new>

using namespace attn::run;

// DLPack's codes; those of DLPack 1.x, because Debian's header is older and has no bool.
static constexpr uint8_t dlInt = 0, dlUInt = 1, dlFloat = 2, dlBfloat = 4, dlBool = 6;

static constexpr ElementType elementTypes[] = {
    {"f64", ElementKind::Float, 8, "f8", dlFloat}, {"f32", ElementKind::Float, 4, "f4", dlFloat},
    {"f16", ElementKind::Float, 2, "f2", dlFloat}, {"bf16", ElementKind::Float, 2, "u2", dlBfloat},
    {"i64", ElementKind::Integer, 8, "i8", dlInt}, {"i32", ElementKind::Integer, 4, "i4", dlInt},
    {"i8", ElementKind::Integer, 1, "i1", dlInt},  {"u8", ElementKind::Integer, 1, "u1", dlUInt},
    {"bool", ElementKind::Bool, 1, "b1", dlBool},
};

const ElementType &ElementType::named(std::string_view name) {
  for (const ElementType &type : elementTypes)
    if (type.name == name)
      return type;
  throw Failure(fmt::format("no element type is named '{}'; there are f64 f32 f16 bf16 i64 i32 i8 u8 bool", name));
}

const ElementType *ElementType::described(std::string_view descriptor) {
  for (const ElementType &type : elementTypes)
    if (type.descriptor == descriptor)
      return &type;
  return nullptr;
}

std::string attn::run::printShape(const std::vector<int64_t> &shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

Array::Array(const ElementType &type, std::vector<int64_t> shape) : elementType(&type), extents(std::move(shape)) {
  int64_t bytes = static_cast<int64_t>(type.bytes);
  bool overflow = false, empty = false;
  for (int64_t extent : extents) {
    empty |= extent == 0;
    overflow |= extent < 0 || __builtin_mul_overflow(bytes, std::max<int64_t>(extent, 1), &bytes);
  }
  try {
    if (overflow)
      throw std::bad_alloc();
    storage.resize(empty ? 0 : bytes);
  } catch (const std::exception &) { // bad_alloc or length_error
    throw Failure(fmt::format("no memory for an array of shape {}", printShape(extents)));
  }
}

/// A float of `mantissa` stored bits and an exponent field below the sign, in 16 bits, as a double.
static double widen(uint16_t bits, int mantissa) {
  int exponentBits = 15 - mantissa, field = (bits >> mantissa) & ((1 << exponentBits) - 1);
  int bias = (1 << (exponentBits - 1)) - 1;
  double fraction = bits & ((1 << mantissa) - 1), sign = bits & 0x8000 ? -1 : 1;
  if (field == (1 << exponentBits) - 1)
    return fraction != 0 ? std::numeric_limits<double>::quiet_NaN() : sign * std::numeric_limits<double>::infinity();
  if (field == 0)
    return sign * std::ldexp(fraction, 1 - bias - mantissa);
  return sign * std::ldexp(fraction + (1 << mantissa), field - bias - mantissa);
}

/// The nearest such float, ties to even.
static uint16_t narrow(double value, int mantissa) {
  int exponentBits = 15 - mantissa, bias = (1 << (exponentBits - 1)) - 1;
  uint16_t sign = std::signbit(value) ? 0x8000 : 0, infinite = ((1 << exponentBits) - 1) << mantissa;
  if (std::isnan(value))
    return infinite | (1 << (mantissa - 1));
  if (std::isinf(value) || value == 0)
    return sign | (value == 0 ? 0 : infinite);
  int exponent = std::max(std::ilogb(value), 1 - bias);
  // Units of the last place; a carry into the exponent field is what rounding up to the next power of two means.
  double units = std::nearbyint(std::ldexp(std::fabs(value), mantissa - exponent));
  double whole = units + std::ldexp(exponent + bias - 1, mantissa);
  return sign | static_cast<uint16_t>(std::min<double>(whole, infinite));
}

template <typename T> static T load(const uint8_t *from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

template <typename T> static void store(uint8_t *to, T value) { std::memcpy(to, &value, sizeof(T)); }

double Array::get(int64_t number) const {
  const uint8_t *from = storage.data() + number * elementType->bytes;
  std::string_view descriptor = elementType->descriptor;
  if (descriptor == "f8")
    return load<double>(from);
  if (descriptor == "f4")
    return load<float>(from);
  if (descriptor == "f2")
    return widen(load<uint16_t>(from), 10);
  if (descriptor == "u2")
    return widen(load<uint16_t>(from), 7);
  if (descriptor == "i8")
    return static_cast<double>(load<int64_t>(from));
  if (descriptor == "i4")
    return load<int32_t>(from);
  if (descriptor == "i1")
    return load<int8_t>(from);
  return *from; // u1, b1
}

void Array::set(int64_t number, double value) {
  if (elementType->kind != ElementKind::Float)
    return set(number, static_cast<int64_t>(value));
  uint8_t *to = storage.data() + number * elementType->bytes;
  if (elementType->bytes == 8)
    store(to, value);
  else if (elementType->bytes == 4)
    store(to, static_cast<float>(value));
  else
    store(to, narrow(value, elementType->descriptor == "f2" ? 10 : 7));
}

void Array::set(int64_t number, int64_t value) {
  if (elementType->kind == ElementKind::Float)
    return set(number, static_cast<double>(value));
  if (elementType->kind == ElementKind::Bool)
    value = value != 0;
  // Little-endian: the low bytes come first.
  std::memcpy(storage.data() + number * elementType->bytes, &value, elementType->bytes);
}

DLTensor Array::tensor() {
  DLTensor view{};
  view.data = storage.data();
  view.device.device_type = kDLCPU;
  view.ndim = static_cast<int32_t>(extents.size());
  view.dtype.code = elementType->code;
  view.dtype.bits = static_cast<uint8_t>(elementType->bytes * 8);
  view.dtype.lanes = 1;
  view.shape = extents.data();
  return view;
}

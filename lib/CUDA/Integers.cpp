//===- Integers.cpp - Integers of formulas in as few bits as they need -----===//

#include "Formula.h"

#include <algorithm>
#include <fmt/format.h>

using namespace attn::cuda;

const char *attn::cuda::typeOf(IntegerRange range) { return range.fits32() ? "int" : "int64"; }

/// A range from exact bounds; one that leaves 64 bits wraps, so nothing is known.
static IntegerRange rangeOf(__int128 low, __int128 high) {
  if (low < INT64_MIN || high > INT64_MAX)
    return {};
  return {static_cast<int64_t>(low), static_cast<int64_t>(high)};
}

/// As an operand of this type.
static std::string as(const char *type, const Expression &value) {
  return typeOf(value.range) == std::string_view(type) ? value.operand() : fmt::format("{}({})", type, value.text);
}

/// The type in which an operation is done: wide where an operand or the result is.
static const char *widest(const Expression &a, const Expression &b, IntegerRange result) {
  return a.range.fits32() && b.range.fits32() && result.fits32() ? "int" : "int64";
}

/// `text` has this type, and the value a range that may be narrower.
static Expression typed(const std::string &text, const char *type, IntegerRange range) {
  if (typeOf(range) == std::string_view(type))
    return {text, range};
  return {fmt::format("{}({})", typeOf(range), text), range};
}

static Expression binary(const Expression &a, const char *sign, const Expression &b, IntegerRange range) {
  const char *type = widest(a, b, range);
  return typed(fmt::format("{} {} {}", as(type, a), sign, as(type, b)), type, range);
}

static Expression call(const char *function, const Expression &a, const Expression &b, IntegerRange range) {
  const char *type = widest(a, b, range);
  return typed(fmt::format("{}({}, {})", function, as(type, a), as(type, b)), type, range);
}

Expression attn::cuda::integer(int64_t value) {
  IntegerRange range = {value, value};
  if (range.fits32() && value != INT32_MIN)
    return {fmt::format("{}", value), range};
  return {value == INT64_MIN ? "(-9223372036854775807ll - 1)" : fmt::format("{}ll", value),
          range.fits32() ? IntegerRange() : range};
}

Expression attn::cuda::add(const Expression &a, const Expression &b) {
  return binary(a, "+", b, rangeOf((__int128)a.range.low + b.range.low, (__int128)a.range.high + b.range.high));
}

Expression attn::cuda::subtract(const Expression &a, const Expression &b) {
  return binary(a, "-", b, rangeOf((__int128)a.range.low - b.range.high, (__int128)a.range.high - b.range.low));
}

Expression attn::cuda::multiply(const Expression &a, const Expression &b) {
  __int128 corners[] = {(__int128)a.range.low * b.range.low, (__int128)a.range.low * b.range.high,
                        (__int128)a.range.high * b.range.low, (__int128)a.range.high * b.range.high};
  auto [low, high] = std::minmax_element(corners, corners + 4);
  return binary(a, "*", b, rangeOf(*low, *high));
}

Expression attn::cuda::floorDivide(const Expression &a, const Expression &b) {
  int64_t largest = std::max(std::abs(std::max(a.range.low, -INT64_MAX)), std::abs(std::max(a.range.high, -INT64_MAX)));
  if (a.range.low < 0 || b.range.low < 0)
    return call("floor_divide", a, b, {-largest, largest});
  return b.range.low > 0 ? binary(a, "/", b, {0, largest}) : call("floor_divide", a, b, {0, largest});
}

Expression attn::cuda::floorModulo(const Expression &a, const Expression &b) {
  if (b.range.low < 0)
    return call("floor_modulo", a, b, b.range);
  IntegerRange range = {0, std::max<int64_t>(b.range.high, 1) - 1};
  return a.range.low >= 0 && b.range.low > 0 ? binary(a, "%", b, range) : call("floor_modulo", a, b, range);
}

Expression attn::cuda::extremum(const Expression &a, const Expression &b, bool largest) {
  auto pick = [&](int64_t x, int64_t y) { return largest ? std::max(x, y) : std::min(x, y); };
  return call(largest ? "larger" : "smaller", a, b, {pick(a.range.low, b.range.low), pick(a.range.high, b.range.high)});
}

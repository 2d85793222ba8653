//===- Philox.h - The random numbers of dropout -----------------*- C++ -*-===//
//
// Philox4x32-10, a counter-based generator: a keyed bijection of 128-bit counters in ten rounds.
// Source: Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3" (SC 2011), section 4.3.
//
//===----------------------------------------------------------------------===//

#ifndef ATTN_LIB_REFERENCE_PHILOX_H
#define ATTN_LIB_REFERENCE_PHILOX_H

#include <array>
#include <cstdint>

namespace attn::reference {

inline std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    uint64_t first = uint64_t{0xD2511F53} * counter[0], second = uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<uint32_t>(second >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(second),
               static_cast<uint32_t>(first >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(first)};
    key[0] += 0x9E3779B9; // the golden ratio
    key[1] += 0xBB67AE85; // √3 − 1
  }
  return counter;
}

/// Whether dropout with probability `p` drops an element. The seed is the key and the element's row-major number the
/// counter (each with its low word first, the counter's upper half zero); the element is dropped when the
/// first word of the result is below p · 2³².
inline bool isDropped(double p, int64_t seed, int64_t element) {
  auto low = [](int64_t value) { return static_cast<uint32_t>(value); };
  auto high = [](int64_t value) { return static_cast<uint32_t>(static_cast<uint64_t>(value) >> 32); };
  return philox4x32({low(element), high(element), 0, 0}, {low(seed), high(seed)})[0] < p * 4294967296.0;
}

} // namespace attn::reference

#endif // ATTN_LIB_REFERENCE_PHILOX_H

//===- Random.cpp - The random numbers of dropout --------------------------===//

#include "Random.h"
#include "Mathematics.h"

#include <array>

using namespace Halide;

namespace attn::lowering {

static Expr word(uint32_t value) { return Internal::make_const(UInt(32), value); }

static Expr low(Expr value) { return cast<uint32_t>(value); }
static Expr high(Expr value) { return cast<uint32_t>(cast<uint64_t>(value) >> 32); }

/// The first word of Philox4x32-10.
static Expr firstWord(std::array<Expr, 4> counter, std::array<Expr, 2> key) {
  for (int round = 0; round < 10; ++round) {
    Expr first = cast<uint64_t>(word(0xD2511F53)) * cast<uint64_t>(counter[0]);
    Expr second = cast<uint64_t>(word(0xCD9E8D57)) * cast<uint64_t>(counter[2]);
    counter = {high(second) ^ counter[1] ^ key[0], low(second), high(first) ^ counter[3] ^ key[1], low(first)};
    key = {key[0] + word(0x9E3779B9), key[1] + word(0xBB67AE85)};
  }
  return counter[0];
}

Expr isDropped(Expr p, Expr seed, Expr element) {
  element = cast<int64_t>(element), seed = cast<int64_t>(seed);
  Expr random = firstWord({low(element), high(element), word(0), word(0)}, {low(seed), high(seed)});
  // An integer is below a real number when it is below that number rounded up.
  Expr threshold = ceil(cast<double>(p) * constant(Float(64), 4294967296.0));
  Expr inside = threshold > constant(Float(64), 0) && threshold <= constant(Float(64), 4294967295.0);
  Expr bound = cast<uint32_t>(select(inside, threshold, constant(Float(64), 0)));
  return random < bound || threshold > constant(Float(64), 4294967295.0);
}

} // namespace attn::lowering

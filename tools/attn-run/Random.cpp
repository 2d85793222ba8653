//===- Random.cpp - Random arrays -----------------------------------------===//

#include "Array.h"

#include <cmath>
#include <numbers>

using namespace attn::run;

namespace {

/// SplitMix64 (Steele, Lea, Flood 2014): one addition and a mixing function for each number.
class Generator {
public:
  explicit Generator(uint64_t seed) : state(seed) {}

  uint64_t next() {
    uint64_t mixed = state += 0x9E3779B97F4A7C15;
    mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9;
    mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB;
    return mixed ^ (mixed >> 31);
  }

  /// In (0, 1].
  double uniform() { return static_cast<double>((next() >> 11) + 1) * 0x1p-53; }

  /// Box and Muller's method.
  double normal() {
    double radius = std::sqrt(-2 * std::log(uniform()));
    return radius * std::cos(2 * std::numbers::pi * uniform());
  }

private:
  uint64_t state;
};

} // namespace

void attn::run::fillRandom(Array &array, std::optional<Range> range, uint64_t seed) {
  Generator generator(seed);
  for (int64_t number = 0; number < array.elementCount(); ++number) {
    switch (array.type().kind) {
    case ElementKind::Float:
      array.set(number, range ? range->low + (range->high - range->low) * generator.uniform() : generator.normal());
      break;
    case ElementKind::Bool:
      array.set(number, static_cast<int64_t>(generator.next() >> 63));
      break;
    case ElementKind::Integer: {
      int64_t low = static_cast<int64_t>(range->low), count = static_cast<int64_t>(range->high) - low + 1;
      array.set(number, low + static_cast<int64_t>(generator.next() % static_cast<uint64_t>(count)));
      break;
    }
    }
  }
}

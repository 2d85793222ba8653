//===- Compare.cpp - A kernel's output against the reference's ------------===//

#include "Array.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

using namespace attn::run;

static double difference(double found, double expected, double scale) {
  if (found == expected || (std::isnan(found) && std::isnan(expected)))
    return 0;
  if (!std::isfinite(found) || !std::isfinite(expected))
    return std::numeric_limits<double>::infinity();
  return std::fabs(found - expected) / scale;
}

Comparison attn::run::compare(const Array &found, const Array &expected) {
  Comparison worst;
  int64_t row = expected.shape().empty() ? 1 : expected.shape().back();
  for (int64_t first = 0; first < expected.elementCount(); first += row) {
    double scale = 0;
    for (int64_t number = first; number < first + row; ++number)
      if (double value = std::fabs(expected.get(number)); std::isfinite(value))
        scale = std::max(scale, value);
    for (int64_t number = first; number < first + row; ++number) {
      double error = difference(found.get(number), expected.get(number), scale < 1e-30 ? 1 : scale);
      if (error > worst.error)
        worst = {error, number};
    }
  }
  return worst;
}

std::string Comparison::describe(const Array &found, const Array &expected) const {
  if (error == 0)
    return "no difference";
  std::vector<int64_t> index(expected.shape().size());
  int64_t rest = number;
  for (size_t axis = index.size(); axis-- > 0; rest /= expected.shape()[axis])
    index[axis] = rest % expected.shape()[axis];
  return fmt::format("worst error {:.2g} at {} (found {:.9g}, reference {:.9g})", error, printShape(index),
                     found.get(number), expected.get(number));
}

double attn::run::defaultTolerance(const ElementType &type) {
  if (type.kind != ElementKind::Float)
    return 0;
  if (type.name == "f64")
    return 1e-12;
  if (type.name == "f32")
    return 1e-5;                               // 2e-6, what good kernels reach, times 5 for long sums in another order
  return type.name == "f16" ? 0x1p-9 : 0x1p-6; // two units in the last place at the row's scale
}

//===- Print.cpp - Arrays as text -----------------------------------------===//

#include "Array.h"

#include <fmt/format.h>

#include <algorithm>

using namespace attn::run;

namespace {

constexpr int64_t summarizedAbove = 1000, edge = 3;

class Printer {
public:
  explicit Printer(const Array &array) : array(array), summarize(array.elementCount() > summarizedAbove) {}

  std::string print() {
    measure(0, 0);
    append(0, 0);
    return text;
  }

private:
  /// Calls `visit` with the indices of dimension `axis` that are shown; −1 stands for what is left out.
  template <typename Visitor> void forEachShown(size_t axis, Visitor visit) const {
    int64_t extent = array.shape()[axis];
    bool shorten = summarize && extent > 2 * edge;
    for (int64_t index = 0; index < extent; ++index) {
      if (shorten && index == edge) {
        visit(int64_t{-1});
        index = extent - edge;
      }
      visit(index);
    }
  }

  std::string element(int64_t number) const {
    double value = array.get(number);
    if (array.type().kind == ElementKind::Float)
      return fmt::format("{:.6g}", value);
    if (array.type().kind == ElementKind::Bool)
      return value != 0 ? "True" : "False";
    return fmt::format("{:.0f}", value);
  }

  /// Elements are as wide as the widest that is shown.
  void measure(size_t axis, int64_t number) {
    if (axis == array.shape().size()) {
      width = std::max(width, element(number).size());
      return;
    }
    forEachShown(axis, [&](int64_t index) {
      if (index >= 0)
        measure(axis + 1, number * array.shape()[axis] + index);
    });
  }

  void append(size_t axis, int64_t number) {
    if (axis == array.shape().size()) {
      text += fmt::format("{:>{}}", element(number), width);
      return;
    }
    size_t below = array.shape().size() - axis - 1; // dimensions inside this one
    text += '[';
    bool first = true;
    forEachShown(axis, [&](int64_t index) {
      if (!first)
        text += below ? std::string(below, '\n') + std::string(axis + 1, ' ') : " ";
      first = false;
      if (index < 0)
        text += "...";
      else
        append(axis + 1, number * array.shape()[axis] + index);
    });
    text += ']';
  }

  const Array &array;
  bool summarize;
  size_t width = 0;
  std::string text;
};

} // namespace

std::string attn::run::printArray(const Array &array) { return Printer(array).print(); }

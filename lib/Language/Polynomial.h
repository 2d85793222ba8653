//===- Polynomial.h - Comparing sizes ---------------------------*- C++ -*-===//
//
// Sizes are compared as polynomials with integer coefficients over size names, so that
// `H * D` and `D * H` are one size and `X + Y` is known to be at least `X`. What is no polynomial (`N // 2`) is
// taken as a name of its own.
//
//===----------------------------------------------------------------------===//

#ifndef ATTN_LIB_LANGUAGE_POLYNOMIAL_H
#define ATTN_LIB_LANGUAGE_POLYNOMIAL_H

#include "attn/IR/Attn.h"

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace attn::language {

class Polynomial {
public:
  Polynomial(int64_t constant = 0);
  /// The polynomial of a size, or nothing where a coefficient overflows.
  static std::optional<Polynomial> of(SizeAttr size);

  std::optional<Polynomial> plus(const Polynomial &other) const;
  std::optional<Polynomial> minus(const Polynomial &other) const;
  std::optional<Polynomial> times(const Polynomial &other) const;
  /// The quotient where `divisor` is one term that divides every term.
  std::optional<Polynomial> dividedBy(const Polynomial &divisor) const;

  bool operator==(const Polynomial &other) const { return terms == other.terms; }
  /// At least 0 whatever the sizes are (they are at least 0).
  bool isNeverNegative() const;
  /// Below 0 whatever the sizes are.
  bool isAlwaysNegative() const;
  /// The value, where it does not depend on any size.
  std::optional<int64_t> constant() const;

private:
  bool add(const std::vector<std::string> &names, int64_t coefficient);

  /// Coefficients by sorted list of names; none is 0.
  std::map<std::vector<std::string>, int64_t> terms;
};

/// Whether the two are the same size for all values of the names.
bool sameSize(SizeAttr a, SizeAttr b);

} // namespace attn::language

#endif // ATTN_LIB_LANGUAGE_POLYNOMIAL_H

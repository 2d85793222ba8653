//===- Polynomial.cpp - Comparing sizes -----------------------------------===//

#include "Polynomial.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/MathExtras.h"

#include <algorithm>

using namespace attn;
using namespace attn::language;

Polynomial::Polynomial(int64_t constant) {
  if (constant != 0)
    terms[{}] = constant;
}

bool Polynomial::add(const std::vector<std::string> &names, int64_t coefficient) {
  int64_t &sum = terms[names];
  if (llvm::AddOverflow(sum, coefficient, sum))
    return false;
  if (sum == 0)
    terms.erase(names);
  return true;
}

std::optional<Polynomial> Polynomial::of(SizeAttr size) {
  if (size.isConstant())
    return Polynomial(size.getValue());
  Polynomial atom;
  atom.terms[{size.str()}] = 1;
  if (size.isName() || size.getKind() == SizeKind::FloorDiv || size.getKind() == SizeKind::Mod)
    return atom;
  std::optional<Polynomial> lhs = of(size.getLhs()), rhs = of(size.getRhs());
  if (!lhs || !rhs)
    return std::nullopt;
  switch (size.getKind()) {
  case SizeKind::Add:
    return lhs->plus(*rhs);
  case SizeKind::Sub:
    return lhs->minus(*rhs);
  default:
    return lhs->times(*rhs);
  }
}

std::optional<Polynomial> Polynomial::plus(const Polynomial &other) const {
  Polynomial result = *this;
  for (const auto &[names, coefficient] : other.terms)
    if (!result.add(names, coefficient))
      return std::nullopt;
  return result;
}

std::optional<Polynomial> Polynomial::minus(const Polynomial &other) const {
  std::optional<Polynomial> negated = other.times(Polynomial(-1));
  return negated ? plus(*negated) : std::nullopt;
}

std::optional<Polynomial> Polynomial::times(const Polynomial &other) const {
  Polynomial result;
  for (const auto &[leftNames, left] : terms)
    for (const auto &[rightNames, right] : other.terms) {
      std::vector<std::string> names;
      std::merge(leftNames.begin(), leftNames.end(), rightNames.begin(), rightNames.end(), std::back_inserter(names));
      int64_t product;
      // Expanding (A + B) * (C + D) * … grows exponentially; nobody writes such a size.
      if (llvm::MulOverflow(left, right, product) || !result.add(names, product) || result.terms.size() > 64)
        return std::nullopt;
    }
  return result;
}

std::optional<Polynomial> Polynomial::dividedBy(const Polynomial &divisor) const {
  if (divisor.terms.size() != 1)
    return std::nullopt;
  const auto &[divisorNames, divisorCoefficient] = *divisor.terms.begin();
  Polynomial result;
  for (const auto &[names, coefficient] : terms) {
    if (divisorCoefficient <= 0 || coefficient % divisorCoefficient != 0 ||
        !std::includes(names.begin(), names.end(), divisorNames.begin(), divisorNames.end()))
      return std::nullopt;
    std::vector<std::string> quotient;
    std::set_difference(names.begin(), names.end(), divisorNames.begin(), divisorNames.end(),
                        std::back_inserter(quotient));
    result.terms[quotient] = coefficient / divisorCoefficient;
  }
  return result;
}

bool Polynomial::isNeverNegative() const {
  return llvm::all_of(terms, [](const auto &term) { return term.second >= 0; });
}

bool Polynomial::isAlwaysNegative() const {
  auto constant = terms.find({});
  return constant != terms.end() && llvm::all_of(terms, [](const auto &term) { return term.second < 0; });
}

std::optional<int64_t> Polynomial::constant() const {
  if (terms.empty())
    return 0;
  if (terms.size() == 1 && terms.begin()->first.empty())
    return terms.begin()->second;
  return std::nullopt;
}

bool attn::language::sameSize(SizeAttr a, SizeAttr b) {
  if (a == b)
    return true;
  std::optional<Polynomial> left = Polynomial::of(a), right = Polynomial::of(b);
  return left && right && *left == *right;
}

//===- SizePolynomial.cpp - Polynomials in sizes --------------------------===//

#include "attn/Analysis/Cost.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;
using namespace attn;

SizePolynomial::SizePolynomial(int64_t constant) {
  if (constant)
    terms[{}] = constant;
}

SizePolynomial::SizePolynomial(SizeAttr size) {
  switch (size.getKind()) {
  case SizeKind::Constant:
    *this = SizePolynomial(size.getValue());
    return;
  case SizeKind::Add:
    *this = SizePolynomial(size.getLhs());
    *this += SizePolynomial(size.getRhs());
    return;
  case SizeKind::Sub:
    *this = SizePolynomial(size.getLhs());
    *this += SizePolynomial(size.getRhs()) * -1;
    return;
  case SizeKind::Mul:
    *this = SizePolynomial(size.getLhs()) * SizePolynomial(size.getRhs());
    return;
  case SizeKind::Name:
    terms[{size.getName().str()}] = 1;
    return;
  case SizeKind::FloorDiv:
  case SizeKind::Mod:
    break;
  }
  std::string text;
  llvm::raw_string_ostream(text) << '(' << size.str() << ')';
  terms[{text}] = 1;
  quotients[text] = size;
}

SizePolynomial &SizePolynomial::operator+=(const SizePolynomial &other) {
  quotients.insert(other.quotients.begin(), other.quotients.end());
  for (const auto &[sizes, coefficient] : other.terms)
    if ((terms[sizes] += coefficient) == 0)
      terms.erase(sizes);
  return *this;
}

SizePolynomial SizePolynomial::operator*(const SizePolynomial &other) const {
  SizePolynomial product;
  product.quotients = quotients;
  product.quotients.insert(other.quotients.begin(), other.quotients.end());
  for (const auto &[mine, a] : terms)
    for (const auto &[theirs, b] : other.terms) {
      std::vector<std::string> sizes(mine);
      sizes.insert(sizes.end(), theirs.begin(), theirs.end());
      llvm::sort(sizes);
      SizePolynomial term;
      term.terms[sizes] = a * b;
      product += term;
    }
  return product;
}

double SizePolynomial::evaluate(const llvm::StringMap<int64_t> &values) const {
  double total = 0;
  for (const auto &[sizes, coefficient] : terms) {
    double product = coefficient;
    for (const std::string &size : sizes) {
      auto quotient = quotients.find(size);
      product *= quotient == quotients.end() ? values.lookup(size) : quotient->second.evaluate(values).value_or(0);
    }
    total += product;
  }
  return total;
}

SizeAttr SizePolynomial::asSize(MLIRContext *context) const {
  SizeAttr total;
  for (const auto &[sizes, coefficient] : terms) {
    SizeAttr product = SizeAttr::constant(context, coefficient);
    for (const std::string &name : sizes) {
      auto quotient = quotients.find(name);
      SizeAttr size = quotient == quotients.end() ? SizeAttr::named(context, name) : quotient->second;
      product = SizeAttr::binary(SizeKind::Mul, product, size);
    }
    total = total ? SizeAttr::binary(SizeKind::Add, total, product) : product;
  }
  return total ? total : SizeAttr::constant(context, 0);
}

std::string SizePolynomial::str() const {
  if (terms.empty())
    return "0";
  std::vector<std::pair<std::vector<std::string>, int64_t>> ordered(terms.begin(), terms.end());
  llvm::stable_sort(ordered, [](const auto &a, const auto &b) { return a.first.size() > b.first.size(); });
  std::string text;
  for (const auto &[sizes, coefficient] : ordered) {
    int64_t magnitude = coefficient < 0 ? -coefficient : coefficient;
    text += text.empty() ? (coefficient < 0 ? "-" : "") : (coefficient < 0 ? " - " : " + ");
    if (magnitude != 1 || sizes.empty())
      text += std::to_string(magnitude) + (sizes.empty() ? "" : "·");
    text += llvm::join(sizes, "·");
  }
  return text;
}

//===- SizeTable.cpp - The sizes of a kernel ------------------------------===//

#include "SizeTable.h"
#include "Lexer.h"

#include "llvm/Support/FormatVariadic.h"

using namespace attn;
using namespace attn::language;
using llvm::formatv;

void SizeTable::add(StringRef name, std::optional<int64_t> value) {
  sizes.insert({name, value ? SizeAttr::constant(context, *value) : SizeAttr::named(context, name)});
}

std::vector<StringRef> SizeTable::names() const {
  std::vector<StringRef> names;
  for (const auto &entry : sizes)
    names.push_back(entry.first);
  return names;
}

SizeAttr SizeTable::resolve(const Expression &expression, bool declare) {
  if (const auto *integer = llvm::dyn_cast<IntegerExpression>(&expression))
    return resolveConstant(expression.text, integer->value);
  if (const auto *name = llvm::dyn_cast<NameExpression>(&expression))
    return resolveName(*name, declare);
  if (const auto *binary = llvm::dyn_cast<BinaryExpression>(&expression))
    return resolveBinary(*binary, declare);
  diagnostics.error(expression.text, formatv("`{0}` is not a size", expression.text))
      .help("sizes are made of names, integers, + - * and //");
  return {};
}

SizeAttr SizeTable::resolveConstant(StringRef text, int64_t value) {
  if (value <= longestDimension)
    return SizeAttr::constant(context, value);
  diagnostics.error(text, formatv("the size `{0}` is too large: at most {1} is possible", text, longestDimension));
  return {};
}

SizeAttr SizeTable::resolveName(const NameExpression &expression, bool declare) {
  StringRef name = expression.name;
  if (!isSizeName(name)) {
    diagnostics.error(name, formatv("a size must begin with an upper-case letter, but found `{0}`", name))
        .help(formatv("write `{0}`", name.upper()));
    return {};
  }
  if (!contains(name)) {
    if (!declare) {
      diagnostics.error(name, formatv("unknown size `{0}`", name))
          .suggest(name, names())
          .help(formatv("a size that no parameter gives is declared in brackets after the kernel's name: [{0} = 16]",
                        name));
      return {};
    }
    add(name, std::nullopt);
  }
  return sizes.lookup(name);
}

/// The operation on sizes that `op` is, or nothing.
static std::optional<SizeKind> kindOf(BinaryOperator op) {
  switch (op) {
  case BinaryOperator::Add:
    return SizeKind::Add;
  case BinaryOperator::Sub:
    return SizeKind::Sub;
  case BinaryOperator::Mul:
    return SizeKind::Mul;
  case BinaryOperator::FloorDiv:
    return SizeKind::FloorDiv;
  default:
    return std::nullopt;
  }
}

SizeAttr SizeTable::resolveBinary(const BinaryExpression &expression, bool declare) {
  std::optional<SizeKind> kind = kindOf(expression.op);
  if (!kind) {
    diagnostics.error(expression.opText, formatv("`{0}` cannot stand in a size", expression.opText))
        .help(expression.op == BinaryOperator::Div ? "write `//` for a division that rounds down"
                                                   : "sizes are made of names, integers, + - * and //");
    return {};
  }
  SizeAttr lhs = resolve(*expression.lhs, declare), rhs = resolve(*expression.rhs, declare);
  if (!lhs || !rhs)
    return {};
  SizeAttr size = SizeAttr::binary(*kind, lhs, rhs);
  if (size.isConstant() && size.getValue() < 0) {
    diagnostics.error(expression.text, formatv("the size `{0}` is negative: {1}", expression.text, size.getValue()));
    return {};
  }
  if (*kind == SizeKind::FloorDiv && rhs.isConstant() && rhs.getValue() == 0) {
    diagnostics.error(expression.text, formatv("the size `{0}` divides by zero", expression.text));
    return {};
  }
  return size.isConstant() ? resolveConstant(expression.text, size.getValue()) : size;
}

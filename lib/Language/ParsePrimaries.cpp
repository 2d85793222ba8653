//===- ParsePrimaries.cpp - Numbers, names, calls, subscripts, reductions -===//

#include "ExpressionParser.h"
#include "Parser.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/FormatVariadic.h"

#include <algorithm>
#include <cmath>

using namespace attn::language;
using llvm::formatv;

ExpressionPtr ExpressionParser::parsePrimary() {
  switch (current().kind) {
  case TokenKind::Integer: {
    auto node = std::make_unique<IntegerExpression>(current().text);
    node->value = parseInteger(take().text);
    return node;
  }
  case TokenKind::Float:
    return parseFloat();
  case TokenKind::LParen:
    return parseParenthesized();
  case TokenKind::Name:
    return parseNamed();
  default: {
    SourceError &error = unexpected("an expression");
    if (at(TokenKind::Plus))
      error.help("there is no unary plus");
    if (at(TokenKind::Equal) && previous().is(TokenKind::Equal))
      error.help("to compare write `==`");
    if (at(TokenKind::Where))
      error.help("to choose write select(condition, a, b)");
    if (at(TokenKind::Not))
      error.help("put brackets around it: `(not …)`");
    return nullptr;
  }
  }
}

int64_t ExpressionParser::parseInteger(StringRef text) {
  int64_t value = 0;
  if (text.getAsInteger(10, value))
    diagnostics.error(text, "the integer is larger than 9223372036854775807, the largest i64");
  return value;
}

ExpressionPtr ExpressionParser::parseFloat() {
  auto node = std::make_unique<FloatExpression>(current().text);
  // A finite spelling that no double can hold is a mistake, not an infinity.
  if (current().text.getAsDouble(node->value, /*AllowInexact=*/true) || std::isinf(node->value))
    diagnostics.error(current().text, formatv("`{0}` is too large for a float", current().text))
        .help("infinity is written `inf`");
  take();
  return node;
}

ExpressionPtr ExpressionParser::parseParenthesized() {
  Token opened = open();
  ExpressionPtr inner = parseExpression();
  if (!inner || !close(TokenKind::RParen, opened))
    return nullptr;
  inner->text = span(opened.text, closingBracket());
  return inner;
}

//===----------------------------------------------------------------------===//
// Names, and what follows them in brackets
//===----------------------------------------------------------------------===//

ExpressionPtr ExpressionParser::parseNamed() {
  StringRef name = current().text;
  if (isReduction(name) && peek().is(TokenKind::LBracket))
    return parseReduction();
  if (peek().is(TokenKind::LParen))
    return parseCall();
  if (peek().is(TokenKind::LBracket))
    return parseSubscript();
  take();
  return std::make_unique<NameExpression>(name);
}

ExpressionPtr ExpressionParser::parseCall() {
  auto node = std::make_unique<CallExpression>(current().text);
  node->name = take().text;
  Token opened = open();
  if (!parseExpressions(node->arguments, TokenKind::RParen, opened))
    return nullptr;
  const std::vector<ExpressionPtr> &arguments = node->arguments;
  return finishList(std::move(node), arguments);
}

ExpressionPtr ExpressionParser::parseSubscript() {
  auto node = std::make_unique<SubscriptExpression>(current().text);
  node->name = take().text;
  Token opened = open();
  if (at(TokenKind::RBracket)) {
    diagnostics.error(span(opened.text, current().text), "empty brackets")
        .help(formatv("a scalar is read without brackets: `{0}`", node->name));
    return nullptr;
  }
  if (!parseExpressions(node->subscripts, TokenKind::RBracket, opened))
    return nullptr;
  if (at(TokenKind::LParen)) {
    // Not of the short ones: `mean` is near `min`.
    diagnostics.error(node->text, formatv("`{0}` is no reduction", node->name))
        .suggest(node->name, {"logsumexp", "softmax"})
        .help("there are sum, max, min, logsumexp and softmax");
    return nullptr;
  }
  const std::vector<ExpressionPtr> &subscripts = node->subscripts;
  return finishList(std::move(node), subscripts);
}

ExpressionPtr ExpressionParser::parseReduction() {
  auto node = std::make_unique<ReductionExpression>(current().text);
  node->name = take().text;
  if (!parseIndices(node->indices))
    return nullptr;
  if (!at(TokenKind::LParen)) {
    unexpected("`(`").help(formatv("a reduction is written `{0}[n](expression)`", node->name));
    return nullptr;
  }
  Token opened = open();
  if (!(node->body = parseExpression()))
    return nullptr;
  if (accept(TokenKind::Where) && !(node->condition = parseExpression()))
    return nullptr;
  if (accept(TokenKind::Comma)) {
    if (!atName("sink") || !peek().is(TokenKind::Equal)) {
      unexpected("`sink = …`").help("only `sink = …` may follow the comma in a reduction");
      return nullptr;
    }
    take();
    take();
    if (!(node->sink = parseExpression()))
      return nullptr;
  }
  if (!close(TokenKind::RParen, opened, node->sink ? "" : node->condition ? "`,`" : "`where`, `,`"))
    return nullptr;
  node->text = span(node->text, closingBracket());
  const Expression *body = node->body.get(), *condition = node->condition.get(), *sink = node->sink.get();
  return finish(std::move(node), {body, condition, sink});
}

bool ExpressionParser::parseExpressions(std::vector<ExpressionPtr> &list, TokenKind closing, Token opened) {
  while (!at(closing)) {
    ExpressionPtr item = parseExpression();
    if (!item)
      return false;
    list.push_back(std::move(item));
    if (!accept(TokenKind::Comma))
      break;
  }
  return close(closing, opened, "`,`");
}

ExpressionPtr ExpressionParser::finishList(ExpressionPtr node, const std::vector<ExpressionPtr> &list) {
  for (const ExpressionPtr &child : list)
    node->height = std::max(node->height, child->height + 1);
  node->text = span(node->text, closingBracket());
  return finish(std::move(node), {});
}

//===----------------------------------------------------------------------===//
// Names that are introduced
//===----------------------------------------------------------------------===//

bool ExpressionParser::parseName(StringRef &name, StringRef what) {
  if (!at(TokenKind::Name)) {
    SourceError &error = unexpected(what);
    if (llvm::is_contained({TokenKind::Attention, TokenKind::Def, TokenKind::Return, TokenKind::Where, TokenKind::And,
                            TokenKind::Or, TokenKind::Not},
                           current().kind))
      error.help(formatv("`{0}` is a keyword and cannot be a name", current().text));
    return false;
  }
  name = current().text;
  if (isReserved(name))
    diagnostics.error(name, formatv("`{0}` is reserved and cannot be {1}", name, what));
  take();
  return true;
}

bool ExpressionParser::parseIndices(std::vector<Index> &indices) {
  Token opened = open();
  if (at(TokenKind::RBracket)) {
    diagnostics.error(span(opened.text, current().text), "empty brackets")
        .help("a scalar is written without brackets, a reduction needs an index");
    close(TokenKind::RBracket, opened);
    return false;
  }
  do {
    Index index;
    if (at(TokenKind::Integer)) {
      diagnostics.error(current().text, formatv("expected an index variable, but found `{0}`", current().text))
          .help("on the left of `=` and after a reduction, brackets introduce index variables");
      return false;
    }
    if (!parseName(index.name, "an index variable"))
      return false;
    if (accept(TokenKind::Colon) && !(index.range = parseExpression()))
      return false;
    indices.push_back(std::move(index));
  } while (accept(TokenKind::Comma));
  return close(TokenKind::RBracket, opened, "`,`");
}

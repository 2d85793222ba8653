//===- TokenCursor.cpp - A place among the tokens -------------------------===//

#include "TokenCursor.h"
#include "Operators.h"

#include "llvm/Support/FormatVariadic.h"

#include <utility>

using namespace attn::language;
using llvm::formatv;

//===----------------------------------------------------------------------===//
// Stepping
//===----------------------------------------------------------------------===//

Token TokenCursor::take() {
  Token token = current();
  if (!at(TokenKind::End))
    ++position;
  if (depth > 0)
    skipNewlines();
  return token;
}

bool TokenCursor::accept(TokenKind kind) {
  if (!at(kind))
    return false;
  take();
  return true;
}

bool TokenCursor::expect(TokenKind kind, StringRef expected) {
  if (accept(kind))
    return true;
  unexpected(expected);
  return false;
}

Token TokenCursor::open() {
  ++depth;
  return take();
}

bool TokenCursor::close(TokenKind kind, Token opened, StringRef alternatives) {
  --depth;
  if (at(kind)) {
    closed = current().text;
    take();
    return true;
  }
  StringRef bracket = kind == TokenKind::RParen ? "`)`" : kind == TokenKind::RBracket ? "`]`" : "`}`";
  SourceError &error = unexpected(alternatives.empty() ? bracket.str() : (alternatives + " or " + bracket).str());
  error.note(opened.text, formatv("to close this `{0}`", opened.text));
  if (at(TokenKind::Equal))
    error.help("`=` defines; to compare write `==`");
  if (atName("if"))
    error.help("write select(condition, a, b)");
  if (at(TokenKind::Where))
    error.help("a condition stands inside of a reduction, which names its index: sum[n](x where condition)");
  return false;
}

void TokenCursor::skipNewlines() {
  while (at(TokenKind::Newline))
    ++position;
}

void TokenCursor::continueLine() {
  size_t next = position;
  while (tokens[next].is(TokenKind::Newline))
    ++next;
  if (next == position || !looksLikeStatement(next))
    position = next;
}

SourceError &TokenCursor::unexpected(StringRef expected) {
  if (at(TokenKind::Bad))
    return muted;
  if (at(TokenKind::Newline))
    return diagnostics.error(current().text.take_front(0), formatv("expected {0}, but the line ends here", expected));
  if (at(TokenKind::End))
    return diagnostics.error(current().text, formatv("expected {0}, but the file ends here", expected));
  return diagnostics.error(current().text, formatv("expected {0}, but found `{1}`", expected, current().text));
}

//===----------------------------------------------------------------------===//
// Recovery
//===----------------------------------------------------------------------===//

bool TokenCursor::atDefinition() const {
  return startsLine(position) && (at(TokenKind::Attention) || at(TokenKind::Def));
}

bool TokenCursor::looksLikeStatement(size_t index) const {
  switch (tokens[index].kind) {
  case TokenKind::Return:
  case TokenKind::RBrace:
  case TokenKind::Attention:
  case TokenKind::Def:
  case TokenKind::End:
    return true;
  case TokenKind::Name:
    break;
  default:
    return false;
  }
  if (tokens[index].text == "sink")
    return false; // more likely a continued `sink = …`
  int brackets = 0;
  for (++index; !tokens[index].is(TokenKind::Newline) && !tokens[index].is(TokenKind::End); ++index) {
    if (tokens[index].is(TokenKind::LBracket))
      ++brackets;
    else if (tokens[index].is(TokenKind::RBracket))
      --brackets;
    else if (brackets == 0)
      return tokens[index].is(TokenKind::Equal) || tokens[index].is(TokenKind::EqualEqual) ||
             tokens[index].is(TokenKind::Colon);
  }
  return false;
}

void TokenCursor::skipToStatement(size_t start) {
  unsigned brackets = std::exchange(depth, 0);
  if (!atStatement()) {
    for (; !at(TokenKind::End) && !at(TokenKind::RBrace) && !at(TokenKind::Newline); ++position) {
      if (at(TokenKind::LParen) || at(TokenKind::LBracket))
        ++brackets;
      else if (brackets > 0 && (at(TokenKind::RParen) || at(TokenKind::RBracket)))
        --brackets;
    }
    if (brackets > 0 || operatorInfo(previous().kind).precedence > 0)
      while (!at(TokenKind::End) && !at(TokenKind::RBrace) && !atStatement())
        ++position;
  }
  if (position == start)
    ++position;
}

void TokenCursor::skipToDefinition() {
  depth = 0;
  do {
    if (!at(TokenKind::End))
      ++position;
  } while (!at(TokenKind::End) && !atDefinition());
}

void TokenCursor::skipToOpeningBrace() {
  depth = 0;
  while (!at(TokenKind::End) && !at(TokenKind::LBrace) && !atDefinition())
    ++position;
}

void TokenCursor::skipToClosingBrace() {
  while (!at(TokenKind::End) && !at(TokenKind::RBrace))
    ++position;
}

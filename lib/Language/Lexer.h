//===- Lexer.h - Text to tokens ---------------------------------*- C++ -*-===//
//
// The whole buffer is cut into tokens at once. A token's text is the piece of the buffer
// it came from, so it is its location too.
//
//===----------------------------------------------------------------------===//

#ifndef ATTN_LIB_LANGUAGE_LEXER_H
#define ATTN_LIB_LANGUAGE_LEXER_H

#include "Diagnostics.h"

namespace attn::language {

enum class TokenKind {
  Bad, ///< Text that was reported already: what it breaks is not reported again.
  Name,
  Integer,
  Float,
  Newline,
  End,
  LParen,
  RParen,
  LBracket,
  RBracket,
  LBrace,
  RBrace,
  Comma,
  Colon,
  Equal,
  Plus,
  Minus,
  Star,
  StarStar,
  Slash,
  SlashSlash,
  Percent,
  Less,
  LessEqual,
  Greater,
  GreaterEqual,
  EqualEqual,
  NotEqual,
  Attention,
  Def,
  Return,
  Where,
  And,
  Or,
  Not,
};

struct Token {
  TokenKind kind;
  llvm::StringRef text;

  bool is(TokenKind other) const { return kind == other; }
};

/// Cuts `source` into tokens; the last is `End`. Text that is no token is reported, and replaced by what was
/// evidently meant (`&&` by `and`) or left out, so that it causes no further errors.
std::vector<Token> tokenize(llvm::StringRef source, Diagnostics &diagnostics);

/// Sizes begin with an upper-case letter, every other name with a lower-case letter or an underscore.
inline bool isSizeName(llvm::StringRef name) { return !name.empty() && name.front() >= 'A' && name.front() <= 'Z'; }

} // namespace attn::language

#endif // ATTN_LIB_LANGUAGE_LEXER_H

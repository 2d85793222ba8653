//===- TokenCursor.h - A place among the tokens -----------------*- C++ -*-===//
//
// The lowest layer of the parser: it steps over tokens, joins the lines of a statement, says what
// was expected, and finds the next place to go on at after an error. It knows the shape of lines,
// not the grammar.
//
//===----------------------------------------------------------------------===//

#ifndef ATTN_LIB_LANGUAGE_TOKENCURSOR_H
#define ATTN_LIB_LANGUAGE_TOKENCURSOR_H

#include "Diagnostics.h"
#include "Lexer.h"

#include <algorithm>

namespace attn::language {

class TokenCursor {
public:
  TokenCursor(llvm::StringRef source, Diagnostics &diagnostics)
      : diagnostics(diagnostics), tokens(tokenize(source, diagnostics)) {}

  // --- Looking --------------------------------------------------------------------------------

  const Token &current() const { return tokens[position]; }
  const Token &peek() const { return tokens[std::min(position + 1, tokens.size() - 1)]; }
  const Token &previous() const { return tokens[position == 0 ? 0 : position - 1]; }
  bool at(TokenKind kind) const { return current().is(kind); }
  bool atName(llvm::StringRef name) const { return at(TokenKind::Name) && current().text == name; }
  /// At an `attention` or `def` at the start of a line.
  bool atDefinition() const;
  /// How many tokens lie before the current one.
  size_t offset() const { return position; }
  /// The bracket that was closed last.
  llvm::StringRef closingBracket() const { return closed; }

  // --- Stepping -------------------------------------------------------------------------------

  /// Steps over the current token, and over the newlines after it where a bracket is open.
  Token take();
  bool accept(TokenKind kind);
  /// Like `accept`; reports an error where the token is another one.
  bool expect(TokenKind kind, llvm::StringRef expected);
  /// Opens a bracket: newlines inside it mean nothing.
  Token open();
  /// Closes the bracket `opened`, or says where it was opened. `alternatives` could have stood there too.
  bool close(TokenKind kind, Token opened, llvm::StringRef alternatives = "");
  void skipNewlines();
  /// Steps over line ends after an operator, unless the next line is a statement of its own.
  void continueLine();

  /// Reports that `expected` is not what stands here.
  SourceError &unexpected(llvm::StringRef expected);

  // --- Recovery -------------------------------------------------------------------------------

  /// Goes on at the next line; where brackets are open, or the line ends in an operator, at the next line that looks
  /// like a statement. Always beyond `start`: what could not be parsed at all is stepped over.
  void skipToStatement(size_t start);
  /// Goes on at the next `attention` or `def` at the start of a line.
  void skipToDefinition();
  /// Goes on at the next `{`, unless a definition begins before it.
  void skipToOpeningBrace();
  /// Goes on at the next `}`.
  void skipToClosingBrace();

protected:
  Diagnostics &diagnostics;

private:
  bool startsLine(size_t index) const { return index == 0 || tokens[index - 1].is(TokenKind::Newline); }
  /// Whether the tokens from `index` on are `name =`, `name[…] =`, `name[…]: dtype =` or the like on one line.
  bool looksLikeStatement(size_t index) const;
  /// At the start of a line that looks like a statement.
  bool atStatement() const { return startsLine(position) && looksLikeStatement(position); }

  std::vector<Token> tokens;
  size_t position = 0;
  llvm::StringRef closed;
  unsigned depth = 0;        ///< Open brackets, inside which newlines mean nothing.
  SourceError muted{"", ""}; ///< Takes what is said about text that was reported already.
};

} // namespace attn::language

#endif // ATTN_LIB_LANGUAGE_TOKENCURSOR_H

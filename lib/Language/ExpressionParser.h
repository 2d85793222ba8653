//===- ExpressionParser.h - Tokens to expressions ---------------*- C++ -*-===//
//
// Expressions, and what is inside brackets after a name: indices, subscripts and arguments. What
// could not be parsed is null, and was reported.
//
//===----------------------------------------------------------------------===//

#ifndef ATTN_LIB_LANGUAGE_EXPRESSIONPARSER_H
#define ATTN_LIB_LANGUAGE_EXPRESSIONPARSER_H

#include "SyntaxTree.h"
#include "TokenCursor.h"

#include <initializer_list>

namespace attn::language {

class ExpressionParser : public TokenCursor {
public:
  using TokenCursor::TokenCursor;

  ExpressionPtr parseExpression();
  /// `[i, j: X]`: index variables where they are introduced.
  bool parseIndices(std::vector<Index> &indices);
  /// A name that is being defined. `what` says of what.
  bool parseName(StringRef &name, StringRef what);
  /// The value of the integer `text`; one that no i64 can hold is an error.
  int64_t parseInteger(StringRef text);

private:
  // --- Operators (ExpressionParser.cpp) -------------------------------------------------------

  /// Operators that bind at least as tightly as `minimum`, all left-associative.
  ExpressionPtr parseBinary(unsigned minimum);
  ExpressionPtr parseNot();
  ExpressionPtr parseUnary();
  /// `**` is right-associative and binds tighter than a minus before it: -x ** 2 = -(x ** 2).
  ExpressionPtr parsePower();
  ExpressionPtr makeUnary(Token op, ExpressionPtr operand);
  ExpressionPtr makeBinary(BinaryOperator op, Token token, ExpressionPtr lhs, ExpressionPtr rhs);
  /// Sets the height from the children, some of which may be null; too high a tree is an error.
  ExpressionPtr finish(ExpressionPtr node, std::initializer_list<const Expression *> children);
  bool tooDeep();

  // --- Primaries (ParsePrimaries.cpp) ---------------------------------------------------------

  ExpressionPtr parsePrimary();
  ExpressionPtr parseFloat();
  ExpressionPtr parseParenthesized();
  ExpressionPtr parseNamed();
  ExpressionPtr parseCall();
  ExpressionPtr parseSubscript();
  ExpressionPtr parseReduction();
  /// Expressions up to the bracket `closing` that ends what `opened` began.
  bool parseExpressions(std::vector<ExpressionPtr> &list, TokenKind closing, Token opened);
  /// Finishes a node that has `list` in the brackets that were closed last.
  ExpressionPtr finishList(ExpressionPtr node, const std::vector<ExpressionPtr> &list);

  unsigned nesting = 0; ///< Of the recursion.
};

} // namespace attn::language

#endif // ATTN_LIB_LANGUAGE_EXPRESSIONPARSER_H

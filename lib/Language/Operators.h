//===- Operators.h - How tightly binary operators bind ----------*- C++ -*-===//

#ifndef ATTN_LIB_LANGUAGE_OPERATORS_H
#define ATTN_LIB_LANGUAGE_OPERATORS_H

#include "Lexer.h"
#include "SyntaxTree.h"

namespace attn::language {

/// Precedences, from 1 (`or`) to the tightest. `not` lies between `and` and comparisons.
inline constexpr unsigned precedenceOfOr = 1, precedenceOfAnd = 2, precedenceOfComparison = 4;
inline constexpr unsigned precedenceOfSum = 5, precedenceOfProduct = 6;

struct OperatorInfo {
  unsigned precedence = 0; ///< 0 where the token is no left-associative binary operator.
  BinaryOperator op = BinaryOperator::Or;
};

/// What the token `kind` is between two operands. `**`, which is right-associative, is not among them.
OperatorInfo operatorInfo(TokenKind kind);

} // namespace attn::language

#endif // ATTN_LIB_LANGUAGE_OPERATORS_H

//===- Operators.cpp - How tightly binary operators bind ------------------===//

#include "Operators.h"

using namespace attn::language;

OperatorInfo attn::language::operatorInfo(TokenKind kind) {
  switch (kind) {
  case TokenKind::Or:
    return {precedenceOfOr, BinaryOperator::Or};
  case TokenKind::And:
    return {precedenceOfAnd, BinaryOperator::And};
  case TokenKind::EqualEqual:
    return {precedenceOfComparison, BinaryOperator::Equal};
  case TokenKind::NotEqual:
    return {precedenceOfComparison, BinaryOperator::NotEqual};
  case TokenKind::Less:
    return {precedenceOfComparison, BinaryOperator::Less};
  case TokenKind::LessEqual:
    return {precedenceOfComparison, BinaryOperator::LessEqual};
  case TokenKind::Greater:
    return {precedenceOfComparison, BinaryOperator::Greater};
  case TokenKind::GreaterEqual:
    return {precedenceOfComparison, BinaryOperator::GreaterEqual};
  case TokenKind::Plus:
    return {precedenceOfSum, BinaryOperator::Add};
  case TokenKind::Minus:
    return {precedenceOfSum, BinaryOperator::Sub};
  case TokenKind::Star:
    return {precedenceOfProduct, BinaryOperator::Mul};
  case TokenKind::Slash:
    return {precedenceOfProduct, BinaryOperator::Div};
  case TokenKind::SlashSlash:
    return {precedenceOfProduct, BinaryOperator::FloorDiv};
  case TokenKind::Percent:
    return {precedenceOfProduct, BinaryOperator::Mod};
  default:
    return {};
  }
}

//===- ExpressionParser.cpp - Tokens to expressions -----------------------===//
//
// Operators, by precedence climbing. The recursion is bounded here, and so is the height of the
// tree, which later stages recur over.
//
//===----------------------------------------------------------------------===//

#include "ExpressionParser.h"
#include "Operators.h"

#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/SaveAndRestore.h"

#include <algorithm>

using namespace attn::language;
using llvm::formatv;

/// Brackets and operators may be nested this deep, and a chain of operators may be this long.
static constexpr unsigned maximumNesting = 200, maximumHeight = 1000;

ExpressionPtr ExpressionParser::parseExpression() {
  llvm::SaveAndRestore deeper(nesting, nesting + 1);
  return tooDeep() ? nullptr : parseBinary(precedenceOfOr);
}

ExpressionPtr ExpressionParser::parseBinary(unsigned minimum) {
  bool negated = at(TokenKind::Not) && minimum <= precedenceOfComparison - 1;
  ExpressionPtr lhs = negated ? parseNot() : parseUnary();
  while (lhs) {
    OperatorInfo info = operatorInfo(current().kind);
    if (info.precedence < std::max(minimum, 1u) || (negated && info.precedence >= precedenceOfComparison))
      break;
    Token op = take();
    continueLine();
    ExpressionPtr rhs = parseBinary(info.precedence + 1);
    if (!rhs)
      return nullptr;
    StringRef right = rhs->text;
    lhs = makeBinary(info.op, op, std::move(lhs), std::move(rhs));
    OperatorInfo next = operatorInfo(current().kind);
    if (lhs && info.precedence == precedenceOfComparison && next.precedence == precedenceOfComparison) {
      diagnostics.error(current().text, "comparisons do not chain")
          .help(formatv("write `{0} and {1} {2} …`", lhs->text, right, current().text));
      return nullptr;
    }
  }
  return lhs;
}

ExpressionPtr ExpressionParser::parseNot() {
  llvm::SaveAndRestore deeper(nesting, nesting + 1);
  if (tooDeep())
    return nullptr;
  Token op = take();
  ExpressionPtr operand = at(TokenKind::Not) ? parseNot() : parseBinary(precedenceOfComparison);
  return makeUnary(op, std::move(operand));
}

ExpressionPtr ExpressionParser::parseUnary() {
  if (!at(TokenKind::Minus))
    return parsePower();
  llvm::SaveAndRestore deeper(nesting, nesting + 1);
  if (tooDeep())
    return nullptr;
  Token op = take();
  continueLine();
  return makeUnary(op, parseUnary());
}

ExpressionPtr ExpressionParser::parsePower() {
  ExpressionPtr base = parsePrimary();
  if (!base || !at(TokenKind::StarStar))
    return base;
  llvm::SaveAndRestore deeper(nesting, nesting + 1);
  if (tooDeep())
    return nullptr;
  Token op = take();
  continueLine();
  ExpressionPtr exponent = parseUnary();
  if (!exponent)
    return nullptr;
  return makeBinary(BinaryOperator::Power, op, std::move(base), std::move(exponent));
}

ExpressionPtr ExpressionParser::makeUnary(Token op, ExpressionPtr operand) {
  if (!operand)
    return nullptr;
  auto node = std::make_unique<UnaryExpression>(span(op.text, operand->text));
  node->op = op.text;
  node->isNot = op.is(TokenKind::Not);
  const Expression *child = operand.get();
  node->operand = std::move(operand);
  return finish(std::move(node), {child});
}

ExpressionPtr ExpressionParser::makeBinary(BinaryOperator op, Token token, ExpressionPtr lhs, ExpressionPtr rhs) {
  auto node = std::make_unique<BinaryExpression>(span(lhs->text, rhs->text));
  node->op = op;
  node->opText = token.text;
  const Expression *left = lhs.get(), *right = rhs.get();
  node->lhs = std::move(lhs);
  node->rhs = std::move(rhs);
  return finish(std::move(node), {left, right});
}

ExpressionPtr ExpressionParser::finish(ExpressionPtr node, std::initializer_list<const Expression *> children) {
  for (const Expression *child : children)
    if (child)
      node->height = std::max(node->height, child->height + 1);
  if (node->height <= maximumHeight)
    return node;
  diagnostics.error(node->text.take_back(1), formatv("the expression has more than {0} levels", maximumHeight))
      .help("give parts of it names of their own");
  return nullptr;
}

bool ExpressionParser::tooDeep() {
  if (nesting <= maximumNesting)
    return false;
  diagnostics.error(current().text, formatv("the expression is nested more than {0} levels deep", maximumNesting))
      .help("give parts of it names of their own");
  return true;
}

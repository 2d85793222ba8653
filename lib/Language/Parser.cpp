//===- Parser.cpp - Tokens to a syntax tree -------------------------------===//
//
// Recursive descent over the grammar of docs/language.md. A syntax error ends the statement it
// is in; the parser goes on at the next line that looks like a statement, so that one mistake
// gives one message and the rest of the file is still checked.
//
//===----------------------------------------------------------------------===//

#include "Parser.h"
#include "Lexer.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringSwitch.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/SaveAndRestore.h"

#include <cmath>

using namespace attn::language;
using llvm::formatv;

bool attn::language::isDtype(StringRef name) {
  return llvm::is_contained({"f64", "f32", "f16", "bf16", "i64", "i32", "i8", "u8", "bool"}, name);
}

bool attn::language::isReduction(StringRef name) {
  return llvm::is_contained({"sum", "max", "min", "softmax", "logsumexp"}, name);
}

bool attn::language::isReserved(StringRef name) {
  return isDtype(name) || isReduction(name) || llvm::is_contained({"inf", "pi", "true", "false"}, name);
}

/// Brackets and operators may be nested this deep, and a chain of operators may be this long.
static constexpr unsigned maximumNesting = 200, maximumHeight = 1000;

/// How tightly the binary operator binds, from 1 (`or`), or 0 where `kind` is none. `not` lies between `and` and
/// comparisons.
static constexpr unsigned precedenceOfComparison = 4, precedenceOfSum = 5, precedenceOfProduct = 6;

namespace {

struct OperatorInfo {
  unsigned precedence = 0;
  BinaryOperator op = BinaryOperator::Or;
};

OperatorInfo operatorInfo(TokenKind kind) {
  switch (kind) {
  case TokenKind::Or:
    return {1, BinaryOperator::Or};
  case TokenKind::And:
    return {2, BinaryOperator::And};
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

class Parser {
public:
  Parser(StringRef source, Diagnostics &diagnostics)
      : diagnostics(diagnostics), tokens(tokenize(source, diagnostics)) {}

  File run() {
    File file;
    for (skipNewlines(); !at(TokenKind::End); skipNewlines()) {
      if (at(TokenKind::Attention))
        parseKernel(file);
      else if (at(TokenKind::Def))
        parseFunction(file);
      else {
        Diagnostic &error = unexpected("`attention` or `def`");
        if (at(TokenKind::SlashSlash))
          error.help("a comment begins with `#`");
        error.suggest(current().text, {"attention", "def"});
        skipToDefinition();
      }
    }
    if (file.kernels.empty() && !diagnostics.hasErrors())
      diagnostics.error(current().text, "the file has no attention")
          .help("a kernel is written `attention name(q: f32[M, D], …) { … return out }`");
    return file;
  }

private:
  // --- Tokens ---------------------------------------------------------------------------------

  const Token &current() const { return tokens[position]; }
  const Token &peek(size_t ahead = 1) const { return tokens[std::min(position + ahead, tokens.size() - 1)]; }
  bool at(TokenKind kind) const { return current().is(kind); }
  const Token &previous() const { return tokens[position == 0 ? 0 : position - 1]; }

  /// Steps over the current token, and over the newlines after it where a bracket is open.
  Token take() {
    Token token = current();
    if (!at(TokenKind::End))
      ++position;
    if (depth > 0)
      skipNewlines();
    return token;
  }

  bool accept(TokenKind kind) {
    if (!at(kind))
      return false;
    take();
    return true;
  }

  void skipNewlines() {
    while (at(TokenKind::Newline))
      ++position;
  }

  Diagnostic &unexpected(StringRef expected) {
    if (at(TokenKind::Bad))
      return muted;
    if (at(TokenKind::Newline))
      return diagnostics.error(current().text.take_front(0), formatv("expected {0}, but the line ends here", expected));
    if (at(TokenKind::End))
      return diagnostics.error(current().text, formatv("expected {0}, but the file ends here", expected));
    return diagnostics.error(current().text, formatv("expected {0}, but found `{1}`", expected, current().text));
  }

  bool expect(TokenKind kind, StringRef expected) {
    if (accept(kind))
      return true;
    unexpected(expected);
    return false;
  }

  /// Steps over line ends after an operator, unless the next line is a statement of its own.
  void continueLine() {
    size_t next = position;
    while (tokens[next].is(TokenKind::Newline))
      ++next;
    if (next == position || !looksLikeStatement(next))
      position = next;
  }

  /// Opens a bracket: newlines inside it mean nothing.
  Token open() {
    ++depth;
    return take();
  }

  /// Closes the bracket `opened`, or says where it was opened.
  bool close(TokenKind kind, Token opened, StringRef alternatives = "") {
    --depth;
    if (at(kind)) {
      closed = current().text;
      take();
      return true;
    }
    StringRef bracket = kind == TokenKind::RParen ? "`)`" : kind == TokenKind::RBracket ? "`]`" : "`}`";
    Diagnostic &error = unexpected(alternatives.empty() ? bracket.str() : (alternatives + " or " + bracket).str());
    error.note(opened.text, formatv("to close this `{0}`", opened.text));
    if (at(TokenKind::Equal))
      error.help("`=` defines; to compare write `==`");
    if (at(TokenKind::Name) && current().text == "if")
      error.help("write select(condition, a, b)");
    return false;
  }

  bool atDefinition() const { return at(TokenKind::Attention) || at(TokenKind::Def); }

  // --- Recovery -------------------------------------------------------------------------------

  bool startsLine(size_t index) const { return index == 0 || tokens[index - 1].is(TokenKind::Newline); }

  /// Whether the tokens from `index` on are `name =`, `name[…] =`, `name[…]: dtype =` or the like on one line.
  bool looksLikeStatement(size_t index) const {
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
    int open = 0;
    for (++index; !tokens[index].is(TokenKind::Newline) && !tokens[index].is(TokenKind::End); ++index) {
      if (tokens[index].is(TokenKind::LBracket))
        ++open;
      else if (tokens[index].is(TokenKind::RBracket))
        --open;
      else if (open == 0)
        return tokens[index].is(TokenKind::Equal) || tokens[index].is(TokenKind::EqualEqual) ||
               tokens[index].is(TokenKind::Colon);
    }
    return false;
  }

  /// Goes on at the next line; where brackets are open, or the line ends in an operator, at the next line that looks
  /// like a statement.
  void skipToStatement() {
    unsigned open = depth;
    depth = 0;
    if (startsLine(position) && looksLikeStatement(position))
      return;
    for (; !at(TokenKind::End) && !at(TokenKind::RBrace) && !at(TokenKind::Newline); ++position) {
      if (at(TokenKind::LParen) || at(TokenKind::LBracket))
        ++open;
      else if (open > 0 && (at(TokenKind::RParen) || at(TokenKind::RBracket)))
        --open;
    }
    if (open == 0 && operatorInfo(previous().kind).precedence == 0)
      return;
    while (!at(TokenKind::End) && !at(TokenKind::RBrace) && !(startsLine(position) && looksLikeStatement(position)))
      ++position;
  }

  /// Goes on at the next `attention` or `def` at the start of a line.
  void skipToDefinition() {
    depth = 0;
    do {
      if (!at(TokenKind::End))
        ++position;
    } while (!at(TokenKind::End) && !(startsLine(position) && atDefinition()));
  }

  // --- Definitions ----------------------------------------------------------------------------

  /// A name that is being defined. `what` says of what.
  bool parseName(StringRef &name, StringRef what) {
    if (!at(TokenKind::Name)) {
      Diagnostic &error = unexpected(what);
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

  void parseFunction(File &file) {
    Function function;
    take();
    bool parsed = parseFunctionHead(function) && (function.body = parseExpression()) && parseEndOfLine("the function");
    if (!parsed) {
      function.body = nullptr;
      skipToDefinition();
    }
    if (!function.name.empty())
      file.functions.push_back(std::move(function));
  }

  bool parseFunctionHead(Function &function) {
    if (!parseName(function.name, "the name of a function"))
      return false;
    if (!at(TokenKind::LParen))
      return expect(TokenKind::LParen, "`(`");
    Token opened = open();
    while (!at(TokenKind::RParen)) {
      if (!parseName(function.parameters.emplace_back(), "the name of a parameter"))
        return false;
      if (!accept(TokenKind::Comma))
        break;
    }
    if (!close(TokenKind::RParen, opened, "`,`") || !expect(TokenKind::Equal, "`=`"))
      return false;
    continueLine();
    return true;
  }

  void parseKernel(File &file) {
    Kernel kernel;
    take();
    if (!parseKernelHead(kernel)) {
      // The body is still checked for syntax.
      kernel.broken = true;
      depth = 0;
      while (!at(TokenKind::End) && !at(TokenKind::LBrace) && !(startsLine(position) && atDefinition()))
        ++position;
      if (!at(TokenKind::LBrace)) {
        file.kernels.push_back(std::move(kernel));
        return;
      }
    }
    Token opened = take();
    bool returned = false;
    for (skipNewlines(); !at(TokenKind::RBrace); skipNewlines()) {
      if (at(TokenKind::End) || (startsLine(position) && atDefinition())) {
        unexpected("`}`").note(opened.text, "to close this `{`");
        file.kernels.push_back(std::move(kernel));
        return;
      }
      if (returned) {
        diagnostics.error(current().text, "nothing may follow `return`").help("return is the last line of a kernel");
        position = skipToBrace();
        break;
      }
      bool isReturn = at(TokenKind::Return);
      returned |= isReturn;
      size_t start = position;
      if (!(isReturn ? parseReturn(kernel) : parseStatement(kernel))) {
        skipToStatement();
        // Progress: what could not be parsed at all is stepped over.
        if (position == start)
          ++position;
      }
    }
    if (!returned)
      diagnostics.error(current().text, formatv("kernel `{0}` returns nothing", kernel.name))
          .help("end it with `return name, …`");
    accept(TokenKind::RBrace);
    file.kernels.push_back(std::move(kernel));
    if (!at(TokenKind::Newline) && !at(TokenKind::End) && !at(TokenKind::Attention) && !at(TokenKind::Def))
      unexpected("the end of the line after `}`"), skipToDefinition();
  }

  size_t skipToBrace() {
    size_t index = position;
    while (!tokens[index].is(TokenKind::End) && !tokens[index].is(TokenKind::RBrace))
      ++index;
    return index;
  }

  bool parseKernelHead(Kernel &kernel) {
    if (!parseName(kernel.name, "the name of an attention"))
      return false;
    if (at(TokenKind::LBracket) && !parseDeclaredSizes(kernel))
      return false;
    if (!at(TokenKind::LParen))
      return expect(TokenKind::LParen, "`(`");
    Token opened = open();
    if (at(TokenKind::RParen))
      diagnostics.error(current().text, formatv("kernel `{0}` has no parameters", kernel.name));
    while (!at(TokenKind::RParen)) {
      if (!parseParameter(kernel.parameters.emplace_back()))
        return false;
      if (!accept(TokenKind::Comma))
        break;
    }
    if (!close(TokenKind::RParen, opened, "`,`"))
      return false;
    skipNewlines();
    if (!at(TokenKind::LBrace))
      return expect(TokenKind::LBrace, "`{`");
    return true;
  }

  bool parseDeclaredSizes(Kernel &kernel) {
    Token opened = open();
    do {
      DeclaredSize &size = kernel.sizes.emplace_back();
      if (!parseName(size.name, "the name of a size"))
        return false;
      if (!isSizeName(size.name))
        diagnostics.error(size.name, formatv("a size must begin with an upper-case letter, but found `{0}`", size.name))
            .help(formatv("write `{0}`", size.name.upper()));
      if (accept(TokenKind::Equal)) {
        if (!at(TokenKind::Integer))
          return expect(TokenKind::Integer, "an integer");
        size.value = parseInteger(take().text);
      }
    } while (accept(TokenKind::Comma));
    return close(TokenKind::RBracket, opened, "`,`");
  }

  bool parseDtype(StringRef &dtype) {
    if (!at(TokenKind::Name) || !isDtype(current().text)) {
      Diagnostic &error = unexpected("a dtype");
      StringRef meant = llvm::StringSwitch<StringRef>(at(TokenKind::Name) ? current().text : "")
                            .Cases({"float", "float32", "fp32"}, "f32")
                            .Cases({"double", "float64", "fp64"}, "f64")
                            .Cases({"half", "float16", "fp16"}, "f16")
                            .Cases({"bfloat16"}, "bf16")
                            .Cases({"int32", "int"}, "i32")
                            .Cases({"int64", "long"}, "i64")
                            .Cases({"int8"}, "i8")
                            .Cases({"uint8", "byte"}, "u8")
                            .Cases({"i1", "boolean"}, "bool")
                            .Default("");
      if (!meant.empty())
        error.help(formatv("write `{0}`", meant));
      else
        error.help("the dtypes are f64 f32 f16 bf16 i64 i32 i8 u8 bool");
      return false;
    }
    dtype = take().text;
    return true;
  }

  bool parseParameter(Parameter &parameter) {
    if (!parseName(parameter.name, "the name of a parameter"))
      return false;
    if (!at(TokenKind::Colon)) {
      unexpected("`:` and a type").help(formatv("parameters are written `{0}: f32[M, D]`", parameter.name));
      return false;
    }
    take();
    if (!parseDtype(parameter.dtype))
      return false;
    if (at(TokenKind::LBracket)) {
      Token opened = open();
      if (at(TokenKind::RBracket)) {
        diagnostics.error(span(opened.text, current().text), "empty brackets")
            .help("a scalar is written without brackets");
        return close(TokenKind::RBracket, opened);
      }
      do {
        if (!parameter.shape.emplace_back(parseExpression())) {
          parameter.shape.pop_back();
          return false;
        }
      } while (accept(TokenKind::Comma));
      if (!close(TokenKind::RBracket, opened, "`,`"))
        return false;
    }
    if (accept(TokenKind::Equal) && !(parameter.defaultValue = parseExpression()))
      return false;
    return true;
  }

  // --- Statements -----------------------------------------------------------------------------

  bool parseReturn(Kernel &kernel) {
    take();
    do {
      StringRef name;
      if (!at(TokenKind::Name))
        return expect(TokenKind::Name, "the name of a tensor");
      name = take().text;
      kernel.outputs.push_back(name);
      if (at(TokenKind::LBracket)) {
        diagnostics.error(current().text, "expected `,` or the end of the line, but found `[`")
            .help(formatv("a whole tensor is returned: `return {0}`", name));
        return false;
      }
    } while (accept(TokenKind::Comma));
    return parseEndOfLine("the return");
  }

  bool parseStatement(Kernel &kernel) {
    if (!at(TokenKind::Name)) {
      Diagnostic &error = unexpected("a statement");
      if (at(TokenKind::SlashSlash))
        error.help("a comment begins with `#`");
      else
        error.help("a statement is written `name[i, j] = expression`");
      return false;
    }
    Statement statement;
    bool parsed = parseName(statement.name, "the name of a tensor") && parseDefinition(statement);
    if (!parsed)
      statement.value = nullptr;
    if (parsed || !statement.name.empty())
      kernel.statements.push_back(std::move(statement));
    return parsed;
  }

  bool parseDefinition(Statement &statement) {
    if (at(TokenKind::LBracket) && !parseIndices(statement.indices))
      return false;
    if (accept(TokenKind::Colon) && !parseDtype(statement.dtype))
      return false;
    if (!at(TokenKind::Equal)) {
      Diagnostic &error = unexpected("`=`");
      if (at(TokenKind::EqualEqual))
        error.help("`==` compares; to define write `=`");
      if (at(TokenKind::LParen))
        error.help(formatv("tensors are subscripted with brackets: `{0}[…] = …`", statement.name));
      error.suggest(statement.name, {"return"});
      return false;
    }
    take();
    continueLine();
    return (statement.value = parseExpression()) && parseEndOfLine("the statement");
  }

  bool parseEndOfLine(StringRef what) {
    if (accept(TokenKind::Newline) || at(TokenKind::End) || at(TokenKind::RBrace))
      return true;
    Diagnostic &error = unexpected(("an operator or the end of " + what).str());
    if (at(TokenKind::Equal))
      error.help("`=` defines; to compare write `==`");
    else if (at(TokenKind::RParen) || at(TokenKind::RBracket))
      error.help(formatv("there is no open bracket for this `{0}`", current().text));
    else if (at(TokenKind::Where))
      error.help("a condition stands inside the reduction: sum[n](x where condition)");
    else if (at(TokenKind::Name) && current().text == "if")
      error.help("write select(condition, a, b)");
    return false;
  }

  bool parseIndices(std::vector<Index> &indices) {
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

  // --- Expressions ----------------------------------------------------------------------------

  template <typename Node> static std::unique_ptr<Node> make(StringRef text) { return std::make_unique<Node>(text); }

  /// Sets the height from the children; too high a tree is an error.
  ExpressionPtr finish(ExpressionPtr node, std::initializer_list<const Expression *> children) {
    for (const Expression *child : children)
      if (child)
        node->height = std::max(node->height, child->height + 1);
    if (node->height <= maximumHeight)
      return node;
    diagnostics.error(node->text.take_back(1), formatv("the expression has more than {0} levels", maximumHeight))
        .help("give parts of it names of their own");
    return nullptr;
  }

  bool tooDeep() {
    if (nesting <= maximumNesting)
      return false;
    diagnostics.error(current().text, formatv("the expression is nested more than {0} levels deep", maximumNesting))
        .help("give parts of it names of their own");
    return true;
  }

  ExpressionPtr parseExpression() {
    llvm::SaveAndRestore deeper(nesting, nesting + 1);
    return tooDeep() ? nullptr : parseBinary(1);
  }

  /// Operators that bind at least as tightly as `minimum`, all left-associative.
  ExpressionPtr parseBinary(unsigned minimum) {
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
      auto node = make<BinaryExpression>(span(lhs->text, rhs->text));
      node->op = info.op;
      node->opText = op.text;
      const Expression *left = lhs.get(), *right = rhs.get();
      node->lhs = std::move(lhs);
      node->rhs = std::move(rhs);
      lhs = finish(std::move(node), {left, right});
      OperatorInfo next = operatorInfo(current().kind);
      if (lhs && info.precedence == precedenceOfComparison && next.precedence == precedenceOfComparison) {
        diagnostics.error(current().text, "comparisons do not chain")
            .help(formatv("write `{0} and {1} {2} …`", lhs->text, right->text, current().text));
        return nullptr;
      }
    }
    return lhs;
  }

  ExpressionPtr parseNot() {
    llvm::SaveAndRestore deeper(nesting, nesting + 1);
    if (tooDeep())
      return nullptr;
    Token op = take();
    ExpressionPtr operand = at(TokenKind::Not) ? parseNot() : parseBinary(precedenceOfComparison);
    return makeUnary(op, std::move(operand));
  }

  ExpressionPtr makeUnary(Token op, ExpressionPtr operand) {
    if (!operand)
      return nullptr;
    auto node = make<UnaryExpression>(span(op.text, operand->text));
    node->op = op.text;
    node->isNot = op.is(TokenKind::Not);
    const Expression *child = operand.get();
    node->operand = std::move(operand);
    return finish(std::move(node), {child});
  }

  ExpressionPtr parseUnary() {
    if (!at(TokenKind::Minus))
      return parsePower();
    llvm::SaveAndRestore deeper(nesting, nesting + 1);
    if (tooDeep())
      return nullptr;
    Token op = take();
    continueLine();
    return makeUnary(op, parseUnary());
  }

  /// `**` is right-associative and binds tighter than a minus before it: -x ** 2 = -(x ** 2).
  ExpressionPtr parsePower() {
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
    auto node = make<BinaryExpression>(span(base->text, exponent->text));
    node->op = BinaryOperator::Power;
    node->opText = op.text;
    const Expression *left = base.get(), *right = exponent.get();
    node->lhs = std::move(base);
    node->rhs = std::move(exponent);
    return finish(std::move(node), {left, right});
  }

  ExpressionPtr parsePrimary() {
    switch (current().kind) {
    case TokenKind::Integer: {
      auto node = make<IntegerExpression>(current().text);
      node->value = parseInteger(take().text);
      return node;
    }
    case TokenKind::Float: {
      auto node = make<FloatExpression>(current().text);
      // A finite spelling that no double can hold is a mistake, not an infinity.
      if (current().text.getAsDouble(node->value, /*AllowInexact=*/true) || std::isinf(node->value))
        diagnostics.error(current().text, formatv("`{0}` is too large for a float", current().text))
            .help("infinity is written `inf`");
      take();
      return node;
    }
    case TokenKind::LParen: {
      Token opened = open();
      ExpressionPtr inner = parseExpression();
      if (!inner || !close(TokenKind::RParen, opened))
        return nullptr;
      inner->text = span(opened.text, closed);
      return inner;
    }
    case TokenKind::Name:
      return parseNamed();
    default: {
      Diagnostic &error = unexpected("an expression");
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

  int64_t parseInteger(StringRef text) {
    int64_t value = 0;
    if (text.getAsInteger(10, value))
      diagnostics.error(text, "the integer is larger than 9223372036854775807, the largest i64");
    return value;
  }

  ExpressionPtr parseNamed() {
    StringRef name = current().text;
    if (isReduction(name) && peek().is(TokenKind::LBracket))
      return parseReduction();
    if (peek().is(TokenKind::LParen))
      return parseCall();
    if (peek().is(TokenKind::LBracket))
      return parseSubscript();
    take();
    return make<NameExpression>(name);
  }

  template <typename List> bool parseExpressions(List &list, TokenKind closing, Token opened) {
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

  template <typename Node> ExpressionPtr finishList(std::unique_ptr<Node> node, std::vector<ExpressionPtr> &list) {
    unsigned height = 0;
    for (const ExpressionPtr &child : list)
      height = std::max(height, child->height);
    node->height = height + 1;
    node->text = span(node->text, closed);
    return finish(std::move(node), {});
  }

  ExpressionPtr parseCall() {
    auto node = make<CallExpression>(current().text);
    node->name = take().text;
    Token opened = open();
    if (!parseExpressions(node->arguments, TokenKind::RParen, opened))
      return nullptr;
    std::vector<ExpressionPtr> &list = node->arguments;
    return finishList(std::move(node), list);
  }

  ExpressionPtr parseSubscript() {
    auto node = make<SubscriptExpression>(current().text);
    node->name = take().text;
    Token opened = open();
    if (at(TokenKind::RBracket)) {
      diagnostics.error(span(opened.text, current().text), "empty brackets")
          .help(formatv("a scalar is read without brackets: `{0}`", node->name));
      return nullptr;
    }
    if (!parseExpressions(node->subscripts, TokenKind::RBracket, opened))
      return nullptr;
    std::vector<ExpressionPtr> &list = node->subscripts;
    return finishList(std::move(node), list);
  }

  ExpressionPtr parseReduction() {
    auto node = make<ReductionExpression>(current().text);
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
      if (!at(TokenKind::Name) || current().text != "sink" || !peek().is(TokenKind::Equal)) {
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
    node->text = span(node->text, closed);
    const Expression *body = node->body.get(), *condition = node->condition.get(), *sink = node->sink.get();
    return finish(std::move(node), {body, condition, sink});
  }

  Diagnostics &diagnostics;
  std::vector<Token> tokens;
  size_t position = 0;
  Diagnostic muted{"", ""}; ///< Takes what is said about text that was reported already.
  unsigned depth = 0;       ///< Open brackets, inside which newlines mean nothing.
  unsigned nesting = 0;     ///< Of the recursion.
  StringRef closed;         ///< The bracket that was closed last.
};

} // namespace

File attn::language::parse(StringRef source, Diagnostics &diagnostics) { return Parser(source, diagnostics).run(); }

//===- StatementParser.cpp - Tokens to the statements of a kernel ---------===//

#include "StatementParser.h"
#include "Operators.h"
#include "Parser.h"

#include "llvm/ADT/StringSwitch.h"
#include "llvm/Support/FormatVariadic.h"

using namespace attn::language;
using llvm::formatv;

bool StatementParser::parseStatement(Kernel &kernel) {
  if (!at(TokenKind::Name)) {
    SourceError &error = unexpected("a statement");
    if (at(TokenKind::SlashSlash))
      error.help("a comment begins with `#`");
    else if (operatorInfo(current().kind).precedence || at(TokenKind::StarStar))
      error.help(formatv("a line that ends with `{0}`, or within brackets, goes on in the next one", current().text));
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

bool StatementParser::parseDefinition(Statement &statement) {
  if (at(TokenKind::LBracket) && !parseIndices(statement.indices))
    return false;
  if (accept(TokenKind::Colon) && !parseDtype(statement.dtype))
    return false;
  if (!at(TokenKind::Equal)) {
    SourceError &error = unexpected("`=`");
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

bool StatementParser::parseReturn(Kernel &kernel) {
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

bool StatementParser::parseDtype(StringRef &dtype) {
  if (!at(TokenKind::Name) || !isDtype(current().text)) {
    SourceError &error = unexpected("a dtype");
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

bool StatementParser::parseEndOfLine(StringRef what) {
  if (accept(TokenKind::Newline) || at(TokenKind::End) || at(TokenKind::RBrace))
    return true;
  SourceError &error = unexpected(("an operator or the end of " + what).str());
  if (at(TokenKind::Equal))
    error.help("`=` defines; to compare write `==`");
  else if (at(TokenKind::RParen) || at(TokenKind::RBracket))
    error.help(formatv("there is no open bracket for this `{0}`", current().text));
  else if (at(TokenKind::Where))
    error.help("a condition stands inside the reduction: sum[n](x where condition)");
  else if (atName("if"))
    error.help("write select(condition, a, b)");
  return false;
}

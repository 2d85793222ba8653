//===- Parser.cpp - Tokens to a syntax tree -------------------------------===//
//
// Recursive descent over the grammar of docs/language.md: kernels and functions here, and in the
// layers below their statements, expressions and tokens. A syntax error ends the statement it is
// in; the parser goes on at the next line that looks like a statement, so that one mistake
// gives one message and the rest of the file is still checked.
//
//===----------------------------------------------------------------------===//

#include "Parser.h"
#include "StatementParser.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/FormatVariadic.h"

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

namespace {

class Parser : public StatementParser {
public:
  using StatementParser::StatementParser;

  File run() {
    File file;
    for (skipNewlines(); !at(TokenKind::End); skipNewlines()) {
      if (at(TokenKind::Attention))
        parseKernel(file);
      else if (at(TokenKind::Def))
        parseFunction(file);
      else {
        SourceError &error = unexpected("`attention` or `def`");
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
  // --- Kernels --------------------------------------------------------------------------------

  void parseKernel(File &file) {
    Kernel kernel;
    take();
    if (!parseKernelHead(kernel)) {
      // The body is still checked for syntax.
      kernel.broken = true;
      skipToOpeningBrace();
    }
    bool ended = at(TokenKind::LBrace) && parseKernelBody(kernel);
    file.kernels.push_back(std::move(kernel));
    if (ended && !at(TokenKind::Newline) && !at(TokenKind::End) && !at(TokenKind::Attention) && !at(TokenKind::Def)) {
      unexpected("the end of the line after `}`");
      skipToDefinition();
    }
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

  /// `{ … }`. False where the `}` is missing.
  bool parseKernelBody(Kernel &kernel) {
    Token opened = take();
    bool returned = false;
    for (skipNewlines(); !at(TokenKind::RBrace); skipNewlines()) {
      if (at(TokenKind::End) || atDefinition()) {
        unexpected("`}`").note(opened.text, "to close this `{`");
        return false;
      }
      if (returned) {
        diagnostics.error(current().text, "nothing may follow `return`").help("return is the last line of a kernel");
        skipToClosingBrace();
        break;
      }
      size_t start = offset();
      returned = at(TokenKind::Return);
      if (!(returned ? parseReturn(kernel) : parseStatement(kernel)))
        skipToStatement(start);
    }
    if (!returned)
      diagnostics.error(current().text, formatv("kernel `{0}` returns nothing", kernel.name))
          .help("end it with `return name, …`");
    accept(TokenKind::RBrace);
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

  // --- Functions ------------------------------------------------------------------------------

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
};

} // namespace

File attn::language::parse(StringRef source, Diagnostics &diagnostics) { return Parser(source, diagnostics).run(); }

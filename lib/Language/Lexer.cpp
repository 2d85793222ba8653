//===- Lexer.cpp - Text to tokens -----------------------------------------===//

#include "Lexer.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSwitch.h"
#include "llvm/Support/ConvertUTF.h"
#include "llvm/Support/FormatVariadic.h"

using namespace attn::language;
using llvm::StringRef;

namespace {

/// A spelling of other languages, or of mathematics, and what it is here.
struct Foreign {
  StringRef text;
  TokenKind kind;
  StringRef replacement;
};

const Foreign foreignSpellings[] = {
    {"&&", TokenKind::And, "and"},          {"||", TokenKind::Or, "or"},
    {"&", TokenKind::And, "and"},           {"|", TokenKind::Or, "or"},
    {"!", TokenKind::Not, "not"},           {"~", TokenKind::Not, "not"},
    {"^", TokenKind::StarStar, "**"},       {"<>", TokenKind::NotEqual, "!="},
    {":=", TokenKind::Equal, "="},          {"\u2212", TokenKind::Minus, "-"},
    {"\u00b7", TokenKind::Star, "*"},       {"\u00d7", TokenKind::Star, "*"},
    {"\u2264", TokenKind::LessEqual, "<="}, {"\u2265", TokenKind::GreaterEqual, ">="},
    {"\u2260", TokenKind::NotEqual, "!="},  {"\u2227", TokenKind::And, "and"},
    {"\u2228", TokenKind::Or, "or"},        {"\u00ac", TokenKind::Not, "not"},
};

struct Symbol {
  StringRef text;
  TokenKind kind;
};

/// Longer spellings first.
const Symbol symbols[] = {
    {"**", TokenKind::StarStar},     {"//", TokenKind::SlashSlash}, {"<=", TokenKind::LessEqual},
    {">=", TokenKind::GreaterEqual}, {"==", TokenKind::EqualEqual}, {"!=", TokenKind::NotEqual},
    {"(", TokenKind::LParen},        {")", TokenKind::RParen},      {"[", TokenKind::LBracket},
    {"]", TokenKind::RBracket},      {"{", TokenKind::LBrace},      {"}", TokenKind::RBrace},
    {",", TokenKind::Comma},         {":", TokenKind::Colon},       {"=", TokenKind::Equal},
    {"+", TokenKind::Plus},          {"-", TokenKind::Minus},       {"*", TokenKind::Star},
    {"/", TokenKind::Slash},         {"%", TokenKind::Percent},     {"<", TokenKind::Less},
    {">", TokenKind::Greater},
};

bool isNameStart(char c) { return llvm::isAlpha(c) || c == '_'; }
bool isNamePart(char c) { return llvm::isAlnum(c) || c == '_'; }

class Lexer {
public:
  Lexer(StringRef source, Diagnostics &diagnostics) : rest(source), diagnostics(diagnostics) {}

  std::vector<Token> run() {
    rest.consume_front("\xEF\xBB\xBF"); // a byte order mark
    while (!rest.empty())
      next();
    add(TokenKind::End, 0);
    return std::move(tokens);
  }

private:
  void add(TokenKind kind, size_t length) {
    tokens.push_back({kind, rest.take_front(length)});
    rest = rest.drop_front(length);
  }

  void next() {
    char c = rest.front();
    if (c == ' ' || c == '\t' || c == '\r' || c == '\f' || c == '\v')
      rest = rest.drop_front();
    else if (c == '#')
      rest = rest.drop_front(std::min(rest.find('\n'), rest.size()));
    else if (c == '\n')
      add(TokenKind::Newline, 1);
    else if (isNameStart(c))
      name();
    else if (llvm::isDigit(c) || (c == '.' && rest.size() > 1 && llvm::isDigit(rest[1])))
      number();
    else if (!symbol())
      unknown();
  }

  void name() {
    size_t length = rest.take_while(isNamePart).size();
    add(llvm::StringSwitch<TokenKind>(rest.take_front(length))
            .Case("attention", TokenKind::Attention)
            .Case("def", TokenKind::Def)
            .Case("return", TokenKind::Return)
            .Case("where", TokenKind::Where)
            .Case("and", TokenKind::And)
            .Case("or", TokenKind::Or)
            .Case("not", TokenKind::Not)
            .Default(TokenKind::Name),
        length);
  }

  /// `12`, `1.5`, `.5`, `1e-5`. Letters that follow belong to the number and make it an error.
  void number() {
    size_t length = 0;
    auto digits = [&] {
      while (length < rest.size() && llvm::isDigit(rest[length]))
        ++length;
    };
    bool real = false;
    digits();
    if (rest.substr(length).starts_with(".")) {
      real = true;
      ++length;
      digits();
    }
    StringRef tail = rest.substr(length);
    if (!tail.empty() && (tail[0] == 'e' || tail[0] == 'E')) {
      size_t sign = tail.size() > 1 && (tail[1] == '+' || tail[1] == '-') ? 2 : 1;
      if (tail.size() > sign && llvm::isDigit(tail[sign])) {
        real = true;
        length += sign;
        digits();
      }
    }
    size_t whole = length + rest.substr(length).take_while([](char c) { return isNamePart(c) || c == '.'; }).size();
    if (whole != length) {
      StringRef text = rest.take_front(whole);
      diagnostics.error(text, llvm::formatv("`{0}` is not a number", text))
          .help("numbers are written like 12, 0.5 or 1e-5; names begin with a letter");
    }
    add(real ? TokenKind::Float : TokenKind::Integer, length);
    rest = rest.drop_front(whole - length);
  }

  bool symbol() {
    for (const Foreign &foreign : foreignSpellings) {
      if (!rest.starts_with(foreign.text) || rest.starts_with("!="))
        continue;
      StringRef text = rest.take_front(foreign.text.size());
      diagnostics.error(text, llvm::formatv("`{0}` is not an operator", text))
          .help(llvm::formatv("write `{0}`", foreign.replacement));
      add(foreign.kind, text.size());
      return true;
    }
    for (const Symbol &symbol : symbols)
      if (rest.starts_with(symbol.text)) {
        add(symbol.kind, symbol.text.size());
        return true;
      }
    return false;
  }

  /// The length in bytes of the UTF-8 character at the front of `text`, or 0 where there is none.
  static size_t characterLength(StringRef text) {
    unsigned length = llvm::getNumBytesForUTF8(static_cast<llvm::UTF8>(text.front()));
    if (length > text.size())
      return 0;
    const auto *bytes = reinterpret_cast<const llvm::UTF8 *>(text.data());
    return llvm::isLegalUTF8Sequence(bytes, bytes + length) ? length : 0;
  }

  void unknown() {
    char c = rest.front();
    if (c == ';') {
      diagnostics.error(rest.take_front(1), "unexpected character `;`").help("a statement ends at the end of its line");
      add(TokenKind::Newline, 1);
      return;
    }
    if (c == '"' || c == '\'') {
      StringRef line = rest.take_until([](char c) { return c == '\n'; });
      size_t close = line.find(c, 1);
      StringRef text = close == StringRef::npos ? line : line.take_front(close + 1);
      diagnostics.error(text,
                        close == StringRef::npos ? "unterminated string" : "there are no strings in this language");
      add(TokenKind::Bad, text.size());
      return;
    }
    size_t length = characterLength(rest);
    bool printable = length > 1 || llvm::isPrint(c);
    if (length != 0 && printable) {
      StringRef text = rest.take_front(length);
      SourceError &error = diagnostics.error(text, llvm::formatv("unexpected character `{0}`", text));
      if (length > 1)
        error.help("names are made of the letters a-z and A-Z, digits and underscores");
      if (c == '@')
        error.help("write a matrix product as a sum: sum[k](a[i, k] * b[k, j])");
      add(TokenKind::Bad, length);
      return;
    }
    // One error for a run of bytes that are not text.
    size_t run = 1;
    while (run < rest.size() && !llvm::isPrint(rest[run]) && !llvm::isSpace(rest[run]))
      ++run;
    unsigned byte = static_cast<unsigned char>(c);
    diagnostics.error(rest.take_front(1), llvm::formatv("invalid byte 0x{0:X-2}: the file is not UTF-8 text", byte));
    add(TokenKind::Bad, run);
  }

  StringRef rest;
  Diagnostics &diagnostics;
  std::vector<Token> tokens;
};

} // namespace

std::vector<Token> attn::language::tokenize(StringRef source, Diagnostics &diagnostics) {
  return Lexer(source, diagnostics).run();
}

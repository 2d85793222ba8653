//===- StatementParser.h - Tokens to the statements of a kernel -*- C++ -*-===//
//
// One line of a kernel: `name[i, j]: dtype = expression` or `return name, …`. False where it could
// not be parsed, and was reported.
//
//===----------------------------------------------------------------------===//

#ifndef ATTN_LIB_LANGUAGE_STATEMENTPARSER_H
#define ATTN_LIB_LANGUAGE_STATEMENTPARSER_H

#include "ExpressionParser.h"

namespace attn::language {

class StatementParser : public ExpressionParser {
public:
  using ExpressionParser::ExpressionParser;

  /// Adds the statement to `kernel`, without a value where only its name could be parsed.
  bool parseStatement(Kernel &kernel);
  bool parseReturn(Kernel &kernel);
  bool parseDtype(StringRef &dtype);
  /// Steps over the end of the line. `what` says what ends there.
  bool parseEndOfLine(StringRef what);

private:
  /// All of a statement but its name.
  bool parseDefinition(Statement &statement);
};

} // namespace attn::language

#endif // ATTN_LIB_LANGUAGE_STATEMENTPARSER_H

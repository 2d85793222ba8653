//===- FunctionTable.h - The functions of a file ----------------*- C++ -*-===//

#ifndef ATTN_LIB_LANGUAGE_FUNCTIONTABLE_H
#define ATTN_LIB_LANGUAGE_FUNCTIONTABLE_H

#include "Diagnostics.h"
#include "SyntaxTree.h"

#include "llvm/ADT/MapVector.h"

namespace attn::language {

class FunctionTable {
public:
  /// Reports names that functions or their parameters cannot have.
  FunctionTable(const File &file, Diagnostics &diagnostics);

  /// The function `name` that is defined before `place`, or null.
  const Function *find(StringRef name, const char *place) const;
  /// The function `name`, wherever it is defined, or null.
  const Function *findAnywhere(StringRef name) const;
  std::vector<StringRef> names() const;

private:
  llvm::MapVector<StringRef, const Function *> functions;
};

} // namespace attn::language

#endif // ATTN_LIB_LANGUAGE_FUNCTIONTABLE_H

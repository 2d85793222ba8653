//===- SizeTable.h - The sizes of a kernel ----------------------*- C++ -*-===//

#ifndef ATTN_LIB_LANGUAGE_SIZETABLE_H
#define ATTN_LIB_LANGUAGE_SIZETABLE_H

#include "Diagnostics.h"
#include "SyntaxTree.h"

#include "attn/IR/Attn.h"
#include "llvm/ADT/MapVector.h"

namespace attn::language {

class SizeTable {
public:
  SizeTable(mlir::MLIRContext *context, Diagnostics &diagnostics) : context(context), diagnostics(diagnostics) {}

  /// Makes `name` a size: a constant where it has a value. What is a size already stays what it is.
  void add(StringRef name, std::optional<int64_t> value);
  bool contains(StringRef name) const { return sizes.count(name) != 0; }
  std::vector<StringRef> names() const;

  /// A size expression; null after an error. With `declare`, unknown names become sizes (in parameters' shapes).
  SizeAttr resolve(const Expression &expression, bool declare = false);

private:
  SizeAttr resolveConstant(StringRef text, int64_t value);
  SizeAttr resolveName(const NameExpression &expression, bool declare);
  SizeAttr resolveBinary(const BinaryExpression &expression, bool declare);

  mlir::MLIRContext *context;
  Diagnostics &diagnostics;
  llvm::MapVector<StringRef, SizeAttr> sizes;
};

} // namespace attn::language

#endif // ATTN_LIB_LANGUAGE_SIZETABLE_H

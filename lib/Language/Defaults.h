//===- Defaults.h - The default values of parameters ------------*- C++ -*-===//

#ifndef ATTN_LIB_LANGUAGE_DEFAULTS_H
#define ATTN_LIB_LANGUAGE_DEFAULTS_H

#include "Diagnostics.h"
#include "SyntaxTree.h"

#include "mlir/IR/Builders.h"

namespace attn::language {

/// Reports a default value that `parameter`, which has one, cannot have.
void checkDefault(const Parameter &parameter, Diagnostics &diagnostics);

/// The default value of `parameter`, which is without errors, in `type`; a unit attribute where it has none.
mlir::Attribute defaultAttribute(mlir::Builder &builder, const Parameter &parameter, mlir::Type type);

} // namespace attn::language

#endif // ATTN_LIB_LANGUAGE_DEFAULTS_H

//===- Parser.h - Tokens to a syntax tree -----------------------*- C++ -*-===//

#ifndef ATTN_LIB_LANGUAGE_PARSER_H
#define ATTN_LIB_LANGUAGE_PARSER_H

#include "Diagnostics.h"
#include "SyntaxTree.h"

namespace attn::language {

/// Parses `source`. Errors are reported; what could be parsed is in the tree, in which every expression is whole.
File parse(StringRef source, Diagnostics &diagnostics);

/// Whether `name` is a storage type: f64 f32 f16 bf16 i64 i32 i8 u8 bool.
bool isDtype(StringRef name);

/// Whether `name` is sum, max, min, softmax or logsumexp.
bool isReduction(StringRef name);

/// Whether `name` has a meaning of its own everywhere, so that nothing can be called it.
bool isReserved(StringRef name);

} // namespace attn::language

#endif // ATTN_LIB_LANGUAGE_PARSER_H

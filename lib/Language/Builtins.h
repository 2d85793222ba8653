//===- Builtins.h - The built-in functions ----------------------*- C++ -*-===//

#ifndef ATTN_LIB_LANGUAGE_BUILTINS_H
#define ATTN_LIB_LANGUAGE_BUILTINS_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"

#include <optional>

namespace attn::language {

enum class Builtin {
  Abs,
  Exp,
  Exp2,
  Log,
  Log2,
  Sqrt,
  Rsqrt,
  Sin,
  Cos,
  Tanh,
  Erf,
  Sigmoid,
  Relu,
  Gelu,
  Floor,
  Round,
  IsNan,
  Pow,
  Min,
  Max,
  Select,
  Dropout
};

struct BuiltinInfo {
  llvm::StringRef name;
  Builtin builtin;
  unsigned arity;
  llvm::StringRef signature; ///< For messages: `select(c, a, b)`.
};

/// All of them.
llvm::ArrayRef<BuiltinInfo> builtins();

/// The built-in function called `name`, or nothing.
const BuiltinInfo *findBuiltin(llvm::StringRef name);

} // namespace attn::language

#endif // ATTN_LIB_LANGUAGE_BUILTINS_H

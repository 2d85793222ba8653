//===- Types.cpp - Dtypes, and the types of values ------------------------===//

#include "Types.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringSwitch.h"

using namespace mlir;
using llvm::StringRef;

Type attn::language::storageType(Builder &builder, StringRef dtype) {
  return llvm::StringSwitch<Type>(dtype)
      .Case("f64", builder.getF64Type())
      .Case("f32", builder.getF32Type())
      .Case("f16", builder.getF16Type())
      .Case("bf16", builder.getBF16Type())
      .Case("i64", builder.getI64Type())
      .Case("i32", builder.getI32Type())
      .Case("i8", builder.getI8Type())
      .Case("u8", builder.getIntegerType(8, /*isSigned=*/false))
      .Case("bool", builder.getI1Type())
      .Default(Type());
}

bool attn::language::isFloatDtype(StringRef dtype) { return llvm::is_contained({"f64", "f32", "f16", "bf16"}, dtype); }

StringRef attn::language::describe(Value value) {
  return isBool(value) ? "a bool" : isFloat(value) ? "a float" : "an integer";
}

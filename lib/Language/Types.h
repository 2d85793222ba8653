//===- Types.h - Dtypes, and the types of values ----------------*- C++ -*-===//

#ifndef ATTN_LIB_LANGUAGE_TYPES_H
#define ATTN_LIB_LANGUAGE_TYPES_H

#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinTypes.h"

namespace attn::language {

/// The type a dtype is stored as: `u8` is ui8, `bool` is i1.
mlir::Type storageType(mlir::Builder &builder, llvm::StringRef dtype);

/// Whether `dtype` is f64, f32, f16 or bf16.
bool isFloatDtype(llvm::StringRef dtype);

// What is computed is a bool (i1), an integer (i64) or a float.
inline bool isBool(mlir::Value value) { return value.getType().isInteger(1); }
inline bool isInteger(mlir::Value value) { return value.getType().isInteger(64); }
inline bool isFloat(mlir::Value value) { return mlir::isa<mlir::FloatType>(value.getType()); }

/// Which of the three `value` is, for messages: "a bool".
llvm::StringRef describe(mlir::Value value);

} // namespace attn::language

#endif // ATTN_LIB_LANGUAGE_TYPES_H

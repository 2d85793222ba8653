//===- Language.h - From .attn text to the dialect --------------*- C++ -*-===//
//
// The front end: lexer, parser, resolution of names, sizes and index ranges, and
// emission of `attn.kernel`s whose statements are `attn.tensor`s. The language is
// described in docs/language.md.
//
//===----------------------------------------------------------------------===//

#ifndef ATTN_LANGUAGE_LANGUAGE_H
#define ATTN_LANGUAGE_LANGUAGE_H

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Support/SourceMgr.h"

#include <string>

namespace attn {

struct LanguageOptions {
  /// Sizes fixed at compile time (`--set D=64`), which override the defaults of bracketed sizes.
  llvm::StringMap<int64_t> sizes;
  /// Where not empty ("f32", "bf16", "f16"): the dtype of every non-scalar parameter that is written with the dtype
  /// of the kernel's first floating-point parameter (`--dtype`).
  std::string dtype;
  /// Where not empty: only this kernel is emitted. An unknown name is an error.
  std::string kernel;
};

/// Prints the syntax tree of the main buffer to `os`. Errors go to `errors`. Returns false when there was one.
bool printSyntaxTree(llvm::SourceMgr &sources, llvm::raw_ostream &os, llvm::raw_ostream &errors);

/// Reads the main buffer of `sources` and emits one `attn.kernel` for each attention in it. All errors of the file are
/// written to `errors` (file:line:column: error: …, source line, caret, notes); then the result is null.
mlir::OwningOpRef<mlir::ModuleOp> parseSource(llvm::SourceMgr &sources, mlir::MLIRContext &context,
                                              const LanguageOptions &options, llvm::raw_ostream &errors);

} // namespace attn

#endif // ATTN_LANGUAGE_LANGUAGE_H

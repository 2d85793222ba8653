//===- KernelEmitter.h - One attention to one attn.kernel -------*- C++ -*-===//

#ifndef ATTN_LIB_LANGUAGE_KERNELEMITTER_H
#define ATTN_LIB_LANGUAGE_KERNELEMITTER_H

#include "Emitter.h"

#include "attn/Language/Language.h"
#include "mlir/IR/BuiltinOps.h"

namespace attn::language {

/// Emits `kernel` at the builder's insertion point. Errors are reported to `diagnostics`; the kernel is then
/// incomplete. Names of sizes that the kernel has are added to `knownSizes`.
void emitKernel(const Kernel &kernel, const FunctionTable &functions, const File &file, const LanguageOptions &options,
                mlir::OpBuilder &builder, const llvm::SourceMgr &sources, Diagnostics &diagnostics,
                std::vector<std::string> &knownSizes);

} // namespace attn::language

#endif // ATTN_LIB_LANGUAGE_KERNELEMITTER_H

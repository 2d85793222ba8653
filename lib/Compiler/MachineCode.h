//===- MachineCode.h - From LLVM IR to objects and assembly -----*- C++ -*-===//
//
// Halide's modules are optimised and say for which processor they are; what is left is LLVM's back end, the same for
// objects and for kernels of this process.
//
//===----------------------------------------------------------------------===//

#ifndef ATTN_LIB_COMPILER_MACHINECODE_H
#define ATTN_LIB_COMPILER_MACHINECODE_H

#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/Module.h"
#include "llvm/Support/Error.h"

#include <memory>
#include <string>

namespace attn {

enum class MachineCodeKind { Assembly, Object };

/// Reads bitcode into `context`.
llvm::Expected<std::unique_ptr<llvm::Module>> readBitcode(llvm::StringRef bitcode, llvm::LLVMContext &context);

/// The same for what Halide wrote, so that it can be linked to other modules.
llvm::Expected<std::unique_ptr<llvm::Module>> readHalideBitcode(llvm::StringRef bitcode, llvm::LLVMContext &context);

/// Compiles `module` for its triple, and each function for its own target-cpu and target-features.
llvm::Expected<std::string> emitMachineCode(llvm::Module &module, MachineCodeKind kind);

/// The same for a module in bitcode.
llvm::Expected<std::string> emitMachineCode(llvm::StringRef bitcode, MachineCodeKind kind);

} // namespace attn

#endif // ATTN_LIB_COMPILER_MACHINECODE_H

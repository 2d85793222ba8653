//===- Program.h - A source on its way through the stages -------*- C++ -*-===//
//
// Owns the MLIR context of one compilation and the module in it, and gathers everything that is reported about
// them. Nothing is shared between programs, so each thread may have its own.
//
//===----------------------------------------------------------------------===//

#ifndef ATTN_LIB_COMPILER_PROGRAM_H
#define ATTN_LIB_COMPILER_PROGRAM_H

#include "Interface.h"
#include "LoweredProgram.h"
#include "TuningDatabase.h"
#include "attn/Compiler/Compiler.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/OwningOpRef.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/SourceMgr.h"

namespace attn {

/// The machines that a list of targets, with commas between them, names.
llvm::Expected<std::vector<Machine>> machinesForTargets(llvm::StringRef targets);

class Program {
public:
  Program(std::string_view source, const CompileOptions &options);

  /// The stages in order; the later ones need the earlier ones. `simplify` does nothing the second time; what it makes is
  /// for GPUs where the target has one, or `forGpu` says so.
  llvm::Expected<std::string> syntaxTree();
  llvm::Error parse();
  llvm::Error simplify(bool forGpu = false);
  llvm::Expected<Plan> plan(KernelOp kernel, const Machine &machine);
  llvm::Expected<LoweredProgram> lower(KernelOp kernel, const Machine &machine);

  mlir::ModuleOp getModule() { return *module; }
  /// The kernels of the source.
  llvm::SmallVector<KernelOp> kernels();
  /// The kernel that checks the subscripts of `kernel`, or null where it has none to check or they are not checked.
  KernelOp checkingKernel(KernelOp kernel);
  /// Its interface as the source gives it: only before `simplify`.
  llvm::Expected<KernelInterface> interfaceOf(KernelOp kernel);
  /// The kernel of a program that must have exactly one.
  llvm::Expected<KernelOp> onlyKernel();

private:
  /// An error of what was reported up to now, or of `otherwise` where nothing was.
  llvm::Error reported(const llvm::Twine &otherwise);

  CompileOptions options;
  mlir::MLIRContext context;
  llvm::SourceMgr sources;
  std::string text;
  llvm::raw_string_ostream report;
  mlir::SourceMgrDiagnosticHandler handler;
  mlir::OwningOpRef<mlir::ModuleOp> module;
  bool simplified = false;
  std::optional<TuningDatabase> database; ///< Read when a plan first asks for it.
};

} // namespace attn

#endif // ATTN_LIB_COMPILER_PROGRAM_H

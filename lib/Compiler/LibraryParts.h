//===- LibraryParts.h - What a kernel in this process is made of -*- C++ -*-===//

#ifndef ATTN_LIB_COMPILER_LIBRARYPARTS_H
#define ATTN_LIB_COMPILER_LIBRARYPARTS_H

#include "DiskCache.h"
#include "Program.h"

#include <memory>

namespace attn {

/// The objects of a kernel or its checking kernel for this machine: a table, and one for each function, which share no
/// code. They are taken from the cache on disk where they are there, and otherwise compiled.
class LibraryParts {
public:
  /// The symbols of the objects: an attn_program, and a function that is called by functionSymbol + "_argv".
  static constexpr llvm::StringLiteral tableSymbol = "attn_library", functionSymbol = "attn_function";

  /// `program` is parsed; `source` and `options`, which have one kernel, are what it was made of. What `key` says of
  /// them tells them from others. `interface` is what the kernel has before it is simplified.
  LibraryParts(std::shared_ptr<Program> program, std::string source, CompileOptions options, KernelInterface interface,
               Machine machine, std::string key, bool isChecking);

  /// The attn_program, in which attnUncompiled takes the place of each function.
  llvm::Expected<std::string> table();
  /// Functions by their numbers: those of all steps are counted in order. They are compiled in several threads.
  llvm::Expected<std::vector<std::string>> functions(llvm::ArrayRef<unsigned> numbers);
  /// Does all but machine code: an error where it cannot be made.
  llvm::Error lower();

  /// With what a kernel that counts has beside its own outputs, once there is a table.
  const KernelInterface &getInterface() const { return interface; }

private:
  llvm::Expected<std::string> compileTable();
  llvm::Expected<std::vector<std::string>> compile(llvm::ArrayRef<unsigned> numbers);

  std::shared_ptr<Program> program; ///< Null once it is not needed.
  std::string source;
  CompileOptions options;
  KernelInterface interface;
  Machine machine;
  std::optional<DiskCache> cache; ///< None for a kernel that counts: its lowering says what its outputs are.
  std::string key;
  bool isChecking;
  std::optional<LoweredProgram> lowered; ///< From the table to the first functions.
};

} // namespace attn

#endif // ATTN_LIB_COMPILER_LIBRARYPARTS_H

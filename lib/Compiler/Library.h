//===- Library.h - A kernel for this process --------------------*- C++ -*-===//

#ifndef ATTN_LIB_COMPILER_LIBRARY_H
#define ATTN_LIB_COMPILER_LIBRARY_H

#include "LibraryParts.h"
#include "attn/Runtime/Signature.h"
#include "llvm/ADT/DenseMap.h"

#include <deque>
#include <memory>
#include <mutex>

namespace attn {

/// A program in this process (an attn_program). Each function of it is compiled, or taken from the cache on disk, when
/// a call first needs it; the functions that one call needs, in several threads. Any number of threads may call it
/// meanwhile.
class Library : private attn_program {
public:
  /// What a call fails with where a function cannot be made; none of attn/Runtime/Runtime.h.
  static constexpr int cannotCompile = -1;

  /// What a kernel counts beside its own outputs is added to those of `interface`.
  static llvm::Expected<std::unique_ptr<Library>> load(std::unique_ptr<LibraryParts> parts, KernelInterface &interface);
  Library(const Library &) = delete;

  const attn_program *program() const { return this; }
  /// Makes all functions that are not there yet.
  llvm::Error complete();

private:
  /// Copies the table of the program, whose functions are not there.
  Library(const attn_program &table, std::unique_ptr<LibraryParts> parts);

  static int prepareCall(const attn_program *program, const int64_t *replaced, const int64_t *sizes);
  /// Makes those functions of `needed`, numbers of them, that are not there.
  llvm::Error make(llvm::ArrayRef<unsigned> needed);

  std::unique_ptr<LibraryParts> parts;
  std::vector<attn_step> ownSteps;
  std::deque<std::vector<attn_variant>> ownVariants; ///< Of each step.
  std::vector<attn_variant *> functions;             ///< The variants that have a function, by its number.
  llvm::DenseMap<const attn_variant *, unsigned> numbers;
  std::mutex making;
};

/// What runs of a kernel in this process: itself, and its checking kernel where it has one. Nothing where its target is
/// not of this machine.
struct KernelLibraries {
  std::unique_ptr<Library> kernel, checking;

  KernelPrograms programs() const {
    return {kernel ? kernel->program() : nullptr, checking ? checking->program() : nullptr};
  }
};

} // namespace attn

#endif // ATTN_LIB_COMPILER_LIBRARY_H

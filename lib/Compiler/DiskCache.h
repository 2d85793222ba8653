//===- DiskCache.h - Compiled kernels on disk -------------------*- C++ -*-===//
//
// So that a process need not compile what an earlier one did. A file holds the object code of one kernel; its name is
// the hash of everything that the code depends on: source, options, processor and compiler. Processes share the folder
// without locks: files appear whole, by renaming, and are never changed.
//
//===----------------------------------------------------------------------===//

#ifndef ATTN_LIB_COMPILER_DISKCACHE_H
#define ATTN_LIB_COMPILER_DISKCACHE_H

#include "llvm/ADT/StringRef.h"
#include <optional>
#include <string>

namespace attn {

class DiskCache {
public:
  /// The folder that the variable ATTN_CACHE_DIR names, or `attn` in the user's cache folder. No cache where the
  /// variable is set but empty, or the user has no such folder.
  static std::optional<DiskCache> open();

  /// The object stored for `key`, a text of any length. A file that is damaged is removed.
  std::optional<std::string> find(llvm::StringRef key) const;
  /// Stores an object. What cannot be written is left out: a cache has no errors to report. Now and then the files that
  /// were not used for longest are removed, so that the folder holds at most 256 MiB.
  void store(llvm::StringRef key, llvm::StringRef object) const;

private:
  DiskCache(std::string folder, std::string compiler) : folder(std::move(folder)), compiler(std::move(compiler)) {}
  std::string pathOf(llvm::StringRef key) const;

  std::string folder;
  std::string compiler; ///< What tells this compiler's kernels from another's.
};

} // namespace attn

#endif // ATTN_LIB_COMPILER_DISKCACHE_H

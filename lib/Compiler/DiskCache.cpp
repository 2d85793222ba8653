//===- DiskCache.cpp - Compiled kernels on disk ---------------------------===//

#include "DiskCache.h"

#include "attn/Compiler/Compiler.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/CachePruning.h"
#include "llvm/Support/Endian.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/SHA256.h"
#include "llvm/Support/xxhash.h"
#include "llvm/TargetParser/Host.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <fstream>

using namespace attn;

// LLVM's pruning removes files of this name only.
static constexpr llvm::StringLiteral filePrefix = "llvmcache-attn-";
static constexpr uint64_t largestFolder = uint64_t(256) << 20;

/// The file this code was loaded from, as it is now: a compiler that was built anew does not take the old one's
/// kernels.
static std::string compilerIdentity() {
  Dl_info info;
  llvm::sys::fs::file_status status;
  if (!dladdr(reinterpret_cast<void *>(static_cast<Kernel (*)(std::string_view, const CompileOptions &)>(&compile)),
              &info) ||
      llvm::sys::fs::status(info.dli_fname, status))
    return "";
  return fmt::format("{} {} {}", info.dli_fname, status.getSize(),
                     status.getLastModificationTime().time_since_epoch().count());
}

std::optional<DiskCache> DiskCache::open() {
  llvm::SmallString<128> folder;
  const char *user = std::getenv("XDG_CACHE_HOME");
  if (const char *variable = std::getenv("ATTN_CACHE_DIR")) {
    folder = variable;
  } else if (user && !llvm::sys::path::is_absolute(user)) { // not set, as its specification says
    if (llvm::sys::path::home_directory(folder))
      llvm::sys::path::append(folder, ".cache", "attn");
  } else if (llvm::sys::path::cache_directory(folder)) {
    llvm::sys::path::append(folder, "attn");
  }
  std::string compiler = compilerIdentity();
  if (folder.empty() || compiler.empty())
    return std::nullopt;
  return DiskCache(folder.str().str(), std::move(compiler));
}

std::string DiskCache::pathOf(llvm::StringRef key) const {
  llvm::SHA256 hash;
  for (llvm::StringRef part : {llvm::StringRef(compiler), llvm::sys::getHostCPUName(), key}) {
    hash.update(fmt::format("{}:", part.size()));
    hash.update(part);
  }
  llvm::SmallString<128> path(folder);
  llvm::sys::path::append(path, filePrefix + llvm::toHex(hash.final(), /*LowerCase=*/true));
  return path.str().str();
}

/// A file is the object and then the object's checksum.
static std::string checksum(llvm::StringRef object) {
  char bytes[sizeof(uint64_t)];
  llvm::support::endian::write64le(bytes, llvm::xxh3_64bits(object));
  return std::string(bytes, sizeof bytes);
}

std::optional<std::string> DiskCache::find(llvm::StringRef key) const {
  std::string path = pathOf(key);
  llvm::Expected<llvm::sys::fs::file_t> file = llvm::sys::fs::openNativeFileForRead(path);
  if (!file) {
    llvm::consumeError(file.takeError());
    return std::nullopt;
  }
  auto buffer = llvm::MemoryBuffer::getOpenFile(*file, path, /*FileSize=*/-1, /*RequiresNullTerminator=*/false);
  llvm::sys::fs::closeFile(*file);
  if (!buffer)
    return std::nullopt;
  llvm::StringRef content = (*buffer)->getBuffer(), object = content.drop_back(std::min<size_t>(content.size(), 8));
  if (content.size() > object.size() && content.substr(object.size()) == checksum(object))
    return object.str();
  llvm::sys::fs::remove(path);
  return std::nullopt;
}

void DiskCache::store(llvm::StringRef key, llvm::StringRef object) const {
  if (llvm::sys::fs::create_directories(folder))
    return;
  std::string path = pathOf(key);
  llvm::SmallString<128> temporary;
  if (llvm::sys::fs::createUniqueFile(path + "-%%%%%%%%", temporary))
    return;
  std::ofstream stream(temporary.c_str(), std::ios::binary);
  stream << std::string_view(object) << checksum(object);
  stream.close();
  if (!stream || llvm::sys::fs::rename(temporary, path)) {
    llvm::sys::fs::remove(temporary);
    return;
  }
  llvm::CachePruningPolicy policy;
  policy.MaxSizeBytes = largestFolder;
  policy.Expiration = std::chrono::seconds(0); // none
  llvm::pruneCache(folder, policy);
}

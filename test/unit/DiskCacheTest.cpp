//===- DiskCacheTest.cpp - Kernels that an earlier process compiled -------===//

#include "lib/Compiler/DiskCache.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <thread>
#include <unistd.h>
#include <vector>

using namespace attn;
namespace fs = std::filesystem;

namespace {

/// A cache in a folder of its own.
class DiskCacheTest : public testing::Test {
protected:
  DiskCacheTest() : folder(fs::path(testing::TempDir()) / ("attn-cache-" + std::to_string(getpid()))) {
    fs::remove_all(folder);
    setenv("ATTN_CACHE_DIR", folder.c_str(), 1);
  }
  ~DiskCacheTest() override {
    setenv("ATTN_CACHE_DIR", "", 1);
    fs::remove_all(folder);
  }

  std::vector<fs::path> files() const {
    std::vector<fs::path> result;
    if (fs::exists(folder))
      for (const fs::directory_entry &entry : fs::directory_iterator(folder))
        if (entry.path().filename().string().find("attn-") != std::string::npos)
          result.push_back(entry.path());
    return result;
  }

  fs::path folder;
};

} // namespace

TEST_F(DiskCacheTest, FindsWhatWasStored) {
  std::optional<DiskCache> cache = DiskCache::open();
  ASSERT_TRUE(cache);
  EXPECT_EQ(cache->find("a"), std::nullopt);
  std::string object("machine\0code", 12);
  cache->store("a", object);
  EXPECT_EQ(cache->find("a"), object);
  EXPECT_EQ(cache->find("b"), std::nullopt);
  cache->store("b", "");
  EXPECT_EQ(cache->find("b"), "");
  EXPECT_EQ(files().size(), 2u);
}

TEST_F(DiskCacheTest, RemovesWhatIsDamaged) {
  std::optional<DiskCache> cache = DiskCache::open();
  for (auto damage : {+[](fs::path file) { fs::resize_file(file, 5); },
                      +[](fs::path file) { fs::resize_file(file, fs::file_size(file) - 1); },
                      +[](fs::path file) { fs::resize_file(file, 0); },
                      +[](fs::path file) { std::fstream(file, std::ios::in | std::ios::out) << "M"; }}) {
    cache->store("a", "machine code");
    ASSERT_EQ(files().size(), 1u);
    damage(files().front());
    EXPECT_EQ(cache->find("a"), std::nullopt);
    EXPECT_TRUE(files().empty());
  }
}

TEST_F(DiskCacheTest, CanBeTurnedOffAndNeedsNoFolderThatCanBeWritten) {
  setenv("ATTN_CACHE_DIR", "", 1);
  EXPECT_FALSE(DiskCache::open());
  setenv("ATTN_CACHE_DIR", "/dev/null/nowhere", 1);
  std::optional<DiskCache> cache = DiskCache::open();
  ASSERT_TRUE(cache);
  cache->store("a", "machine code");
  EXPECT_EQ(cache->find("a"), std::nullopt);
}

TEST_F(DiskCacheTest, ManyWriteAndReadAtOnce) {
  std::string object(100000, 'x');
  std::vector<std::thread> threads;
  std::vector<char> right(8);
  for (unsigned index = 0; index < right.size(); ++index)
    threads.emplace_back([&, index] {
      std::optional<DiskCache> cache = DiskCache::open();
      right[index] = 1;
      for (int turn = 0; turn < 20; ++turn) {
        cache->store("a", object);
        right[index] &= cache->find("a") == object;
      }
    });
  for (std::thread &thread : threads)
    thread.join();
  EXPECT_EQ(right, std::vector<char>(8, 1));
  EXPECT_EQ(files().size(), 1u);
}

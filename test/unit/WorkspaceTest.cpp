//===- WorkspaceTest.cpp - The memory that kernels' tiles share ------------===//

#include "HalideRuntime.h"
#include <cstdint>
#include <cstring>
#include <gtest/gtest.h>
#include <thread>
#include <vector>

TEST(Workspace, GivesAFreedBlockAgain) {
  void *first = halide_malloc(nullptr, 100000);
  halide_free(nullptr, first);
  EXPECT_EQ(halide_malloc(nullptr, 100000), first);
  halide_free(nullptr, first);
  // Up to the same power of two.
  EXPECT_EQ(halide_malloc(nullptr, 70000), first);
  halide_free(nullptr, first);
  for (size_t other : {60000, 140000}) {
    void *block = halide_malloc(nullptr, other);
    EXPECT_NE(block, first);
    halide_free(nullptr, block);
  }
}

TEST(Workspace, BlocksAreAlignedAndApart) {
  std::vector<std::pair<char *, size_t>> blocks;
  for (size_t size : {0, 1, 63, 64, 4096, 100000, 1 << 20, (1 << 20) + 1, 5000000}) {
    auto *block = static_cast<char *>(halide_malloc(nullptr, size));
    ASSERT_NE(block, nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % 128, 0u) << size;
    std::memset(block, static_cast<int>(blocks.size()), size);
    blocks.push_back({block, size});
  }
  for (size_t index = 0; index < blocks.size(); ++index)
    for (size_t byte = 0; byte < blocks[index].second; byte += 997)
      ASSERT_EQ(blocks[index].first[byte], static_cast<char>(index));
  for (auto [block, size] : blocks)
    halide_free(nullptr, block);
  halide_free(nullptr, nullptr);
}

TEST(Workspace, SaysWhenThereIsNoMemory) { EXPECT_EQ(halide_malloc(nullptr, SIZE_MAX), nullptr); }

TEST(Workspace, ABlockCanBeUsedToItsLastByte) {
  for (int power = 7; power <= 21; ++power)
    for (size_t size : {(size_t(1) << power) - 1, size_t(1) << power, (size_t(1) << power) + 1}) {
      void *blocks[2] = {halide_malloc(nullptr, size), halide_malloc(nullptr, size)};
      std::memset(blocks[0], 1, size);
      std::memset(blocks[1], 2, size);
      EXPECT_EQ(static_cast<char *>(blocks[0])[size - 1], 1) << size;
      EXPECT_EQ(static_cast<char *>(blocks[1])[0], 2) << size;
      halide_free(nullptr, blocks[0]);
      halide_free(nullptr, blocks[1]);
    }
}

// More blocks than there are slots, freed by another thread than took them, on many threads at once: a block that two
// had at a time would lose its pattern.
TEST(Workspace, NoTwoThreadsHaveOneBlock) {
  auto work = [](unsigned seed) {
    std::vector<std::pair<unsigned char *, size_t>> blocks;
    unsigned state = seed;
    for (int step = 0; step < 2000; ++step) {
      state = state * 1664525 + 1013904223;
      if (blocks.size() < 40 && (state >> 16) % 3) {
        size_t size = 1000 + (state >> 8) % 3000;
        auto *block = static_cast<unsigned char *>(halide_malloc(nullptr, size));
        std::memset(block, static_cast<int>(seed), size);
        blocks.push_back({block, size});
      } else if (!blocks.empty()) {
        auto [block, size] = blocks.back();
        blocks.pop_back();
        for (size_t byte = 0; byte < size; ++byte)
          if (block[byte] != seed)
            return false;
        std::thread([block = block] { halide_free(nullptr, block); }).join();
      }
    }
    for (auto [block, size] : blocks)
      halide_free(nullptr, block);
    return true;
  };
  std::vector<std::thread> threads;
  std::vector<char> intact(8);
  for (unsigned index = 0; index < intact.size(); ++index)
    threads.emplace_back([&, index] { intact[index] = work(index + 1); });
  for (std::thread &thread : threads)
    thread.join();
  EXPECT_EQ(intact, std::vector<char>(8, 1));
}

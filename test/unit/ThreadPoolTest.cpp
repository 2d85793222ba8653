//===- ThreadPoolTest.cpp - Which threads run Halide's parallel loops -----===//

#include "lib/Runtime/ThreadPool.h"

#include <array>
#include <atomic>
#include <gtest/gtest.h>
#include <numeric>
#include <thread>
#include <utility>
#include <vector>

namespace {

/// Halide's runtime as ThreadPool.c sees it: who runs loops, and a pool that has a thread for each iteration.
struct Runtime {
  static inline attn_halide_par_for parFor;
  static inline std::atomic<int> iterations;

  static attn_halide_par_for set(attn_halide_par_for chosen) {
    std::swap(parFor, chosen);
    return chosen;
  }

  static int own(void *context, attn_halide_task task, int first, int count, uint8_t *closure) {
    iterations += count;
    std::vector<std::thread> threads;
    for (int index = first; index < first + count; ++index)
      threads.emplace_back([=] { task(context, index, closure); });
    for (std::thread &thread : threads)
      thread.join();
    return 0;
  }
};

/// How often a loop's iterations have run.
struct Loop {
  int failing = -1;
  std::vector<std::atomic<int>> runs = std::vector<std::atomic<int>>(100);

  static int task(void *, int index, uint8_t *closure) {
    auto *loop = reinterpret_cast<Loop *>(closure);
    ++loop->runs[index];
    return index == loop->failing ? -7 : 0;
  }

  int run(int first, int count) {
    Runtime::iterations = 0;
    return Runtime::parFor(nullptr, task, first, count, reinterpret_cast<uint8_t *>(this));
  }
};

} // namespace

TEST(ThreadPool, AsManyThreadsAsAreAllowedShareALoop) {
  for (auto [threads, count, sharing] : {std::array{3, 40, 3}, {3, 2, 2}, {1, 40, 0}, {3, 1, 0}, {3, 0, 0}}) {
    attn_use_threads(threads, Runtime::set, Runtime::own);
    Loop loop;
    EXPECT_EQ(loop.run(5, count), 0);
    EXPECT_EQ(Runtime::iterations, sharing) << threads << " threads, " << count << " iterations";
    for (int index = 0; index < 100; ++index)
      EXPECT_EQ(loop.runs[index], index >= 5 && index < 5 + count) << index;
  }
}

TEST(ThreadPool, AnIterationThatFailsIsTheLast) {
  attn_use_threads(1, Runtime::set, Runtime::own);
  Loop loop;
  loop.failing = 8;
  EXPECT_EQ(loop.run(5, 40), -7);
  EXPECT_EQ(std::accumulate(loop.runs.begin(), loop.runs.end(), 0), 4);
}

TEST(ThreadPool, AProgramsOwnPoolStaysWhereTheNumberOfThreadsChanges) {
  int count = 0;
  auto counting = [](void *pool, void (*task)(void *, int), void *closure, int count) {
    *static_cast<int *>(pool) += count;
    for (int index = 0; index < count; ++index)
      task(closure, index);
  };
  attn_use_thread_pool(counting, &count, Runtime::set, Runtime::own);
  attn_use_threads(3, Runtime::set, Runtime::own);
  Loop loop;
  EXPECT_EQ(loop.run(0, 10), 0);
  EXPECT_EQ(count, 10);
  EXPECT_EQ(Runtime::iterations, 0);
  attn_use_thread_pool(nullptr, nullptr, Runtime::set, Runtime::own);
  EXPECT_EQ(loop.run(0, 10), 0);
  EXPECT_EQ(count, 10);
  EXPECT_EQ(Runtime::iterations, 3);
}

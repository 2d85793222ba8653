//===- ThreadPoolTest.cpp - Which threads run Halide's parallel loops -----===//

#include "attn/Runtime/ThreadPool.h"

#include <array>
#include <atomic>
#include <gtest/gtest.h>
#include <numeric>
#include <thread>
#include <utility>
#include <vector>

namespace {

/// Halide's pool, with a thread for each iteration.
struct Runtime {
  static inline std::atomic<int> iterations;

  static inline int threads = 40;
  static int threadCount() { return threads; }

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
    attn_halide_pool pool = std::exchange(attn_halide_threads, {Runtime::own, Runtime::threadCount});
    int error = attn_share_loop(nullptr, task, first, count, reinterpret_cast<uint8_t *>(this));
    attn_halide_threads = pool;
    return error;
  }
};

} // namespace

TEST(ThreadPool, AsManyThreadsAsAreAllowedShareALoop) {
  for (auto [threads, count, sharing] : {std::array{3, 40, 3}, {3, 2, 2}, {1, 40, 0}, {3, 1, 0}, {3, 0, 0}}) {
    attn_use_threads(threads);
    Loop loop;
    EXPECT_EQ(loop.run(5, count), 0);
    EXPECT_EQ(Runtime::iterations, sharing) << threads << " threads, " << count << " iterations";
    for (int index = 0; index < 100; ++index)
      EXPECT_EQ(loop.runs[index], index >= 5 && index < 5 + count) << index;
  }
}

TEST(ThreadPool, AStepThatIsShortWakesFewThreads) {
  for (auto [threads, most, sharing] : {std::array{3, 2, 2}, {3, 8, 3}, {3, 0, 3}, {0, 2, 2}, {0, 1, 0}, {0, 0, 40}}) {
    attn_use_threads(threads);
    attn_most_threads = most;
    Loop loop;
    EXPECT_EQ(loop.run(5, 40), 0);
    EXPECT_EQ(Runtime::iterations, sharing) << threads << " threads, " << most << " worth waking";
    EXPECT_EQ(std::accumulate(loop.runs.begin(), loop.runs.end(), 0), 40);
  }
  attn_most_threads = 0;
}

/// Its threads begin with shares of their own, and help the others then.
TEST(ThreadPool, HalidesPoolIsAskedForWhatItHas) {
  attn_use_threads(0);
  for (auto [threads, count, sharing] : {std::array{5, 40, 5}, {5, 3, 3}, {100, 90, 90}, {0, 40, 40}, {0, 0, 0}}) {
    Runtime::threads = threads; // 0: it has not run a loop before
    Loop loop;
    EXPECT_EQ(loop.run(2, count), 0);
    EXPECT_EQ(Runtime::iterations, sharing) << threads << " threads, " << count << " iterations";
    for (int index = 0; index < 100; ++index)
      EXPECT_EQ(loop.runs[index], index >= 2 && index < 2 + count) << index;
  }
  Runtime::threads = 40;
}

TEST(ThreadPool, AnIterationThatFailsIsTheLast) {
  attn_use_threads(1);
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
  attn_use_thread_pool(counting, &count);
  attn_use_threads(3);
  Loop loop;
  EXPECT_EQ(loop.run(0, 10), 0);
  EXPECT_EQ(count, 10);
  EXPECT_EQ(Runtime::iterations, 0);
  attn_most_threads = 1;
  EXPECT_EQ(loop.run(0, 10), 0);
  attn_most_threads = 0;
  EXPECT_EQ(count, 10);
  EXPECT_EQ(Runtime::iterations, 0);
  attn_use_thread_pool(nullptr, nullptr);
  EXPECT_EQ(loop.run(0, 10), 0);
  EXPECT_EQ(count, 10);
  EXPECT_EQ(Runtime::iterations, 3);
}

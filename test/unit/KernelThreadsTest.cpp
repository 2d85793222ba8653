//===- KernelThreadsTest.cpp - Several threads, and kernels compiled late -===//

#include "TestTensor.h"
#include "attn/Compiler/Compiler.h"

#include <atomic>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <numeric>
#include <thread>
#include <time.h>
#include <unistd.h>

using namespace attn;

/// A kernel that adds a number, so that two numbers make two kernels.
static std::string addition(int number) {
  return fmt::format("attention add(x: f32[N]) {{\n  y[n] = x[n] + {}.0\n  return y\n}}\n", number);
}

/// Runs `body(thread)` in 8 threads and returns how many of them failed.
template <typename Body> static int inEightThreads(Body body) {
  std::atomic<int> failures = 0;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 8; ++thread)
    threads.emplace_back([&, thread] {
      try {
        failures += !body(thread);
      } catch (const std::exception &) {
        ++failures;
      }
    });
  for (std::thread &thread : threads)
    thread.join();
  return failures;
}

static bool addsRight(const Kernel &kernel, int number, float value) {
  TestTensor x("f32", {5}), y("f32", {5});
  x.fill<float>({value, value, value, value, value});
  kernel.run({&x.tensor}, {&y.tensor});
  for (int i = 0; i < 5; ++i)
    if (y.data<float>()[i] != value + float(number))
      return false;
  return true;
}

TEST(Threads, EightCallOneKernel) {
  Kernel kernel = compile(addition(3));
  EXPECT_EQ(inEightThreads([&](int thread) {
              bool right = true;
              for (int call = 0; call < 1000; ++call)
                right &= addsRight(kernel, 3, float(thread * 1000 + call));
              return right;
            }),
            0);
}

// Each thread compiles kernels of its own and one that all share, and looks them up a thousand times.
TEST(Threads, EightCompileAtOnce) {
  EXPECT_EQ(inEightThreads([&](int thread) {
              bool right = true;
              for (int call = 0; call < 1000; ++call) {
                int number = call % 4 == 0 ? 100 : 200 + thread * 4 + call % 4;
                right &= addsRight(compile(addition(number)), number, float(call));
              }
              return right;
            }),
            0);
}

/// A masked attention of its own for each `number`, which its result is multiplied by.
static std::string attending(int number) {
  return fmt::format("attention mean{0}(q: f32[M, D], k: f32[N, D], v: f32[N, E], valid: i32[M]) {{\n"
                     "  weight[m, n] = softmax[n]({0}.0 * sum[d](q[m, d] * k[n, d]) where n < valid[m])\n"
                     "  out[m, e]    = {0}.0 * sum[n](weight[m, n] * v[n, e])\n"
                     "  return out\n}}\n",
                     number);
}

/// All keys are equal, so each output is the mean of the first `valid` values, which are 0, 1, 2, …
static bool attendsRight(const Kernel &kernel, int number, int keys, int valid, int queries = 1) {
  TestTensor q("f32", {queries, 4}), k("f32", {keys, 4}), v("f32", {keys, 3}), length("i32", {queries}),
      out("f32", {queries, 3});
  q.fill(std::vector<float>(queries * 4, 2.f));
  k.fill(std::vector<float>(keys * 4, 0.5f));
  for (int i = 0; i < keys * 3; ++i)
    v.data<float>()[i] = float(i / 3);
  length.fill(std::vector<int32_t>(queries, valid));
  kernel.run({&q.tensor, &k.tensor, &v.tensor, &length.tensor}, {&out.tensor});
  float expected = float(number) * float(valid - 1) / 2;
  for (int i = 0; i < queries * 3; ++i)
    if (!(std::abs(out.data<float>()[i] - expected) <= 1e-5f * (1 + expected)))
      return false;
  return true;
}

TEST(Threads, EightCompileDifferentAttentionsAtOnce) {
  EXPECT_EQ(inEightThreads([&](int thread) {
              int number = thread + 1;
              bool right = true;
              for (int call = 0; call < 1000; ++call)
                right &= attendsRight(compile(attending(number)), number, 40 + thread, 1 + call % 40);
              return right;
            }),
            0);
}

TEST(Threads, ErrorsBelongToTheirThread) {
  Kernel kernel = compile(addition(3));
  EXPECT_EQ(inEightThreads([&](int thread) {
              TestTensor x("f32", {thread + 1}), y("f32", {thread + 2});
              for (int call = 0; call < 100; ++call) {
                try {
                  kernel.run({&x.tensor}, {&y.tensor});
                  return false;
                } catch (const RunError &error) {
                  if (error.what() !=
                      fmt::format("y: dimension 0 (N) is {}, but x: dimension 0 made N = {}", thread + 2, thread + 1))
                    return false;
                }
              }
              return true;
            }),
            0);
}

static double processorSeconds(clockid_t clock) {
  timespec time;
  clock_gettime(clock, &time);
  return double(time.tv_sec) + double(time.tv_nsec) * 1e-9;
}

TEST(Threads, FewerThreadsAreUsedWhenFewerAreAskedFor) {
  Kernel kernel = compile("attention roots(x: f32[M, N]) {\n  y[m, n] = sqrt(x[m, n])\n  return y\n}\n");
  TestTensor x("f32", {64, 4096}), y("f32", {64, 4096});
  setNumThreads(2);
  kernel.run({&x.tensor}, {&y.tensor}); // a second thread is there now
  setNumThreads(1);
  double all = processorSeconds(CLOCK_PROCESS_CPUTIME_ID), own = processorSeconds(CLOCK_THREAD_CPUTIME_ID), spent = 0;
  while (spent < 0.1) {
    kernel.run({&x.tensor}, {&y.tensor});
    spent = processorSeconds(CLOCK_THREAD_CPUTIME_ID) - own;
  }
  EXPECT_LT(processorSeconds(CLOCK_PROCESS_CPUTIME_ID) - all - spent, 0.05) << "seconds of other threads";
  setNumThreads(0);
}

/// A thread for each task, and how many there were.
struct CountingPool {
  std::atomic<int> tasks = 0;

  static void run(void *pool, void (*task)(void *, int), void *closure, int count) {
    std::vector<std::thread> threads;
    for (int i = 0; i < count; ++i)
      threads.emplace_back([=] { task(closure, i); });
    for (std::thread &thread : threads)
      thread.join();
    static_cast<CountingPool *>(pool)->tasks += count;
  }
};

TEST(Threads, KernelsRunOnTheProgramsOwn) {
  Kernel kernel = compile("attention twice(x: f32[M, N]) {\n  y[m, n] = 2.0 * x[m, n]\n  return y\n}\n");
  TestTensor x("f32", {5, 30000}), y("f32", {5, 30000});
  std::iota(x.data<float>(), x.data<float>() + 150000, 1.f);
  CountingPool pool;
  setThreadPool(CountingPool::run, &pool);
  kernel.run({&x.tensor}, {&y.tensor});
  EXPECT_EQ(pool.tasks, 5); // a row each
  EXPECT_EQ(y.data<float>()[149999], 300000);
  TestTensor shortX("f32", {5, 3}), shortY("f32", {5, 3});
  kernel.run({&shortX.tensor}, {&shortY.tensor});
  EXPECT_EQ(pool.tasks, 5) << "a loop that is shorter than it takes to wake a thread";
  setThreadPool(nullptr, nullptr);
  kernel.run({&x.tensor}, {&y.tensor});
  EXPECT_EQ(pool.tasks, 5);
}

namespace {

/// A folder for the kernels that are compiled, and how many there are.
class LazyKernel : public testing::Test {
protected:
  LazyKernel() : folder(testing::TempDir() + "attn-lazy-" + std::to_string(getpid())) {
    std::filesystem::create_directory(folder);
    setenv("ATTN_CACHE_DIR", folder.c_str(), 1);
  }
  ~LazyKernel() override {
    setenv("ATTN_CACHE_DIR", "", 1);
    std::filesystem::remove_all(folder);
  }

  int compiled() const {
    int count = 0;
    for (const auto &entry : std::filesystem::directory_iterator(folder))
      count += entry.path().filename().string().find("attn-") != std::string::npos;
    return count;
  }

  std::filesystem::path folder;
};

} // namespace

TEST_F(LazyKernel, IsCompiledWhenItFirstRuns) {
  Kernel kernel = compileLazily(addition(1001));
  EXPECT_EQ(kernel.name(), "add");
  TestTensor x("f32", {3}), y("f32", {3});
  kernel.reference({&x.tensor}, {&y.tensor});
  EXPECT_EQ(y.data<float>()[2], 1001);
  EXPECT_EQ(compiled(), 0);
  EXPECT_TRUE(addsRight(kernel, 1001, 1));
  EXPECT_EQ(compiled(), 2) << "a table and a function";
  EXPECT_TRUE(addsRight(kernel, 1001, 2));
  EXPECT_EQ(compiled(), 2);
}

TEST_F(LazyKernel, IsCompiledWhereSomebodyAsksForIt) {
  Kernel lazy = compileLazily(addition(1002));
  EXPECT_EQ(compiled(), 0);
  Kernel kernel = compile(addition(1002));
  EXPECT_EQ(compiled(), 2);
  EXPECT_EQ(&kernel.name(), &lazy.name()) << "they are one";
}

TEST_F(LazyKernel, FirstRunsInEightThreads) {
  Kernel kernel = compileLazily(addition(1003));
  EXPECT_EQ(inEightThreads([&](int thread) { return addsRight(kernel, 1003, float(thread)); }), 0);
  EXPECT_EQ(compiled(), 2);
}

TEST_F(LazyKernel, CompilesWhatTheSizesOfACallNeed) {
  Kernel kernel = compileLazily(attending(1004));
  auto runs = [&](int queries) { return attendsRight(kernel, 1004, 20, 9, queries); };
  EXPECT_TRUE(runs(1));
  int forOne = compiled();
  EXPECT_TRUE(runs(100));
  int forMany = compiled();
  EXPECT_GT(forMany, forOne);
  EXPECT_TRUE(runs(2)) << "few, as one is";
  EXPECT_EQ(compiled(), forMany);
}

TEST_F(LazyKernel, CompilesTheRestWhereSomebodyAsksForIt) {
  Kernel kernel = compileLazily(attending(1007));
  EXPECT_TRUE(attendsRight(kernel, 1007, 20, 9, 1));
  int forOne = compiled();
  compile(attending(1007));
  int all = compiled();
  EXPECT_GT(all, forOne);
  for (int queries : {12, 100})
    EXPECT_TRUE(attendsRight(kernel, 1007, 20, 9, queries));
  EXPECT_EQ(compiled(), all);
}

TEST_F(LazyKernel, FirstRunsInEightThreadsForDifferentSizes) {
  Kernel kernel = compileLazily(attending(1005));
  EXPECT_EQ(inEightThreads([&](int thread) { return attendsRight(kernel, 1005, 20, 9, 1 + 13 * thread); }), 0);
}

TEST_F(LazyKernel, ErrorsOfTheSourceAndTheOptionsAreFoundAtOnce) {
  EXPECT_THROW(compileLazily("attention a(x: f32[N]) {\n  y[n] = z[n]\n  return y\n}\n"), CompileError);
  EXPECT_THROW(compileLazily(addition(1006), {.target = "pdp-11"}), CompileError);
}

//===- OpenMp.cpp - The threads that PyTorch has already ------------------===//

#include "OpenMp.h"

#include "attn/Compiler/Compiler.h"

#include <algorithm>
#include <atomic>
#include <dlfcn.h>
#include <mutex>

namespace attn::python {
namespace {

/// An OpenMP runtime: what GCC calls for a parallel region, which LLVM's and Intel's have as well, and the standard's
/// functions that say how many threads the next one of this thread has, and which of a region's this is.
struct OpenMp {
  void (*parallelRegion)(void (*body)(void *), void *data, unsigned threads, unsigned flags);
  int (*mostThreads)();
  int (*threadNumber)();

  bool isThere() const { return parallelRegion && mostThreads && threadNumber; }
};

OpenMp openMp;
std::atomic<int> most = 0; ///< Of setNumThreads.

/// A loop's iterations in equal shares. A thread begins with its own, so that what one step has written is read by the
/// thread in whose cache it is; then it helps the others.
class Loop {
public:
  Loop(void (*task)(void *, int), void *closure, int count, int threads)
      : task(task), closure(closure), shareCount(std::min(threads, mostShares)) {
    for (int64_t number = 0; number < shareCount; ++number) {
      shares[number].next = number * count / shareCount;
      shares[number].end = (number + 1) * count / shareCount;
    }
  }

  void run(int thread) {
    for (int number = 0; number < shareCount; ++number) {
      Share &share = shares[(thread + number) % shareCount];
      for (int64_t i; (i = share.next.fetch_add(1, std::memory_order_relaxed)) < share.end;)
        task(closure, static_cast<int>(i));
    }
  }

private:
  struct alignas(64) Share {
    std::atomic<int64_t> next; ///< That nobody has begun.
    int64_t end;
  };
  static constexpr int mostShares = 64;

  void (*task)(void *, int);
  void *closure;
  int shareCount;
  Share shares[mostShares];
};

void parallelFor(void *, void (*task)(void *, int), void *closure, int count) {
  int threads = std::min(most ? most.load() : openMp.mostThreads(), count);
  if (threads > 1) {
    Loop loop(task, closure, count, threads);
    auto body = [](void *data) { static_cast<Loop *>(data)->run(openMp.threadNumber()); };
    openMp.parallelRegion(body, &loop, threads, 0);
    return;
  }
  for (int i = 0; i < count; ++i)
    task(closure, i);
}

template <typename Function> void find(Function *&function, const char *name) {
  function = reinterpret_cast<Function *>(dlsym(RTLD_DEFAULT, name));
}

} // namespace

void useOpenMp() {
  static std::once_flag once;
  std::call_once(once, [] {
    find(openMp.parallelRegion, "GOMP_parallel");
    find(openMp.mostThreads, "omp_get_max_threads");
    find(openMp.threadNumber, "omp_get_thread_num");
    if (openMp.isThere())
      attn::setThreadPool(parallelFor, nullptr);
  });
}

void setNumThreads(int threads) {
  most = threads;
  attn::setNumThreads(threads);
}

} // namespace attn::python

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
/// function that says how many threads the next one of this thread has.
struct OpenMp {
  void (*parallelRegion)(void (*body)(void *), void *data, unsigned threads, unsigned flags);
  int (*mostThreads)();

  bool isThere() const { return parallelRegion && mostThreads; }
};

OpenMp openMp;
std::atomic<int> most = 0; ///< Of setNumThreads.

struct Loop {
  void (*task)(void *, int);
  void *closure;
  int64_t count;
  std::atomic<int64_t> next = 0; ///< That nobody has begun.

  static void runWhatIsLeft(void *data) {
    auto *loop = static_cast<Loop *>(data);
    for (int64_t i; (i = loop->next.fetch_add(1, std::memory_order_relaxed)) < loop->count;)
      loop->task(loop->closure, static_cast<int>(i));
  }
};

void parallelFor(void *, void (*task)(void *, int), void *closure, int count) {
  Loop loop{task, closure, count};
  int threads = std::min(most ? most.load() : openMp.mostThreads(), count);
  if (threads > 1)
    openMp.parallelRegion(Loop::runWhatIsLeft, &loop, threads, 0);
  else
    Loop::runWhatIsLeft(&loop);
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
    if (openMp.isThere())
      attn::setThreadPool(parallelFor, nullptr);
  });
}

void setNumThreads(int threads) {
  most = threads;
  attn::setNumThreads(threads);
}

} // namespace attn::python

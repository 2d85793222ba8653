//===- OpenMp.cpp - The threads that PyTorch has already ------------------===//

#include "OpenMp.h"

#include "attn/Compiler/Compiler.h"

#include <algorithm>
#include <atomic>
#include <dlfcn.h>
#include <mutex>

namespace attn::python {
namespace {

/// What GCC makes of a parallel region: calls `body(data)` in `threads` threads, the calling one among them; 0 means as
/// many as omp_get_max_threads says. LLVM's and Intel's runtimes have it as well.
using ParallelRegion = void(void (*body)(void *), void *data, unsigned threads, unsigned flags);

std::atomic<int> most = 0;

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

void parallelFor(void *region, void (*task)(void *, int), void *closure, int count) {
  Loop loop{task, closure, count};
  int threads = most;
  if (count == 1 || threads == 1)
    Loop::runWhatIsLeft(&loop);
  else
    reinterpret_cast<ParallelRegion *>(region)(Loop::runWhatIsLeft, &loop, std::min(threads, count), 0);
}

} // namespace

void useOpenMp() {
  static std::once_flag once;
  std::call_once(once, [] {
    if (void *region = dlsym(RTLD_DEFAULT, "GOMP_parallel"))
      attn::setThreadPool(parallelFor, region);
  });
}

void setNumThreads(int threads) {
  most = threads;
  attn::setNumThreads(threads);
}

} // namespace attn::python

//===- OpenMp.cpp - The threads that PyTorch has already ------------------===//

#include "OpenMp.h"

#include "attn/Compiler/Threads.h"

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

struct Region {
  void *context;
  attn_halide_task task;
  int first;
  uint8_t *closure;
};

/// Iteration i is thread i's. Within another region OpenMP may give fewer threads: attn_share_loop minds none that
/// lacks.
int parallelFor(void *context, attn_halide_task task, int first, int count, uint8_t *closure) {
  Region region = {context, task, first, closure};
  auto body = [](void *data) {
    auto *region = static_cast<Region *>(data);
    region->task(region->context, region->first + openMp.threadNumber(), region->closure);
  };
  openMp.parallelRegion(body, &region, count, 0);
  return 0;
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
      usePool({parallelFor, openMp.mostThreads});
  });
}

} // namespace attn::python

// A kernel for tensor cores on the CPU, for fake_cuda.c: TEXT is what `attnc --emit=cuda` wrote, KERNEL its kernel's
// name.

#include "Emulation.h"

#include TEXT

#define JOINED(A, B) A##B
#define JOIN(A, B) JOINED(A, B)

template <typename Function>
static void run(Function function, const void *arguments, unsigned blocks, unsigned threads, unsigned shared,
                char *message, size_t size) {
  const auto &given = *static_cast<const attn::JOIN(KERNEL, _kernel)::Arguments *>(arguments);
  std::string error = attn::emulation::launch(blocks, threads, shared, 0, [&] { function(given); });
  snprintf(message, size, "%s", error.c_str());
}

extern "C" void JOIN(launch_attn_, KERNEL)(const void *arguments, unsigned blocks, unsigned threads, unsigned shared,
                                           char *message, size_t size) {
  run(JOIN(attn_, KERNEL), arguments, blocks, threads, shared, message, size);
}

extern "C" void JOIN(JOIN(launch_attn_, KERNEL), _few)(const void *arguments, unsigned blocks, unsigned threads,
                                                       unsigned shared, char *message, size_t size) {
  run(JOIN(JOIN(attn_, KERNEL), _few), arguments, blocks, threads, shared, message, size);
}

extern "C" void JOIN(JOIN(launch_attn_, KERNEL), _merge)(const void *arguments, unsigned blocks, unsigned threads,
                                                         unsigned shared, char *message, size_t size) {
  run(JOIN(JOIN(attn_, KERNEL), _merge), arguments, blocks, threads, shared, message, size);
}

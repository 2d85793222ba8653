// A kernel for tensor cores on the CPU, for fake_cuda.c: TEXT is what `attnc --emit=cuda` wrote, KERNEL its kernel's
// name.

#include "Emulation.h"

#include TEXT

#define JOINED(A, B) A##B
#define JOIN(A, B) JOINED(A, B)

extern "C" void JOIN(launch_attn_, KERNEL)(const void *arguments, unsigned blocks, unsigned threads, unsigned shared,
                                           char *message, size_t size) {
  const auto &given = *static_cast<const attn::JOIN(KERNEL, _kernel)::Arguments *>(arguments);
  std::string error = attn::emulation::launch(blocks, threads, shared, 0, [&] { JOIN(attn_, KERNEL)(given); });
  snprintf(message, size, "%s", error.c_str());
}

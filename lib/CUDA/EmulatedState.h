//===- EmulatedState.h - What an emulated block has -------------*- C++ -*-===//
//
// Part of Emulation.h: its threads, what they wait at, and what is under way.
//
//===----------------------------------------------------------------------===//

#ifndef ATTN_CUDA_EMULATEDSTATE_H
#define ATTN_CUDA_EMULATEDSTATE_H

#include <cstddef>
#include <functional>
#include <memory>
#include <setjmp.h>
#include <ucontext.h>
#include <vector>

namespace attn::emulation {

struct Copy {
  unsigned char *target;
  const unsigned char *source;
  int bytes;
  bool done;
};

/// Registers that wgmma_fence has named, the bits that they had then, and the group of the last product with them.
struct Registers {
  const void *first;
  std::vector<unsigned> bits;
  size_t group = 0;
};

struct Fiber {
  ucontext_t start;
  jmp_buf resume;
  std::unique_ptr<unsigned char[]> stack;
  bool started = false, ended = false;
  bool atBarrier = false;
  std::vector<std::vector<Copy>> groups; ///< Of copies, the oldest first; the last one is not committed yet.
  std::vector<size_t> written;           ///< 16 bytes of shared memory each, since its last fence_proxy_async.
  std::vector<Registers> sums, weights;  ///< That its products add to, and that they read.
};

/// Lanes that come together: a warp, or a warpgroup.
struct Lanes {
  void *operands[128];
  const char *instruction = nullptr; ///< What they wait at.
  int arrived = 0;
  unsigned generation = 0; ///< How many instructions they have done.
};

/// A product of a warp, and the bytes of shared memory among which its B is.
struct Product {
  std::function<void()> compute; ///< None when it has been computed.
  size_t first, end;
};

/// What a warp has begun, and has when it waits for it.
struct Products {
  std::vector<std::vector<Product>> groups; ///< The oldest first; the last one is not committed yet.
  size_t done = 0;                          ///< Groups.
};

/// A barrier in shared memory (EmulatedCopies.h).
struct PhaseBarrier {
  int threads = 0; ///< 0 where there is no barrier.
  int arrived = 0;
  unsigned phase = 0;
  long long bytes = 0;                       ///< That are expected and not written.
  std::vector<std::function<void()>> copies; ///< That have not been made.
};

/// A barrier with a number (EmulatedTurns.h).
struct NamedBarrier {
  int threads = 0; ///< 0 where nobody is at it.
  int arrived = 0;
  unsigned phase = 0;
};

/// The registers that warpgroups have released (EmulatedTurns.h).
struct RegisterPool {
  std::vector<int> held; ///< Of a thread of each warpgroup.
  int free = 0;
};

} // namespace attn::emulation

#endif // ATTN_CUDA_EMULATEDSTATE_H

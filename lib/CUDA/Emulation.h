//===- Emulation.h - Kernels for tensor cores on a CPU ----------*- C++ -*-===//
//
// Gives the functions of Instructions.cuh to a C++ compiler, so that the text of a kernel is tested where there is no
// GPU. It is to be included before that text. A block's threads are fibers: one runs until it comes to a barrier or to
// an instruction of its warp, and such an instruction is computed when all 32 lanes have come to it.
//
// What a GPU leaves open is varied by a seed, because a kernel must be right however it turns out:
//
//   which warp goes on       seed 0: the first that can, as far as it can; 1: the last; others: drawn again and again
//   when cp.async writes     seed 0: when it is waited for; 1: at once; others: drawn for each copy
//
// Shared memory is NaN at first. What a GPU does not define is an error: lanes of a warp at different instructions,
// threads that wait for one that has ended, addresses that are outside or not aligned, copies that nobody waits for.
//
//===----------------------------------------------------------------------===//

#ifndef ATTN_CUDA_EMULATION_H
#define ATTN_CUDA_EMULATION_H

#define ATTN_CUDA_INSTRUCTIONS // these are the instructions
#define __device__
#define __host__
#define __global__
#define __forceinline__ inline
#define __grid_constant__
#define __launch_bounds__(...)

#include <cmath>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <random>
#include <setjmp.h>
#include <string>
#include <type_traits>
#include <ucontext.h>
#include <vector>

#include "Numbers.cuh"

//===----------------------------------------------------------------------===//
// Threads, warps, and the block that they are
//===----------------------------------------------------------------------===//

namespace attn::emulation {

struct Copy {
  unsigned char *target;
  const unsigned char *source;
  int bytes;
  bool done;
};

struct Fiber {
  ucontext_t start;
  jmp_buf resume;
  std::unique_ptr<unsigned char[]> stack;
  bool started = false, ended = false;
  bool atBarrier = false;
  std::vector<std::vector<Copy>> groups; ///< Of copies, the oldest first; the last one is not committed yet.
};

struct Warp {
  void *operands[32];
  const char *instruction = nullptr; ///< What its lanes wait at.
  int arrived = 0;
  unsigned generation = 0; ///< How many instructions it has done.
};

class Block {
public:
  static Block *current;

  Block(int threads, size_t sharedBytes) : fibers(threads), warps(threads / 32), bytes(sharedBytes) {
    for (Fiber &fiber : fibers)
      fiber.stack.reset(new unsigned char[stackBytes]);
    memory.reset(new unsigned char[sharedBytes + 128]);
    shared = memory.get() + (128 - uintptr_t(memory.get()) % 128) % 128;
  }

  /// Runs `body` on all threads of block `number`. The text of an error, or none.
  template <typename Body> std::string run(int number, unsigned seed, Body &body) {
    index = number;
    order = seed;
    random.seed(seed * 7919 + number);
    memset(shared, 0xff, bytes);
    for (Warp &warp : warps)
      warp = Warp();
    for (Fiber &fiber : fibers) {
      fiber.started = fiber.ended = fiber.atBarrier = false;
      fiber.groups.assign(1, {});
    }
    waiting = ended = 0;
    error.clear();
    call = [](void *body) { (*static_cast<Body *>(body))(); };
    argument = &body;
    current = this;
    schedule();
    current = nullptr;
    return error;
  }

  int thread() const { return now; }
  int block() const { return index; }
  unsigned char *sharedMemory() const { return shared; }
  Fiber &fiber() { return fibers[now]; }

  /// An instruction of a warp: waits until all lanes are here. The last one computes it, from what each of them
  /// brought; when this returns, the result is in the operand.
  template <typename Operand> void together(const char *name, Operand &operand, void (*compute)(Operand **operands)) {
    Warp &warp = warps[now / 32];
    if (warp.arrived == 0)
      warp.instruction = name;
    else if (strcmp(warp.instruction, name) != 0)
      fail("thread %d is at %s, other lanes of its warp are at %s", now, name, warp.instruction);
    warp.operands[now % 32] = &operand;
    progress = true;
    if (++warp.arrived == 32) {
      Operand *operands[32];
      for (int lane = 0; lane < 32; ++lane)
        operands[lane] = static_cast<Operand *>(warp.operands[lane]);
      compute(operands);
      warp.arrived = 0;
      ++warp.generation;
      return;
    }
    for (unsigned generation = warp.generation; warp.generation == generation;)
      yield();
  }

  void barrier() {
    if (ended)
      fail("thread %d is at a barrier, but %d threads have ended", now, ended);
    progress = true;
    if (++waiting == int(fibers.size())) {
      waiting = 0;
      for (Fiber &fiber : fibers)
        fiber.atBarrier = false;
      return;
    }
    for (fibers[now].atBarrier = true; fibers[now].atBarrier;)
      yield();
  }

  /// Whether a copy that begins is made at once.
  bool copiesAtOnce() { return order == 0 ? false : order == 1 ? true : random() % 2 == 0; }

  /// `size` bytes of shared memory that an instruction uses.
  void check(const char *name, const void *address, size_t size) {
    auto *at = static_cast<const unsigned char *>(address);
    if (at < shared || at + size > shared + bytes)
      fail("%s: byte %td of %zu bytes of shared memory", name, at - shared, bytes);
    if (uintptr_t(at) % size != 0)
      fail("%s: byte %td of shared memory is no multiple of %zu", name, at - shared, size);
  }

  /// Ends the block with an error.
  [[noreturn]] void fail(const char *format, ...) {
    char text[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    error = "block " + std::to_string(index) + ": " + text;
    _longjmp(scheduler, 1);
  }

private:
  static constexpr size_t stackBytes = 256 * 1024;

  void yield() {
    if (!_setjmp(fibers[now].resume))
      _longjmp(scheduler, 1);
  }

  static void begin() {
    Block &block = *current;
    block.call(block.argument);
    for (const std::vector<Copy> &group : block.fiber().groups)
      for (const Copy &copy : group)
        if (!copy.done)
          block.fail("thread %d ends before a copy that it began", block.now);
    block.fiber().ended = true;
    ++block.ended;
    block.progress = true;
    _longjmp(block.scheduler, 1);
  }

  /// Runs a thread until it waits or ends.
  void resume(int thread) {
    Fiber &fiber = fibers[thread];
    now = thread;
    if (_setjmp(scheduler))
      return;
    if (fiber.started)
      _longjmp(fiber.resume, 1);
    fiber.started = true;
    getcontext(&fiber.start);
    fiber.start.uc_stack.ss_sp = fiber.stack.get();
    fiber.start.uc_stack.ss_size = stackBytes;
    fiber.start.uc_link = nullptr;
    makecontext(&fiber.start, begin, 0);
    setcontext(&fiber.start);
  }

  bool canRun(int thread) const { return !fibers[thread].ended && !fibers[thread].atBarrier; }

  /// Runs each lane of a warp once. Whether one of them came further.
  bool runWarp(int warp) {
    progress = false;
    for (int lane = 0; lane < 32 && error.empty(); ++lane)
      if (int thread = warp * 32 + (order % 2 == 0 ? lane : 31 - lane); canRun(thread))
        resume(thread);
    return progress;
  }

  void schedule() {
    int count = warps.size();
    while (ended < int(fibers.size()) && error.empty()) {
      bool any = false;
      int first = order < 2 ? 0 : int(random() % count);
      for (int turn = 0; turn < count && error.empty() && !any; ++turn) {
        int warp = order == 1 ? count - 1 - turn : (first + turn) % count;
        any = runWarp(warp);
      }
      if (!any && error.empty())
        error = "block " + std::to_string(index) + ": every thread waits for another one";
    }
  }

  std::vector<Fiber> fibers;
  std::vector<Warp> warps;
  size_t bytes;
  std::unique_ptr<unsigned char[]> memory;
  unsigned char *shared;
  jmp_buf scheduler;
  void (*call)(void *) = nullptr;
  void *argument = nullptr;
  std::minstd_rand random;
  unsigned order = 0;
  int index = 0, now = 0, waiting = 0, ended = 0;
  bool progress = false;
  std::string error;
};

inline Block *Block::current = nullptr;

/// Runs `blocks` blocks of `threads` threads. The text of the first error, or none.
template <typename Body> std::string launch(int blocks, int threads, size_t sharedBytes, unsigned seed, Body body) {
  Block block(threads, sharedBytes);
  for (int number = 0; number < blocks; ++number)
    if (std::string error = block.run(number, seed, body); !error.empty())
      return error;
  return {};
}

} // namespace attn::emulation

//===----------------------------------------------------------------------===//
// The functions of Instructions.cuh
//===----------------------------------------------------------------------===//

namespace attn {

using emulation::Block;

inline int thread_index() { return Block::current->thread(); }
inline int block_index() { return Block::current->block(); }
inline unsigned char *shared_memory() { return Block::current->sharedMemory(); }
inline void block_barrier() { Block::current->barrier(); }

template <typename Number> Number shuffle_xor(Number value, int mask) {
  struct Operand {
    Number value;
    int mask;
  } operand = {value, mask};
  Block::current->together<Operand>("shuffle_xor", operand, [](Operand **lanes) {
    Number values[32];
    for (int lane = 0; lane < 32; ++lane)
      values[lane] = lanes[lane]->value;
    for (int lane = 0; lane < 32; ++lane)
      lanes[lane]->value = values[lane ^ lanes[lane]->mask];
  });
  return operand.value;
}

inline bool any_lane(bool condition) {
  Block::current->together<bool>("any_lane", condition, [](bool **lanes) {
    bool any = false;
    for (int lane = 0; lane < 32; ++lane)
      any |= *lanes[lane];
    for (int lane = 0; lane < 32; ++lane)
      *lanes[lane] = any;
  });
  return condition;
}

inline float exp2_approximate(float x) { return std::exp2(x); }
inline float log2_approximate(float x) { return std::log2(x); }

inline float to_float(float x) { return x; }
inline float to_float(bfloat16 x) {
  uint32_t bits = uint32_t(x.bits) << 16;
  float wide;
  memcpy(&wide, &bits, 4);
  return wide;
}
inline float widened(float16 x) {
  int exponent = x.bits >> 10 & 31, fraction = x.bits & 1023;
  float magnitude = exponent == 31  ? (fraction ? std::nanf("") : infinity())
                    : exponent == 0 ? std::ldexp(float(fraction), -24)
                                    : std::ldexp(float(fraction + 1024), exponent - 25);
  return x.bits & 0x8000 ? -magnitude : magnitude;
}
inline float to_float(float16 x) {
  static const std::vector<float> table = [] {
    std::vector<float> all(65536);
    for (int bits = 0; bits < 65536; ++bits)
      all[bits] = widened({static_cast<unsigned short>(bits)});
    return all;
  }();
  return table[x.bits];
}

template <typename Element> Element from_float(float x);
template <> inline float from_float<float>(float x) { return x; }
template <> inline bfloat16 from_float<bfloat16>(float x) {
  uint32_t bits;
  memcpy(&bits, &x, 4);
  return {static_cast<unsigned short>(std::isnan(x) ? 0x7fff : (bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
}
template <> inline float16 from_float<float16>(float x) {
  unsigned short sign = std::signbit(x) ? 0x8000 : 0;
  float magnitude = std::fabs(x);
  if (std::isnan(x))
    return {0x7fff};
  if (magnitude >= 65520)
    return {static_cast<unsigned short>(sign | 0x7c00)};
  if (magnitude < 6.103515625e-05f) // subnormal: multiples of 2^-24
    return {static_cast<unsigned short>(sign | int(std::nearbyint(std::ldexp(magnitude, 24))))};
  int exponent;
  int fraction = std::nearbyint(std::ldexp(std::frexp(magnitude, &exponent), 11)); // in [1024, 2048]
  return {static_cast<unsigned short>(sign | (((exponent + 14) << 10) + fraction - 1024))};
}

template <typename Element> unsigned pack(float low, float high) {
  return from_float<Element>(low).bits | unsigned(from_float<Element>(high).bits) << 16;
}

inline void make(emulation::Copy &copy) {
  memset(copy.target, 0, 16);
  memcpy(copy.target, copy.source, copy.bytes);
  copy.done = true;
}

inline void cp_async(void *shared, int offset, const void *global, int bytes) {
  Block &block = *Block::current;
  auto *target = static_cast<unsigned char *>(shared) + offset;
  block.check("cp_async", target, 16);
  if (uintptr_t(global) % 16 != 0)
    block.fail("cp_async: an address in device memory is no multiple of 16");
  if (bytes < 0 || bytes > 16)
    block.fail("cp_async: %d bytes, but it copies 0 to 16", bytes);
  emulation::Copy copy = {target, static_cast<const unsigned char *>(global), bytes, false};
  if (block.copiesAtOnce())
    make(copy);
  block.fiber().groups.back().push_back(copy);
}

inline void cp_async_commit() { Block::current->fiber().groups.emplace_back(); }

template <int pending> void cp_async_wait() {
  auto &groups = Block::current->fiber().groups;
  while (groups.size() > pending + 1) {
    for (emulation::Copy &copy : groups.front())
      if (!copy.done)
        make(copy);
    groups.erase(groups.begin());
  }
}

template <bool transposed> void loadMatrices(unsigned (&registers)[4], const void *row) {
  struct Operand {
    const unsigned short *row;
    unsigned registers[4];
  } operand = {static_cast<const unsigned short *>(row), {}};
  const char *name = transposed ? "ldmatrix_x4_transposed" : "ldmatrix_x4";
  Block::current->check(name, row, 16);
  Block::current->together<Operand>(name, operand, [](Operand **lanes) {
    for (int lane = 0; lane < 32; ++lane)
      for (int matrix = 0; matrix < 4; ++matrix) {
        auto element = [&](int row, int column) { return unsigned(lanes[matrix * 8 + row]->row[column]); };
        int g = lane / 4, t = lane % 4;
        lanes[lane]->registers[matrix] = transposed ? element(2 * t, g) | element(2 * t + 1, g) << 16
                                                    : element(g, 2 * t) | element(g, 2 * t + 1) << 16;
      }
  });
  memcpy(registers, operand.registers, sizeof registers);
}

inline void ldmatrix_x4(unsigned (&registers)[4], const void *tile, int offset) {
  loadMatrices<false>(registers, static_cast<const unsigned char *>(tile) + offset);
}
inline void ldmatrix_x4_transposed(unsigned (&registers)[4], const void *tile, int offset) {
  loadMatrices<true>(registers, static_cast<const unsigned char *>(tile) + offset);
}

template <typename Element> void mma_m16n8k16(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  struct Operand {
    float (&c)[4];
    const unsigned (&a)[4];
    unsigned b[2];
  } operand = {c, a, {b0, b1}};
  Block::current->together<Operand>("mma_m16n8k16", operand, [](Operand **lanes) {
    auto half = [](unsigned word, int index) {
      return to_float(Element{static_cast<unsigned short>(word >> index * 16)});
    };
    float a[16][16], b[16][8];
    for (int lane = 0; lane < 32; ++lane)
      for (int index = 0; index < 2; ++index) {
        int g = lane / 4, column = lane % 4 * 2 + index;
        for (int number = 0; number < 4; ++number)
          a[g + number % 2 * 8][column + number / 2 * 8] = half(lanes[lane]->a[number], index);
        for (int number = 0; number < 2; ++number)
          b[column + number * 8][g] = half(lanes[lane]->b[number], index);
      }
    for (int lane = 0; lane < 32; ++lane)
      for (int element = 0; element < 4; ++element) {
        int row = lane / 4 + element / 2 * 8, column = lane % 4 * 2 + element % 2;
        float sum = 0;
        for (int k = 0; k < 16; ++k)
          sum += a[row][k] * b[k][column];
        lanes[lane]->c[element] += sum;
      }
  });
}

} // namespace attn

#endif // ATTN_CUDA_EMULATION_H

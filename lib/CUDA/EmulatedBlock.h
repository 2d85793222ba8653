//===- EmulatedBlock.h - The threads of a block as fibers -------*- C++ -*-===//
//
// Part of Emulation.h: who runs when, what waits for what, and which copies are under way.
//
//===----------------------------------------------------------------------===//

#ifndef ATTN_CUDA_EMULATEDBLOCK_H
#define ATTN_CUDA_EMULATEDBLOCK_H

#include "EmulatedState.h"

#include <algorithm>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <map>
#include <random>
#include <string>

namespace attn::emulation {

class Block {
public:
  static Block *current;

  Block(int threads, size_t sharedBytes)
      : fibers(threads), warps(threads / 32), warpgroups(threads / 128), products(threads / 32), bytes(sharedBytes) {
    for (Fiber &fiber : fibers)
      fiber.stack.reset(new unsigned char[stackBytes]);
    memory.reset(new unsigned char[sharedBytes + 1024]);
    shared = memory.get() + (1024 - uintptr_t(memory.get()) % 1024) % 1024;
  }

  /// Runs `body` on all threads of block `number`. The text of an error, or none.
  template <typename Body> std::string run(int number, unsigned seed, Body &body) {
    index = number;
    order = seed;
    random.seed(seed * 7919 + number);
    memset(shared, 0xff, bytes);
    unseen.assign((bytes + 15) / 16, false);
    warps.assign(warps.size(), {});
    warpgroups.assign(warpgroups.size(), {});
    products.assign(products.size(), {{{}}, 0});
    barriers.clear();
    namedBarriers.assign(16, {});
    registers = {};
    registers.held.assign(warpgroups.size(), std::min(65536 / int(fibers.size()) / 8 * 8, 256));
    for (Fiber &fiber : fibers) {
      fiber.started = fiber.ended = fiber.atBarrier = false;
      fiber.groups.assign(1, {});
      fiber.written.clear();
      fiber.sums.clear();
      fiber.weights.clear();
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

  /// An instruction of a warp, or of a warpgroup: waits until all lanes are here. The last one computes it, from what
  /// each of them brought; when this returns, the result is in the operand.
  template <typename Operand, int count = 32>
  void together(const char *name, Operand &operand, void (*compute)(Operand **operands)) {
    static_assert(count == 32 || count == 128, "a warp or a warpgroup");
    Lanes &lanes = count == 32 ? warps[now / 32] : warpgroups[now / 128];
    if (lanes.arrived == 0)
      lanes.instruction = name;
    else if (strcmp(lanes.instruction, name) != 0)
      fail("thread %d is at %s, other lanes of its %s are at %s", now, name, count == 32 ? "warp" : "warpgroup",
           lanes.instruction);
    lanes.operands[now % count] = &operand;
    progress = true;
    if (++lanes.arrived == count) {
      Operand *operands[count];
      for (int lane = 0; lane < count; ++lane)
        operands[lane] = static_cast<Operand *>(lanes.operands[lane]);
      compute(operands);
      lanes.arrived = 0;
      ++lanes.generation;
      return;
    }
    for (unsigned generation = lanes.generation; lanes.generation == generation;)
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

  /// Whether what is asynchronous is done at once: a copy, or a warp's part of a product.
  bool isAtOnce() { return order == 0 ? false : order == 1 ? true : random() % 2 == 0; }

  /// `size` bytes of shared memory that an instruction uses.
  void check(const char *name, const void *address, size_t size) {
    auto *at = static_cast<const unsigned char *>(address);
    if (at < shared || at + size > shared + bytes)
      fail("%s: byte %td of %zu bytes of shared memory", name, at - shared, bytes);
    if (uintptr_t(at) % size != 0)
      fail("%s: byte %td of shared memory is no multiple of %zu", name, at - shared, size);
  }

  /// 16 bytes of shared memory that this thread has written: wgmma does not see them until the thread's next fence.
  void wrote(const void *address) {
    size_t segment = (static_cast<const unsigned char *>(address) - shared) / 16;
    unseen[segment] = true;
    fibers[now].written.push_back(segment);
  }
  void publish() {
    for (size_t segment : fibers[now].written)
      unseen[segment] = false;
    fibers[now].written.clear();
  }
  /// The 16 bytes at an address in shared memory, which wgmma reads.
  const unsigned char *seen(const char *name, size_t address) {
    check(name, shared + address, 16);
    if (unseen[address / 16])
      fail("%s: byte %zu of shared memory was written without a fence_proxy_async after it", name, address);
    return shared + address;
  }

  /// A copy to shared memory begins: an error where a product that its warp has not waited for may read there.
  void checkUnread(const char *name, size_t first, size_t size) {
    for (const Products &all : products)
      for (const std::vector<Product> &group : all.groups)
        for (const Product &product : group)
          if (first < product.end && product.first < first + size)
            fail("%s: byte %zu of shared memory is read by a product that its warp has not waited for", name, first);
  }

  Products &productsOf(int warp) { return products[warp]; }
  PhaseBarrier &barrierAt(size_t address) {
    progress = true;
    return barriers[address];
  }
  NamedBarrier &namedBarrier(int number) { return namedBarriers[number]; }
  RegisterPool &registerPool() { return registers; }
  /// This thread has changed what others may wait for.
  void changed() { progress = true; }
  /// Lets other threads run: this one waits for something that they do.
  void pause() { yield(); }

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
    if (!block.fiber().sums.empty())
      block.fail("thread %d ends before products that it began", block.now);
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
    for (size_t number = 0; number < namedBarriers.size() && error.empty(); ++number)
      if (namedBarriers[number].arrived > 0)
        error = "block " + std::to_string(index) + ": it ends while " + std::to_string(namedBarriers[number].arrived) +
                " threads are at barrier " + std::to_string(number);
  }

  std::vector<Fiber> fibers;
  std::vector<Lanes> warps, warpgroups;
  std::vector<Products> products; ///< Of each warp.
  std::vector<bool> unseen;       ///< Of each 16 bytes of shared memory.
  std::map<size_t, PhaseBarrier> barriers;
  std::vector<NamedBarrier> namedBarriers;
  RegisterPool registers;
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

#endif // ATTN_CUDA_EMULATEDBLOCK_H

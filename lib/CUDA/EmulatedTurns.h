//===- EmulatedTurns.h - Warpgroups that do different things ----*- C++ -*-===//
//
// Part of Emulation.h: barriers with numbers, and registers that warpgroups give each other. Errors are a barrier that
// threads come to with different numbers of threads, and one that somebody has come to, but not all, when the block
// ends. Who claims registers waits until there are as many.
//
//===----------------------------------------------------------------------===//

#ifndef ATTN_CUDA_EMULATEDTURNS_H
#define ATTN_CUDA_EMULATEDTURNS_H

namespace attn {

inline void named_barrier_arrive(int number, int threads) {
  Block &block = *Block::current;
  if (number < 1 || number > 15)
    block.fail("named barrier %d, but they are 1 to 15", number);
  emulation::NamedBarrier &barrier = block.namedBarrier(number);
  if (barrier.arrived > 0 && barrier.threads != threads)
    block.fail("named barrier %d is for %d threads here, but for %d elsewhere", number, threads, barrier.threads);
  barrier.threads = threads;
  block.changed();
  if (++barrier.arrived < threads)
    return;
  barrier.arrived = 0;
  ++barrier.phase;
}

inline void named_barrier_wait(int number, int threads) {
  const emulation::NamedBarrier &barrier = Block::current->namedBarrier(number & 15);
  const unsigned phase = barrier.phase;
  named_barrier_arrive(number, threads);
  while (barrier.phase == phase)
    Block::current->pause();
}

namespace emulation {

/// The warpgroup's threads have `registers` from here on: false where so many are not free.
inline bool hold(int registers) {
  RegisterPool &pool = Block::current->registerPool();
  int &held = pool.held[Block::current->thread() / 128];
  if (pool.free + held < registers)
    return false;
  pool.free += held - registers;
  held = registers;
  Block::current->changed();
  return true;
}

/// Those that a thread of the warpgroup has, when all of them are here.
inline int heldRegisters(const char *name, int registers) {
  Block &block = *Block::current;
  if (registers % 8 != 0 || registers < 24 || registers > 256)
    block.fail("%s: %d, but it takes multiples of 8 from 24 to 256", name, registers);
  int held = 0;
  block.together<int, 128>(name, held, [](int **lanes) {
    Block &block = *Block::current;
    for (int lane = 0; lane < 128; ++lane)
      *lanes[lane] = block.registerPool().held[block.thread() / 128];
  });
  return held;
}

} // namespace emulation

template <int registers> void release_registers() {
  int held = emulation::heldRegisters("release_registers", registers);
  if (held < registers)
    Block::current->fail("release_registers: to %d, but a thread has %d", registers, held);
  emulation::hold(registers);
}

template <int registers> void claim_registers() {
  int held = emulation::heldRegisters("claim_registers", registers);
  if (held > registers)
    Block::current->fail("claim_registers: to %d, but a thread has %d", registers, held);
  while (!emulation::hold(registers))
    Block::current->pause();
}

} // namespace attn

#endif // ATTN_CUDA_EMULATEDTURNS_H

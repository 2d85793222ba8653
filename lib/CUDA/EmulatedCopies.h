//===- EmulatedCopies.h - Copies by tensor maps on a CPU --------*- C++ -*-===//
//
// Part of Emulation.h: cp.async.bulk.tensor, and the barriers that count its bytes. A copy writes at once or when a
// thread waits for its barrier, as the seed says. A map, of which the driver keeps to itself what it has, is here
//
//   words[0]         the address
//   words[1 … 5]     the extents
//   words[6 … 9]     the strides in bytes, from the second dimension on
//   words[10 … 14]   the box
//
// as the driver of test/Tools/Inputs/fake_cuda.c makes it.
//
//===----------------------------------------------------------------------===//

#ifndef ATTN_CUDA_EMULATEDCOPIES_H
#define ATTN_CUDA_EMULATEDCOPIES_H

namespace attn {

namespace emulation {

inline PhaseBarrier &barrierAt(const char *name, void *shared, int offset) {
  Block &block = *Block::current;
  size_t address = shared_address(shared, offset);
  block.check(name, block.sharedMemory() + address, 8);
  PhaseBarrier &barrier = block.barrierAt(address);
  if (barrier.threads == 0)
    block.fail("%s: no barrier is at byte %zu of shared memory", name, address);
  return barrier;
}

/// Ends the phase if all have arrived and all bytes are there.
inline void advance(PhaseBarrier &barrier) {
  if (barrier.arrived < barrier.threads || barrier.bytes != 0)
    return;
  barrier.arrived = 0;
  ++barrier.phase;
}

inline void copyBox(const TensorMap &map, unsigned char *target, const int (&start)[5]) {
  const unsigned long long *extents = map.words + 1, *strides = map.words + 6, *box = map.words + 10;
  size_t number = 0; // of the row in the box
  int at[5];
  auto copyRows = [&](auto self, int dimension) -> void {
    if (dimension > 0) {
      for (unsigned long long index = 0; index < box[dimension]; ++index) {
        at[dimension] = start[dimension] + index;
        self(self, dimension - 1);
      }
      return;
    }
    bool inside = true;
    const char *row = reinterpret_cast<const char *>(map.words[0]);
    for (int each = 1; each < 5; ++each) {
      inside &= at[each] >= 0 && at[each] < (long long)extents[each];
      row += at[each] * (long long)strides[each - 1];
    }
    for (unsigned long long column = 0; column < box[0]; ++column) {
      unsigned short element = 0;
      if (inside && start[0] + column < extents[0])
        memcpy(&element, row + (start[0] + column) * 2, 2);
      size_t segment = column / 8 ^ number % 8; // the swizzle of 128 bytes
      memcpy(target + number * 128 + segment * 16 + column % 8 * 2, &element, 2);
    }
    ++number;
  };
  copyRows(copyRows, 4);
}

} // namespace emulation

inline void mbarrier_init(void *shared, int offset, int threads) {
  Block &block = *Block::current;
  size_t address = shared_address(shared, offset);
  block.check("mbarrier_init", block.sharedMemory() + address, 8);
  block.barrierAt(address) = {threads};
  block.wrote(block.sharedMemory() + address);
}

inline void mbarrier_arrive(void *shared, int offset) {
  emulation::PhaseBarrier &barrier = emulation::barrierAt("mbarrier_arrive", shared, offset);
  if (++barrier.arrived > barrier.threads)
    Block::current->fail("mbarrier_arrive: a barrier for %d threads has more", barrier.threads);
  emulation::advance(barrier);
  Block::current->pause(); // others may go on before this thread does
}

inline void mbarrier_arrive_expect(void *shared, int offset, int bytes) {
  emulation::barrierAt("mbarrier_arrive_expect", shared, offset).bytes += bytes;
  mbarrier_arrive(shared, offset);
}

inline void mbarrier_wait(void *shared, int offset, int parity) {
  emulation::PhaseBarrier &barrier = emulation::barrierAt("mbarrier_wait", shared, offset);
  while (true) {
    std::vector<std::function<void()>> copies;
    copies.swap(barrier.copies);
    for (const std::function<void()> &copy : copies)
      copy();
    if (barrier.phase % 2 != parity % 2u)
      return;
    Block::current->pause();
  }
}

inline void tensor_copy_5d(void *shared, int offset, const TensorMap &map, int column, const Place &place,
                           int barrier) {
  Block &block = *Block::current;
  emulation::PhaseBarrier &counts = emulation::barrierAt("tensor_copy_5d", shared, barrier);
  block.seen("tensor_copy_5d", shared_address(shared, barrier) / 16 * 16);
  size_t target = shared_address(shared, offset), bytes = 2;
  for (int dimension = 0; dimension < 5; ++dimension)
    bytes *= map.words[10 + dimension];
  if (map.words[0] == 0 || map.words[10] != 64)
    block.fail("tensor_copy_5d: there is no map for boxes of 64 columns");
  if (target % 1024 != 0)
    block.fail("tensor_copy_5d: byte %zu of shared memory is no multiple of 1024", target);
  block.check("tensor_copy_5d", block.sharedMemory() + target, 1024);
  block.check("tensor_copy_5d", block.sharedMemory() + target + bytes - 1024, 1024);
  block.checkUnread("tensor_copy_5d", target, bytes);
  auto copy = [&block, &counts, &map, place, target, bytes, column] {
    const int start[5] = {column, place.index[0], place.index[1], place.index[2], place.index[3]};
    emulation::copyBox(map, block.sharedMemory() + target, start);
    counts.bytes -= bytes;
    emulation::advance(counts);
  };
  if (block.isAtOnce())
    copy();
  else
    counts.copies.push_back(copy);
}

} // namespace attn

#endif // ATTN_CUDA_EMULATEDCOPIES_H

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
//   when maps' copies write  seed 0: when somebody waits for them; 1: at once; others: drawn for each copy
//   when wgmma reads         the same, for each warp of the four
//
// Shared memory is NaN at first. What a GPU does not define is an error: lanes of a warp at different instructions,
// threads that wait for one that has ended, addresses that are outside or not aligned, copies that nobody waits for.
// EmulatedWarpgroups.h, EmulatedCopies.h and EmulatedTurns.h have what is more for wgmma, for tensor maps, and for
// warpgroups that do different things.
//
//===----------------------------------------------------------------------===//

#ifndef ATTN_CUDA_EMULATION_H
#define ATTN_CUDA_EMULATION_H

#define ATTN_CUDA_INSTRUCTIONS // these are the instructions
#define ATTN_CUDA_WARPGROUPINSTRUCTIONS
#define __device__
#define __host__
#define __global__
#define __forceinline__ inline
#define __grid_constant__
#define __launch_bounds__(...)

#include <cmath>

#include "EmulatedBlock.h"
#include "Numbers.cuh"

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

template <typename Number> Number shuffle_from(Number value, int lane) {
  struct Operand {
    Number value;
    int lane;
  } operand = {value, lane};
  Block::current->together<Operand>("shuffle_from", operand, [](Operand **lanes) {
    Number values[32];
    for (int lane = 0; lane < 32; ++lane)
      values[lane] = lanes[lane]->value;
    for (int lane = 0; lane < 32; ++lane)
      lanes[lane]->value = values[lanes[lane]->lane & 31];
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

inline unsigned lanes_where(bool condition) {
  struct Operand {
    bool condition;
    unsigned lanes;
  } operand = {condition, 0};
  Block::current->together<Operand>("lanes_where", operand, [](Operand **lanes) {
    unsigned bits = 0;
    for (int lane = 0; lane < 32; ++lane)
      bits |= unsigned(lanes[lane]->condition) << lane;
    for (int lane = 0; lane < 32; ++lane)
      lanes[lane]->lanes = bits;
  });
  return operand.lanes;
}
inline int count_of_ones(unsigned bits) { return __builtin_popcount(bits); }

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

inline int shared_address(const void *shared, int offset) {
  return static_cast<const unsigned char *>(shared) - Block::current->sharedMemory() + offset;
}

inline void store_shared(void *shared, int offset, const Segment &segment) {
  unsigned char *target = static_cast<unsigned char *>(shared) + offset;
  Block::current->check("store_shared", target, 16);
  memcpy(target, &segment, 16);
  Block::current->wrote(target);
}

inline void make(emulation::Copy &copy) {
  memset(copy.target, 0, 16);
  memcpy(copy.target, copy.source, copy.bytes);
  copy.done = true;
  Block::current->wrote(copy.target);
}

inline void cp_async(void *shared, int offset, const void *global, int bytes) {
  Block &block = *Block::current;
  auto *target = static_cast<unsigned char *>(shared) + offset;
  block.check("cp_async", target, 16);
  block.checkUnread("cp_async", target - block.sharedMemory(), 16);
  if (uintptr_t(global) % 16 != 0)
    block.fail("cp_async: an address in device memory is no multiple of 16");
  if (bytes < 0 || bytes > 16)
    block.fail("cp_async: %d bytes, but it copies 0 to 16", bytes);
  emulation::Copy copy = {target, static_cast<const unsigned char *>(global), bytes, false};
  if (block.isAtOnce())
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

#include "EmulatedCopies.h"
#include "EmulatedTurns.h"
#include "EmulatedWarpgroups.h"

#endif // ATTN_CUDA_EMULATION_H

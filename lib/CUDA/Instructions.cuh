//===- Instructions.cuh - PTX instructions, each behind a function -*- C++ -*-===//
//
// What a kernel needs of the machine beyond C++. lib/CUDA/Emulation.h has the same functions for a CPU, and defines
// the macro below, so that the text of a kernel runs there as it is. WarpgroupInstructions.cuh has those of sm_90a.
//
// Fragments are those of the PTX manual for m16n8k16. With g = lane / 4 and t = lane % 4, a lane has
//
//   A (16 x 16, row by row)        a[0]: (g, 2t), (g, 2t + 1)        a[1]: (g + 8, …)     a[2], a[3]: 8 columns on
//   B (16 x 8, column by column)   b0: (2t, g), (2t + 1, g)          b1: 8 rows on
//   C (16 x 8)                     c[0], c[1]: (g, 2t), (g, 2t + 1)  c[2], c[3]: (g + 8, …)
//
//===----------------------------------------------------------------------===//

#ifndef ATTN_CUDA_INSTRUCTIONS
#define ATTN_CUDA_INSTRUCTIONS

namespace attn {

//===----------------------------------------------------------------------===//
// Threads
//===----------------------------------------------------------------------===//

/// Of this thread in its block; a warp is 32 threads in order.
__device__ __forceinline__ int thread_index() { return threadIdx.x; }
/// Of this block in the grid, which has one dimension.
__device__ __forceinline__ int block_index() { return blockIdx.x; }

/// The shared memory of the block, as much as the launch gives, from a multiple of 1024 bytes on.
__device__ __forceinline__ unsigned char *shared_memory() {
  extern __shared__ __align__(1024) unsigned char bytes[];
  return bytes;
}

/// All threads of the block come here before one goes on, and see what the others wrote.
__device__ __forceinline__ void block_barrier() { __syncthreads(); }

/// The number that the lane has whose number differs in the bits of `mask`.
__device__ __forceinline__ float shuffle_xor(float value, int mask) { return __shfl_xor_sync(~0u, value, mask); }
__device__ __forceinline__ int shuffle_xor(int value, int mask) { return __shfl_xor_sync(~0u, value, mask); }
__device__ __forceinline__ int64 shuffle_xor(int64 value, int mask) { return __shfl_xor_sync(~0u, value, mask); }

/// The number that lane `lane`, modulo 32, of the warp has.
template <typename Number> __device__ __forceinline__ Number shuffle_from(Number value, int lane) {
  return __shfl_sync(~0u, value, lane);
}

/// Whether it holds for some lane of the warp.
__device__ __forceinline__ bool any_lane(bool condition) { return __any_sync(~0u, condition); }

/// For which lanes of the warp it holds: a bit for each.
__device__ __forceinline__ unsigned lanes_where(bool condition) { return __ballot_sync(~0u, condition); }

__device__ __forceinline__ int count_of_ones(unsigned bits) { return __popc(bits); }

//===----------------------------------------------------------------------===//
// Numbers
//===----------------------------------------------------------------------===//

/// 2^x and log2(x) to 2 units in the last place or so; 2^-inf is 0.
__device__ __forceinline__ float exp2_approximate(float x) {
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
  return power;
}
__device__ __forceinline__ float log2_approximate(float x) {
  float logarithm;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(logarithm) : "f"(x));
  return logarithm;
}

__device__ __forceinline__ float to_float(float x) { return x; }
__device__ __forceinline__ float to_float(bfloat16 x) { return __uint_as_float(unsigned(x.bits) << 16); }
__device__ __forceinline__ float to_float(float16 x) {
  float wide;
  asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(x.bits));
  return wide;
}

/// Rounded to the nearest Element, ties to even.
template <typename Element> __device__ __forceinline__ Element from_float(float x);
template <> __device__ __forceinline__ float from_float<float>(float x) { return x; }
template <> __device__ __forceinline__ bfloat16 from_float<bfloat16>(float x) {
  bfloat16 narrow;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(narrow.bits) : "f"(x));
  return narrow;
}
template <> __device__ __forceinline__ float16 from_float<float16>(float x) {
  float16 narrow;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(narrow.bits) : "f"(x));
  return narrow;
}

/// Two numbers, rounded, in a register: the first in the low half.
template <typename Element> __device__ __forceinline__ unsigned pack(float low, float high);
template <> __device__ __forceinline__ unsigned pack<bfloat16>(float low, float high) {
  unsigned both;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  return both;
}
template <> __device__ __forceinline__ unsigned pack<float16>(float low, float high) {
  unsigned both;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  return both;
}

//===----------------------------------------------------------------------===//
// Copies from device memory to shared memory
//===----------------------------------------------------------------------===//

/// Addresses in shared memory are 32 bits wide: that of byte `offset` after `shared`.
__device__ __forceinline__ unsigned shared_address(const void *shared, int offset) {
  return unsigned(__cvta_generic_to_shared(shared)) + unsigned(offset);
}

/// Begins to copy `bytes` (at most 16) bytes to byte `offset` after `shared`; the rest of the 16 becomes 0. Both
/// addresses are multiples of 16.
__device__ __forceinline__ void cp_async(void *shared, int offset, const void *global, int bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(shared, offset)), "l"(global),
               "r"(bytes)
               : "memory");
}

/// Writes byte `offset` after `shared` and the 15 that follow; both addresses are multiples of 16.
__device__ __forceinline__ void store_shared(void *shared, int offset, const Segment &segment) {
  *reinterpret_cast<Segment *>(static_cast<unsigned char *>(shared) + offset) = segment;
}

/// The copies that this thread has begun since the last commit are a group.
__device__ __forceinline__ void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

/// Waits until at most `pending` groups of this thread are not done, the newest ones.
template <int pending> __device__ __forceinline__ void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
}

//===----------------------------------------------------------------------===//
// Matrices of a warp
//===----------------------------------------------------------------------===//

/// Four matrices of 8 x 8 elements: lane 8i + r says at which byte after `tile` row r of matrix i is, and registers[i]
/// is elements 2t and 2t + 1 of row g of matrix i.
__device__ __forceinline__ void ldmatrix_x4(unsigned (&registers)[4], const void *tile, int offset) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(registers[0]), "=r"(registers[1]), "=r"(registers[2]), "=r"(registers[3])
               : "r"(shared_address(tile, offset))
               : "memory");
}

/// The same, but registers[i] is rows 2t and 2t + 1 of column g.
__device__ __forceinline__ void ldmatrix_x4_transposed(unsigned (&registers)[4], const void *tile, int offset) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(registers[0]), "=r"(registers[1]), "=r"(registers[2]), "=r"(registers[3])
               : "r"(shared_address(tile, offset))
               : "memory");
}

/// c += a · b, added in f32.
template <typename Element>
__device__ __forceinline__ void mma_m16n8k16(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1);
template <>
__device__ __forceinline__ void mma_m16n8k16<bfloat16>(float (&c)[4], const unsigned (&a)[4], unsigned b0,
                                                       unsigned b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
template <>
__device__ __forceinline__ void mma_m16n8k16<float16>(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

} // namespace attn

#endif // ATTN_CUDA_INSTRUCTIONS

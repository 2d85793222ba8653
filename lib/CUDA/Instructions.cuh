//===- Instructions.cuh - PTX instructions, each behind a function -*- C++ -*-===//
//
// What a kernel needs of the machine beyond C++. lib/CUDA/Emulation.h has the same functions for a CPU, and defines
// the macro below, so that the text of a kernel runs there as it is.
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

/// The number that lane `lane`, modulo 32, of the warp has.
template <typename Number> __device__ __forceinline__ Number shuffle_from(Number value, int lane) {
  return __shfl_sync(~0u, value, lane);
}

/// Whether it holds for some lane of the warp.
__device__ __forceinline__ bool any_lane(bool condition) { return __any_sync(~0u, condition); }

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

/// What this thread has written to shared memory, copies that it has waited for among it, is there for wgmma_m64nNk16.
__device__ __forceinline__ void fence_proxy_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

//===----------------------------------------------------------------------===//
// Copies by tensor maps, and what they are waited for with: sm_90a
//===----------------------------------------------------------------------===//
//
// A barrier is 8 bytes at a multiple of 8. It has phases 0, 1, …: one ends when as many threads have arrived as the
// barrier is for, and as many bytes have been written as they expect.

__device__ __forceinline__ void mbarrier_init(void *shared, int offset, int threads) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(shared, offset)), "r"(threads)
               : "memory");
}

__device__ __forceinline__ void mbarrier_arrive(void *shared, int offset) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(shared, offset)) : "memory");
}

/// Arrives, and expects so many more bytes in this phase.
__device__ __forceinline__ void mbarrier_arrive_expect(void *shared, int offset, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(shared, offset)),
               "r"(bytes)
               : "memory");
}

/// Waits until a phase with this parity has ended: the current one, if it has, else the one before it.
__device__ __forceinline__ void mbarrier_wait(void *shared, int offset, int parity) {
  int is_over;
  do
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.b32 %0, 1, 0, p; }"
                 : "=r"(is_over)
                 : "r"(shared_address(shared, offset)), "r"(parity)
                 : "memory");
  while (!is_over);
}

/// Begins to copy a box of a tensor, from these coordinates on, to byte `offset` after `shared`, swizzled as the map
/// says; elements outside of the tensor become 0. The bytes count for the phase of the barrier at byte `barrier`.
__device__ __forceinline__ void tensor_copy_5d(void *shared, int offset, const TensorMap &map, int column,
                                               const Place &place, int barrier) {
  asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes"
               " [%0], [%1, {%2, %3, %4, %5, %6}], [%7];" ::"r"(shared_address(shared, offset)),
               "l"(&map), "r"(column), "r"(place.index[0]), "r"(place.index[1]), "r"(place.index[2]),
               "r"(place.index[3]), "r"(shared_address(shared, barrier))
               : "memory");
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

//===----------------------------------------------------------------------===//
// Matrices of a warpgroup: sm_90a
//===----------------------------------------------------------------------===//
//
// The four warps of a warpgroup come together; warp w has rows 16w to 16w + 15 of A and C, in the fragments above. c[i]
// is of columns 8i to 8i + 7. Products are computed later:
//
//   wgmma_fence(c), wgmma_fence(a)       the registers are the products' from here on
//   wgmma_m64nNk16<N>(c, a, b) …         adds to c
//   wgmma_commit()                       these are a group
//   wgmma_wait<0>(c)                     they are done, the registers and the shared memory are the thread's again

/// Nothing that reads or writes these registers is moved across this by the compiler, which knows of no "later".
template <int fragments> __device__ __forceinline__ void keep_order(float (&c)[fragments][4]) {
#pragma unroll
  for (int fragment = 0; fragment < fragments; ++fragment)
#pragma unroll
    for (int element = 0; element < 4; ++element)
      asm volatile("" : "+f"(c[fragment][element])::"memory");
}

template <int fragments> __device__ __forceinline__ void wgmma_fence(float (&c)[fragments][4]) {
  keep_order(c);
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void wgmma_fence(unsigned (&a)[4]) {
  asm volatile("" : "+r"(a[0]), "+r"(a[1]), "+r"(a[2]), "+r"(a[3])::"memory");
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

/// Waits until at most `pending` groups are not done, the newest ones.
template <int pending, int fragments> __device__ __forceinline__ void wgmma_wait(float (&c)[fragments][4]) {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory");
  keep_order(c);
}

/// c += a · b, added in f32, for 64 rows and N columns of C. Descriptors (matrix_descriptor in Tiles.cuh) say where A
/// (64 x 16) and B (16 x N) are; B has its columns one below the other there.
template <int N, typename Element>
__device__ __forceinline__ void wgmma_m64nNk16(float (*c)[4], unsigned long long a, unsigned long long b);
/// The same with A in registers, and B as it is, row by row.
template <int N, typename Element>
__device__ __forceinline__ void wgmma_m64nNk16_transposed(float (*c)[4], const unsigned (&a)[4], unsigned long long b);

#define ATTN_PLACES_16 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define ATTN_PLACES_32 ATTN_PLACES_16 ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define ATTN_PLACES_64                                                                                                 \
  ATTN_PLACES_32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"                    \
                 ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define ATTN_PLACES_128                                                                                                \
  ATTN_PLACES_64 ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79"                    \
                 ", %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"                    \
                 ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111"        \
                 ", %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define ATTN_SUMS_4(i) "+f"(c[i][0]), "+f"(c[i][1]), "+f"(c[i][2]), "+f"(c[i][3])
#define ATTN_SUMS_16(i) ATTN_SUMS_4(i), ATTN_SUMS_4(i + 1), ATTN_SUMS_4(i + 2), ATTN_SUMS_4(i + 3)
#define ATTN_SUMS_32(i) ATTN_SUMS_16(i), ATTN_SUMS_16(i + 4)
#define ATTN_SUMS_64(i) ATTN_SUMS_32(i), ATTN_SUMS_32(i + 8)
#define ATTN_SUMS_128(i) ATTN_SUMS_64(i), ATTN_SUMS_64(i + 16)

// `sums` is N / 2; the places of the other operands follow theirs.
#define ATTN_WGMMA(N, Element, type, sums, p0, p1, p2, p3, p4)                                                         \
  template <>                                                                                                          \
  __device__ __forceinline__ void wgmma_m64nNk16<N, Element>(float (*c)[4], unsigned long long a,                      \
                                                             unsigned long long b) {                                   \
    asm volatile("wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." type "." type " {" ATTN_PLACES_##sums               \
                 "}, %" #p0 ", %" #p1 ", 1, 1, 1, 0, 0;"                                                               \
                 : ATTN_SUMS_##sums(0)                                                                                 \
                 : "l"(a), "l"(b));                                                                                    \
  }                                                                                                                    \
  template <>                                                                                                          \
  __device__ __forceinline__ void wgmma_m64nNk16_transposed<N, Element>(float (*c)[4], const unsigned (&a)[4],         \
                                                                        unsigned long long b) {                        \
    asm volatile("wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." type "." type " {" ATTN_PLACES_##sums               \
                 "}, {%" #p0 ", %" #p1 ", %" #p2 ", %" #p3 "}, %" #p4 ", 1, 1, 1, 1;"                                  \
                 : ATTN_SUMS_##sums(0)                                                                                 \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                                                \
  }
ATTN_WGMMA(32, bfloat16, "bf16", 16, 16, 17, 18, 19, 20)
ATTN_WGMMA(32, float16, "f16", 16, 16, 17, 18, 19, 20)
ATTN_WGMMA(64, bfloat16, "bf16", 32, 32, 33, 34, 35, 36)
ATTN_WGMMA(64, float16, "f16", 32, 32, 33, 34, 35, 36)
ATTN_WGMMA(128, bfloat16, "bf16", 64, 64, 65, 66, 67, 68)
ATTN_WGMMA(128, float16, "f16", 64, 64, 65, 66, 67, 68)
ATTN_WGMMA(256, bfloat16, "bf16", 128, 128, 129, 130, 131, 132)
ATTN_WGMMA(256, float16, "f16", 128, 128, 129, 130, 131, 132)

} // namespace attn

#endif // ATTN_CUDA_INSTRUCTIONS

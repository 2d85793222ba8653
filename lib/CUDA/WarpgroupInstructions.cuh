//===- WarpgroupInstructions.cuh - PTX instructions of sm_90a ---*- C++ -*-===//
//
// As Instructions.cuh: copies by tensor maps, barriers of phases, matrices of four warps, barriers of some warps, and
// registers that warps give each other. lib/CUDA/EmulatedCopies.h, EmulatedWarpgroups.h and EmulatedTurns.h have the
// same functions for a CPU.
//
//===----------------------------------------------------------------------===//

#ifndef ATTN_CUDA_WARPGROUPINSTRUCTIONS
#define ATTN_CUDA_WARPGROUPINSTRUCTIONS

namespace attn {

/// What this thread has written to shared memory, copies that it has waited for among it, is there for wgmma_m64nNk16.
__device__ __forceinline__ void fence_proxy_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

//===----------------------------------------------------------------------===//
// Copies by tensor maps, and what they are waited for with
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
// Warpgroups that do different things
//===----------------------------------------------------------------------===//

/// Barrier `number`, 1 to 15, of so many threads of the block, those that only say that they are there among them: all
/// of the warp come here. Who waits goes on when so many have come, and sees what they wrote.
__device__ __forceinline__ void named_barrier_wait(int number, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(number), "r"(threads) : "memory");
}
__device__ __forceinline__ void named_barrier_arrive(int number, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(number), "r"(threads) : "memory");
}

/// Of each thread of this warpgroup, a multiple of 8 from 24 to 256: fewer than before, or more, which the others have
/// released or will.
template <int registers> __device__ __forceinline__ void release_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(registers));
}
template <int registers> __device__ __forceinline__ void claim_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(registers));
}

//===----------------------------------------------------------------------===//
// Matrices of a warpgroup
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
template <int fragments> __device__ __forceinline__ void wgmma_fence(unsigned (&a)[fragments][1][4]) {
#pragma unroll
  for (int fragment = 0; fragment < fragments; ++fragment)
#pragma unroll
    for (int word = 0; word < 4; ++word)
      asm volatile("" : "+r"(a[fragment][0][word])::"memory");
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

/// Waits until at most `pending` groups are not done, the newest ones.
template <int pending, int fragments> __device__ __forceinline__ void wgmma_wait(float (&c)[fragments][4]) {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory");
  keep_order(c);
}

/// What follows, waits among it, begins when `value`, which is not negative, is known. Without this ptxas moves
/// wgmma_wait before arithmetic that does not need its products, which then has none beside it; across a branch it
/// moves nothing.
__device__ __forceinline__ void begin_after(float value) {
  asm volatile(
      "{ .reg .pred known; setp.geu.f32 known, %0, 0f00000000; @known bra after; nanosleep.u32 0; after: }" ::"f"(value)
      : "memory");
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
#define ATTN_PLACES_80 ATTN_PLACES_64 ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79"
#define ATTN_PLACES_96 ATTN_PLACES_80 ", %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define ATTN_PLACES_128                                                                                                \
  ATTN_PLACES_96 ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111"        \
                 ", %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define ATTN_SUMS_4(i) "+f"(c[i][0]), "+f"(c[i][1]), "+f"(c[i][2]), "+f"(c[i][3])
#define ATTN_SUMS_16(i) ATTN_SUMS_4(i), ATTN_SUMS_4(i + 1), ATTN_SUMS_4(i + 2), ATTN_SUMS_4(i + 3)
#define ATTN_SUMS_32(i) ATTN_SUMS_16(i), ATTN_SUMS_16(i + 4)
#define ATTN_SUMS_64(i) ATTN_SUMS_32(i), ATTN_SUMS_32(i + 8)
#define ATTN_SUMS_80(i) ATTN_SUMS_64(i), ATTN_SUMS_16(i + 16)
#define ATTN_SUMS_96(i) ATTN_SUMS_64(i), ATTN_SUMS_32(i + 16)
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
ATTN_WGMMA(160, bfloat16, "bf16", 80, 80, 81, 82, 83, 84)
ATTN_WGMMA(160, float16, "f16", 80, 80, 81, 82, 83, 84)
ATTN_WGMMA(192, bfloat16, "bf16", 96, 96, 97, 98, 99, 100)
ATTN_WGMMA(192, float16, "f16", 96, 96, 97, 98, 99, 100)
ATTN_WGMMA(256, bfloat16, "bf16", 128, 128, 129, 130, 131, 132)
ATTN_WGMMA(256, float16, "f16", 128, 128, 129, 130, 131, 132)

} // namespace attn

#endif // ATTN_CUDA_WARPGROUPINSTRUCTIONS

/*===- limits.c - What this machine can do at most ------------------------===*
 *
 * Beside peak_flops of examples/demo/peak.c: multiply-adds of bf16 pairs, and reading from memory. Compile with
 * -O2 -march=native -ffp-contract=fast.
 *
 *===----------------------------------------------------------------------===*/

#include "../examples/demo/peak.h"

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __AVX512BF16__
#include <immintrin.h>
#endif

enum { MAX_THREADS = 256 };

typedef struct {
  const uint64_t *data;
  size_t count;
  uint64_t sum;
} part;

static void *read_part(void *argument) {
  part *own = argument;
  typedef uint64_t vector __attribute__((vector_size(64), aligned(8)));
  vector sums[8] = {{0}};
  for (size_t i = 0; i + 64 <= own->count; i += 64)
    for (int j = 0; j < 8; ++j)
      sums[j] += *(const vector *)(own->data + i + 8 * j);
  for (int j = 0; j < 8; ++j)
    own->sum += sums[j][0] + sums[j][7];
  return 0;
}

/* Bytes a second that `threads` threads read together from `bytes` bytes, the best of a few passes. */
double read_bandwidth(const void *data, size_t bytes, int threads) {
  double best = 0;
  if (threads > MAX_THREADS)
    threads = MAX_THREADS;
  for (int repeat = 0; repeat < 5; ++repeat) {
    pthread_t others[MAX_THREADS];
    part parts[MAX_THREADS];
    size_t share = bytes / sizeof(uint64_t) / (size_t)threads;
    int started = 0;
    for (int i = 0; i < threads; ++i)
      parts[i] = (part){(const uint64_t *)data + (size_t)i * share, share, 0};
    double begin = now();
    while (started < threads - 1 && pthread_create(&others[started], 0, read_part, &parts[started + 1]) == 0)
      ++started;
    read_part(&parts[0]);
    for (int i = 0; i < started; ++i)
      pthread_join(others[i], 0);
    double rate = (double)(share * sizeof(uint64_t)) * (started + 1) / (now() - begin);
    volatile uint64_t used = parts[0].sum;
    (void)used;
    best = rate > best ? rate : best;
  }
  return best;
}

#ifdef __AVX512BF16__
static void *dot_pairs(void *rounds) {
  __m512 chains[24];
  __m512bh a = (__m512bh)_mm512_set1_epi32(0x3f003f00), b = a;
  for (int i = 0; i < 24; ++i)
    chains[i] = _mm512_set1_ps((float)i);
  for (long round = 0; round < *(long *)rounds; ++round) {
#pragma GCC unroll 24
    for (int i = 0; i < 24; ++i)
      chains[i] = _mm512_dpbf16_ps(chains[i], a, b);
  }
  float sum = 0;
  for (int i = 0; i < 24; ++i)
    sum += _mm512_reduce_add_ps(chains[i]);
  volatile float used = sum;
  (void)used;
  return 0;
}
#endif

/* Operations a second of paired bf16 dot products on `threads` threads; 0 where the processor has none. */
double peak_bf16(int threads) {
#ifdef __AVX512BF16__
  double best = 0;
  long rounds = 300000;
  if (threads > MAX_THREADS)
    threads = MAX_THREADS;
  for (int repeat = 0; repeat < 5; ++repeat) {
    pthread_t others[MAX_THREADS];
    int started = 0;
    double begin = now();
    while (started < threads - 1 && pthread_create(&others[started], 0, dot_pairs, &rounds) == 0)
      ++started;
    dot_pairs(&rounds);
    for (int i = 0; i < started; ++i)
      pthread_join(others[i], 0);
    double rate = 64.0 * 24 * (double)rounds * (started + 1) / (now() - begin);
    best = rate > best ? rate : best;
  }
  return best;
#else
  (void)threads;
  return 0;
#endif
}

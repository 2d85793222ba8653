/*===- peak.c - The most float32 operations this processor can do ---------===*
 *
 * Compile with -O2 -march=native -ffp-contract=fast. Every chain a = a * b + c waits for itself; there are enough
 * chains to keep all multiply-add units busy, and few enough that all stay in registers.
 *
 *===----------------------------------------------------------------------===*/

#include "peak.h"

#include <pthread.h>
#include <time.h>

#if defined(__AVX512F__)
enum { VECTOR_BYTES = 64, CHAINS = 24 };
#elif defined(__AVX__)
enum { VECTOR_BYTES = 32, CHAINS = 12 };
#elif defined(__aarch64__)
enum { VECTOR_BYTES = 16, CHAINS = 24 };
#else
enum { VECTOR_BYTES = 16, CHAINS = 12 };
#endif
enum { LANES = VECTOR_BYTES / 4, MAX_THREADS = 256 };
typedef float vector __attribute__((vector_size(VECTOR_BYTES)));

double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* Runs `rounds` multiply-adds in each chain; returns their sum so that they are not optimised away. */
static float multiply_add(long rounds) {
  volatile float factor = 0.999f, term = 1e-3f;
  vector b = (vector){0} + factor, c = (vector){0} + term;
  vector chain[CHAINS];
#pragma GCC unroll 24
  for (int i = 0; i < CHAINS; ++i)
    chain[i] = (vector){0} + (float)(i + 1);
  for (long round = 0; round < rounds; ++round) {
#pragma GCC unroll 24
    for (int i = 0; i < CHAINS; ++i)
      chain[i] = chain[i] * b + c;
  }
  vector sum = {0};
#pragma GCC unroll 24
  for (int i = 0; i < CHAINS; ++i)
    sum += chain[i];
  return sum[0];
}

static void *work(void *rounds) {
  volatile float result = multiply_add(*(long *)rounds);
  (void)result;
  return 0;
}

double peak_flops(int threads) {
  enum { ROUNDS = 1000000, REPEATS = 7 };
  long rounds = ROUNDS;
  double best = 0;
  if (threads > MAX_THREADS)
    threads = MAX_THREADS;
  for (int repeat = 0; repeat < REPEATS; ++repeat) {
    pthread_t others[MAX_THREADS];
    int started = 0;
    double begin = now();
    while (started < threads - 1 && pthread_create(&others[started], 0, work, &rounds) == 0)
      ++started;
    work(&rounds);
    for (int i = 0; i < started; ++i)
      pthread_join(others[i], 0);
    double flops = 2.0 * LANES * CHAINS * ROUNDS * (started + 1) / (now() - begin);
    best = flops > best ? flops : best;
  }
  return best;
}

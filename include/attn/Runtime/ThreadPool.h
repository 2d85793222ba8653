/*===- ThreadPool.h - Which threads run Halide's parallel loops -*- C -*-===*/

#ifndef ATTN_RUNTIME_THREADPOOL_H
#define ATTN_RUNTIME_THREADPOOL_H

#include "attn/Runtime/Runtime.h"
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* As in HalideRuntime.h. */
typedef int (*attn_halide_task)(void *context, int index, uint8_t *closure);
typedef int (*attn_halide_par_for)(void *context, attn_halide_task task, int first, int count, uint8_t *closure);

/* The most threads that may share a loop of the step that this thread runs; 0: all that there are. Waking one takes
 * longer than a short loop. */
extern __thread int attn_most_threads;

typedef struct {
  attn_halide_par_for par_for;
  int (*thread_count)(void); /* 0: not known yet */
} attn_halide_pool;

/* Halide's own threads, or those of a language's runtime. */
extern attn_halide_pool attn_halide_threads;

/* Runs a loop, in place of Halide's halide_do_par_for: by the program's own pool where it has one, otherwise by
 * Halide's, of whose threads only as many take part as may. */
int attn_share_loop(void *context, attn_halide_task task, int first, int count, uint8_t *closure);

/* How many threads share a long loop; 0: nobody knows. */
int attn_count_threads(void);

/* Lets at most `threads` (1 or more) share a loop. Halide itself starts more threads when asked for more, but those
 * that it has started help with every loop, whatever it is asked for later. */
void attn_use_threads(int threads);

/* attn_set_thread_pool. */
void attn_use_thread_pool(attn_parallel_for parallel_for, void *pool);

#ifdef __cplusplus
}
#endif

#endif /* ATTN_RUNTIME_THREADPOOL_H */

/*===- ThreadPool.h - Which threads run Halide's parallel loops -*- C -*-===*/

#ifndef ATTN_LIB_RUNTIME_THREADPOOL_H
#define ATTN_LIB_RUNTIME_THREADPOOL_H

#include "attn/Runtime/Runtime.h"
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* As in HalideRuntime.h. */
typedef int (*attn_halide_task)(void *context, int index, uint8_t *closure);
typedef int (*attn_halide_par_for)(void *context, attn_halide_task task, int first, int count, uint8_t *closure);
attn_halide_par_for halide_set_custom_do_par_for(attn_halide_par_for par_for);
int halide_default_do_par_for(void *context, attn_halide_task task, int first, int count, uint8_t *closure);

/* Lets at most `threads` (1 or more) of the runtime with these two functions share a loop. Halide itself starts more
 * threads when asked for more, but those that it has started help with every loop, whatever it is asked for later. */
void attn_use_threads(int threads, attn_halide_par_for (*set_par_for)(attn_halide_par_for),
                      attn_halide_par_for own_par_for);

/* attn_set_thread_pool for the Halide runtime with these two functions. */
void attn_use_thread_pool(attn_parallel_for parallel_for, void *pool,
                          attn_halide_par_for (*set_par_for)(attn_halide_par_for), attn_halide_par_for own_par_for);

#ifdef __cplusplus
}
#endif

#endif /* ATTN_LIB_RUNTIME_THREADPOOL_H */

/*===- Threads.c - Which threads kernels use ------------------------------===*
 *
 * In objects alone: they hold Halide's runtime. Kernels of the process that compiled them find it through the JIT.
 *
 *===----------------------------------------------------------------------===*/

#include "attn/Runtime/ThreadPool.h"

int halide_set_num_threads(int count);
int halide_get_num_threads(void);
int halide_default_do_par_for(void *context, attn_halide_task task, int first, int count, uint8_t *closure);

attn_halide_pool attn_halide_threads = {halide_default_do_par_for, halide_get_num_threads};

int halide_do_par_for(void *context, attn_halide_task task, int first, int count, uint8_t *closure) {
  return attn_share_loop(context, task, first, count, closure);
}

void attn_set_num_threads(int threads) {
  halide_set_num_threads(threads < 0 ? 0 : threads);
  attn_use_threads(halide_get_num_threads());
}

void attn_set_thread_pool(attn_parallel_for parallel_for, void *pool) { attn_use_thread_pool(parallel_for, pool); }

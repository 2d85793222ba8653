/*===- ThreadPool.c - Halide's parallel loops on a program's threads ------===*/

#include "ThreadPool.h"

static struct {
  attn_parallel_for parallel_for;
  void *pool;
} chosen;

/* A loop as a program's pool sees it. */
typedef struct {
  void *context;
  attn_halide_task task;
  uint8_t *closure;
  int first;
  int error; /* of the first task that failed */
} loop;

static void run_task(void *closure, int i) {
  loop *own = closure;
  if (__atomic_load_n(&own->error, __ATOMIC_RELAXED))
    return;
  int error = own->task(own->context, own->first + i, own->closure), none = 0;
  if (error)
    __atomic_compare_exchange_n(&own->error, &none, error, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

static int run_loop(void *context, attn_halide_task task, int first, int count, uint8_t *closure) {
  loop own = {context, task, closure, first, 0};
  chosen.parallel_for(chosen.pool, run_task, &own, count);
  return own.error;
}

void attn_use_thread_pool(attn_parallel_for parallel_for, void *pool,
                          attn_halide_par_for (*set_par_for)(attn_halide_par_for), attn_halide_par_for own_par_for) {
  chosen.parallel_for = parallel_for;
  chosen.pool = pool;
  set_par_for(parallel_for ? run_loop : own_par_for);
}

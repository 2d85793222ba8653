/*===- ThreadPool.c - Which threads run Halide's parallel loops -----------===*/

#include "ThreadPool.h"

static struct {
  attn_parallel_for parallel_for;
  void *pool;
  int threads; /* that may share a loop; 0: all that Halide's pool has */
} chosen;

/* Not static: see Error.c. */
__thread int attn_most_threads;

/* A loop's iterations, for whoever helps with it. */
typedef struct {
  void *context;
  attn_halide_task task;
  uint8_t *closure;
  int first, count;
  int64_t next; /* that nobody has begun */
  int error;    /* of the first that failed */
} loop;

static void run_task(void *closure, int i) {
  loop *own = closure;
  if (__atomic_load_n(&own->error, __ATOMIC_RELAXED))
    return;
  int error = own->task(own->context, own->first + i, own->closure), none = 0;
  if (error)
    __atomic_compare_exchange_n(&own->error, &none, error, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

/* What one of the threads does that share a loop. */
static int run_what_is_left(void *context, int thread, uint8_t *closure) {
  (void)context, (void)thread;
  loop *own = (loop *)closure;
  for (int64_t i; (i = __atomic_fetch_add(&own->next, 1, __ATOMIC_RELAXED)) < own->count;)
    run_task(own, (int)i);
  return 0;
}

/* The smaller of two numbers of which 0 is none. */
static int least(int a, int b) { return !a || (b && b < a) ? b : a; }

int attn_share_loop(attn_halide_par_for own_par_for, void *context, attn_halide_task task, int first, int count,
                    uint8_t *closure) {
  int threads = chosen.parallel_for ? attn_most_threads : least(chosen.threads, attn_most_threads);
  if (!threads && !chosen.parallel_for)
    return own_par_for(context, task, first, count, closure);
  loop own = {context, task, closure, first, count, 0, 0};
  threads = threads && threads < count ? threads : count;
  if (threads < 2)
    run_what_is_left(context, 0, (uint8_t *)&own);
  else if (chosen.parallel_for)
    chosen.parallel_for(chosen.pool, run_task, &own, count);
  else
    own_par_for(context, run_what_is_left, 0, threads, (uint8_t *)&own);
  return own.error;
}

void attn_use_threads(int threads) { chosen.threads = threads; }

void attn_use_thread_pool(attn_parallel_for parallel_for, void *pool) {
  chosen.parallel_for = parallel_for;
  chosen.pool = pool;
}

/*===- ThreadPool.c - Which threads run Halide's parallel loops -----------===*/

#include "attn/Runtime/ThreadPool.h"

static struct {
  attn_parallel_for parallel_for;
  void *pool;
  int threads; /* that may share a loop; 0: all that Halide's pool has */
} chosen;

/* Weak: objects have Halide's runtime (Threads.c), the JIT says later where it is. */
__attribute__((weak)) attn_halide_pool attn_halide_threads;

/* Not static: see Error.c. */
__thread int attn_most_threads;
__thread int attn_helper_number; /* of a thread that has helped with loops of others, from 1 on */

enum { MOST_SHARES = 64 };

/* Iterations that one thread begins with, in a line of the cache of their own. */
typedef struct __attribute__((aligned(64))) {
  int64_t next; /* that nobody has begun */
  int64_t end;
} share;

/* A loop's iterations, for whoever helps with it. */
typedef struct {
  void *context;
  attn_halide_task task;
  uint8_t *closure;
  int first;
  int error;         /* of the first that failed */
  const void *owner; /* the thread that runs the loop: what is local to it has this address */
  int share_count;
  share shares[MOST_SHARES];
} loop;

static void run_task(void *closure, int i) {
  loop *own = closure;
  if (__atomic_load_n(&own->error, __ATOMIC_RELAXED))
    return;
  int error = own->task(own->context, own->first + i, own->closure), none = 0;
  if (error)
    __atomic_compare_exchange_n(&own->error, &none, error, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

/* The share that this thread begins with, the same in all loops: what one step has written is read by the thread in
 * whose cache it is. */
static int own_share(const loop *own) {
  static int helpers;
  if (own->owner == &attn_most_threads)
    return 0;
  if (!attn_helper_number)
    attn_helper_number = __atomic_add_fetch(&helpers, 1, __ATOMIC_RELAXED);
  return 1 + (attn_helper_number - 1) % (own->share_count - 1);
}

/* What one of the threads does that share a loop: its own share, and what is left of the others'. */
static int run_shares(void *context, int index, uint8_t *closure) {
  (void)context, (void)index;
  loop *own = (loop *)closure;
  int begin = own_share(own);
  for (int number = 0; number < own->share_count; ++number) {
    share *each = &own->shares[(begin + number) % own->share_count];
    for (int64_t i; (i = __atomic_fetch_add(&each->next, 1, __ATOMIC_RELAXED)) < each->end;)
      run_task(own, (int)i);
  }
  return 0;
}

static void share_out(loop *own, int count, int threads) {
  own->share_count = threads < MOST_SHARES ? threads : MOST_SHARES;
  for (int64_t number = 0; number < own->share_count; ++number) {
    own->shares[number].next = number * count / own->share_count;
    own->shares[number].end = (number + 1) * count / own->share_count;
  }
}

/* How many threads a loop of `count` iterations has; 0: all that there are, which nobody knows yet. */
static int threads_for(int count) {
  int threads = chosen.parallel_for ? count : chosen.threads ? chosen.threads : attn_halide_threads.thread_count();
  if (attn_most_threads && attn_most_threads < threads)
    threads = attn_most_threads;
  return threads < count ? threads : count;
}

int attn_count_threads(void) {
  int threads = threads_for(INT32_MAX);
  return chosen.parallel_for && threads > 1 ? 0 : threads;
}

int attn_share_loop(void *context, attn_halide_task task, int first, int count, uint8_t *closure) {
  int threads = threads_for(count);
  if (!threads)
    return attn_halide_threads.par_for(context, task, first, count, closure);
  loop own;
  own.context = context;
  own.task = task;
  own.closure = closure;
  own.first = first;
  own.error = 0;
  own.owner = &attn_most_threads;
  if (threads < 2) {
    for (int i = 0; i < count; ++i)
      run_task(&own, i);
  } else if (chosen.parallel_for) {
    chosen.parallel_for(chosen.pool, run_task, &own, count);
  } else {
    share_out(&own, count, threads);
    attn_halide_threads.par_for(context, run_shares, 0, threads, (uint8_t *)&own);
  }
  return own.error;
}

void attn_use_threads(int threads) { chosen.threads = threads; }

void attn_use_thread_pool(attn_parallel_for parallel_for, void *pool) {
  chosen.parallel_for = parallel_for;
  chosen.pool = pool;
}

/*===- BlockSeries.c - Which blocks run side by side ----------------------===*
 *
 * Blocks that add to the same elements are a series: they run one after the other, so that results do not depend on
 * the number of threads. Those of other heads or batches are other series, each with pairs of its own, and a thread
 * takes a whole one: then it waits for nobody between steps, and reads pairs that it has written itself. Two threads
 * that shared each step took 1.12 times as long (8 heads of 2048 x 64, Zen 4).
 *
 * As many series run side by side as give every thread the same number of them. Where what is left is too little for
 * half of the threads, it runs one series after the other, and all threads share each step.
 *
 *===----------------------------------------------------------------------===*/

#include "Blocks.h"
#include "attn/Runtime/ThreadPool.h"

/* As many as would be shared evenly by more threads than most machines have. */
enum { MANY_SERIES = 32 };

int attn_is_apart(const attn_block_run *state, int64_t axis) {
  for (int64_t i = 0; i < state->blocks->tensor_count; ++i) {
    const attn_block_tensor *tensor = &state->blocks->tensors[i];
    int64_t found = tensor->is_pairs;
    for (int64_t j = 0; !found && j < state->whole[i]->dimensions; ++j)
      found = tensor->axes[j] == axis;
    if (!found)
      return 0;
  }
  return axis != state->blocks->axis_count - 1;
}

int64_t attn_count_series(const attn_block_run *state) {
  int64_t series = 1;
  for (int64_t axis = 0; axis < state->blocks->axis_count; ++axis)
    if (attn_is_apart(state, axis))
      series *= attn_blocks_along(state, axis);
  return series;
}

/* The most threads that are worth waking for all steps together; 0: all. */
static int64_t threads_for_blocks(const attn_block_run *state) {
  int64_t threads = 0;
  for (int64_t step = state->blocks->first; step < state->blocks->end; ++step) {
    int more = attn_threads_for_step(&state->run.program->steps[step], state->run.sizes);
    if (!more)
      return 0;
    threads += more;
  }
  return threads;
}

/* Half as many as a step has threads that are worth waking: each takes the time in which its steps begin. 64 decoders
 * of 10 keys: 158 us with one thread and 129 with two for one series, 170 and 92 for several (Zen 4). */
int64_t attn_least_series(const attn_block_run *state) {
  int64_t threads = threads_for_blocks(state), each = threads / (2 * (state->blocks->end - state->blocks->first));
  if (!threads || each > MANY_SERIES)
    return MANY_SERIES;
  return each ? each : 1;
}

/* Leaves the rows of series `number` within `state`. */
static void enter_series(attn_block_run *state, int64_t number) {
  for (int64_t axis = 0; axis < state->blocks->axis_count; ++axis) {
    int64_t extent = state->extents[axis], count = state->counts[axis];
    state->within[axis] = (attn_block_range){0, (int32_t)extent};
    if (!attn_is_apart(state, axis))
      continue;
    int64_t blocks = attn_blocks_along(state, axis), first = number % blocks * count;
    state->within[axis].first = (int32_t)first;
    state->within[axis].count = (int32_t)(extent - first < count ? extent - first : count);
    number /= blocks;
  }
}

/* What runs series. */
typedef struct {
  const attn_block_run *all;
  const attn_run_state *call;
  int most_threads;   /* for a step; 0: as many as it is worth */
  int error;          /* of the first series that failed beside others, */
  char message[1024]; /* which another thread has to tell */
} series_loop;

static int run_one(series_loop *loop, int64_t number) {
  const attn_block_run *all = loop->all;
  size_t axes = (size_t)all->blocks->axis_count;
  attn_block_run *state = attn_make_block_run(all->signature, loop->call, all->blocks);
  if (!state)
    return ATTN_ERROR_MEMORY;
  state->run.most_threads = loop->most_threads;
  memcpy(state->extents, all->extents, axes * sizeof *state->extents);
  memcpy(state->counts, all->counts, axes * sizeof *state->counts);
  enter_series(state, number);
  int error = attn_run_series(state);
  halide_free(0, state);
  return error;
}

static int run_beside(void *context, int number, uint8_t *closure) {
  series_loop *loop = (series_loop *)closure;
  (void)context;
  int error = run_one(loop, number), none = 0;
  if (error && __atomic_compare_exchange_n(&loop->error, &none, error, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
    snprintf(loop->message, sizeof loop->message, "%s", attn_last_error());
  return error;
}

/* How many of the series run side by side on so many threads; 0 threads: nobody knows how many there are. */
static int64_t count_beside(int64_t series, int64_t threads) {
  if (threads == 1)
    return 0;
  int64_t left = threads ? series % threads : 0;
  return left == 1 || 2 * left < threads ? series - left : series;
}

static int run_all_series(const attn_block_run *state, const attn_run_state *call) {
  int64_t series = attn_count_series(state), worth = threads_for_blocks(state);
  attn_most_threads = worth < INT32_MAX ? (int)worth : 0;
  int64_t threads = attn_count_threads(), beside = count_beside(series, threads);
  /* Threads that have no series of their own help the others, if they are of a pool in which they can. */
  series_loop loop = {state, call, threads && beside % threads == 0, 0, {0}};
  if (beside)
    attn_share_loop(0, run_beside, 0, (int)beside, (uint8_t *)&loop);
  attn_most_threads = 0;
  if (loop.error)
    return attn_fail(loop.error, "%s", loop.message);
  loop.most_threads = 0;
  int error = 0;
  for (int64_t number = beside; !error && number < series; ++number)
    error = run_one(&loop, number);
  return error;
}

static int find_extents(attn_block_run *state) {
  const attn_blocks *blocks = state->blocks;
  for (int64_t axis = 0; axis < blocks->axis_count; ++axis) {
    if (attn_evaluate(&blocks->sizes[axis], state->run.sizes, 0, &state->extents[axis]))
      return attn_fail(ATTN_ERROR_SIZE, "%s: %s would be too large", state->signature->name, blocks->sizes[axis].text);
    state->within[axis] = (attn_block_range){0, (int32_t)state->extents[axis]};
  }
  return 0;
}

static int is_empty(const attn_block_run *state) {
  for (int64_t axis = 0; axis < state->blocks->axis_count; ++axis)
    if (!state->extents[axis])
      return 1;
  return 0;
}

/* Chooses blocks and runs them. */
static int choose_and_run(attn_block_run *state, const attn_run_state *call) {
  int error = find_extents(state);
  if (error)
    return error;
  if (!call->program->device && is_empty(state)) {
    attn_clear_outputs(state);
    return 0;
  }
  error = attn_choose_counts(state);
  if (error)
    return error;
  return call->program->device ? attn_run_series(state) : run_all_series(state, call);
}

int attn_run_blocks(const attn_signature *signature, const attn_run_state *call, const attn_blocks *blocks) {
  attn_block_run *state = attn_make_block_run(signature, call, blocks);
  if (!state)
    return ATTN_ERROR_MEMORY;
  int error = choose_and_run(state, call);
  halide_free(0, state);
  return error;
}

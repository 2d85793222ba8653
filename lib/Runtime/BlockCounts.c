/*===- BlockCounts.c - How many rows a block has ---------------------------===*
 *
 * A block computes all keys that some row of it needs for all of its rows: of 512 rows under a causal mask, 1.8 times
 * as many pairs as 8 blocks of 64. And where rows need few of the keys, as in a window, there is room for more of them.
 * So blocks grow for as long as there is room and they do not compute much more than small ones do; then they have rows
 * of several heads, for each step takes its time to begin. Where rows need many keys, a block has some of these, if its
 * steps can do with them: for few rows they would take long.
 *
 *===----------------------------------------------------------------------===*/

#include "Blocks.h"

/* Bytes for a block of all pairs together: they stay in the second cache or, at worst, in a core's share of the third.
 */
enum { ROOM = 13 << 18 };

/* The same on a device: enough for each of its processors to have work. */
enum { DEVICE_ROOM = 64 << 20 };

/* Rows that blocks begin to grow from: fewer take long for what they compute. */
enum { FEW_ROWS = 64 };

/* Keys of a block whose rows have more: where they are cut, they leave room for more rows. */
enum { MANY_KEYS = 1024 };

/* What blocks need. */
typedef struct {
  int64_t keys;  /* of one, the most */
  int64_t pairs; /* of all: rows times keys */
} block_needs;

static int64_t key_axis(const attn_block_run *state) { return state->blocks->axis_count - 1; }

static int64_t room(const attn_block_run *state) { return state->run.program->device ? DEVICE_ROOM : ROOM; }

/* At most `most` along an axis, in blocks of nearly the same size. */
static void cut(attn_block_run *state, int64_t axis, int64_t most) {
  int64_t extent = state->extents[axis], blocks = (extent + most - 1) / most;
  state->counts[axis] = blocks ? (extent + blocks - 1) / blocks : 0;
}

static int is_whole(const attn_block_run *state, int64_t axis) { return state->counts[axis] >= state->extents[axis]; }

/* Gives blocks room for the keys that they need, or for some of these. */
static void reserve_keys(attn_block_run *state, int64_t keys) {
  state->counts[key_axis(state)] = state->blocks->cuts_keys && keys > MANY_KEYS ? MANY_KEYS : keys;
}

/* Lets blocks have as many of the keys that they need as there is room for, once they have their rows. */
static void cut_keys(attn_block_run *state, int64_t keys) {
  int64_t *count = &state->counts[key_axis(state)];
  *count = keys;
  int64_t bytes = attn_block_bytes(state), blocks = (bytes + room(state) - 1) / room(state);
  if (state->blocks->cuts_keys && blocks > 1)
    *count = (keys + blocks - 1) / blocks;
}

/* As many rows as there is room for, whatever keys they need: the innermost first. */
static void fill_room(attn_block_run *state) {
  for (int64_t axis = key_axis(state) - 1; axis >= 0; --axis) {
    int64_t most = room(state) / attn_block_bytes(state);
    cut(state, axis, most < 1 ? 1 : most);
    if (!is_whole(state, axis))
      break;
  }
}

static int add_needs(attn_block_run *state, void *context) {
  block_needs *needs = context;
  int error = attn_find_keys(state);
  int64_t rows = 1, keys = state->ranges[key_axis(state)].count;
  for (int64_t axis = 0; axis < key_axis(state); ++axis)
    rows *= state->ranges[axis].count;
  if (keys > 0)
    needs->pairs += rows * keys;
  if (keys > needs->keys)
    needs->keys = keys;
  return error;
}

/* Whether the step that finds a block's keys asks where it is along `axis`. */
static int changes_keys(const attn_block_run *state, int64_t axis) {
  const attn_variant *find = state->run.program->steps[state->blocks->first].variants;
  int64_t first = attn_tensor_and_size_count(&state->run) + 2 * axis;
  for (int64_t i = 0; i < find->argument_count; ++i)
    if (find->arguments[i] == first || find->arguments[i] == first + 1)
      return 1;
  return 0;
}

/* What blocks of these counts need, for which it makes room. Where all blocks along an axis, such as that of the heads,
 * need the same keys, it looks at one of them. */
static int measure(attn_block_run *state, block_needs *needs) {
  int64_t repeated = 1;
  *needs = (block_needs){0, 0};
  for (int64_t axis = 0; axis < key_axis(state); ++axis)
    if (!changes_keys(state, axis)) {
      repeated *= state->within[axis].count;
      state->within[axis].count = 1;
    }
  int error = attn_visit_blocks(state, add_needs, needs);
  for (int64_t axis = 0; axis < key_axis(state); ++axis)
    state->within[axis].count = (int32_t)state->extents[axis];
  needs->pairs *= repeated;
  reserve_keys(state, needs->keys);
  return error;
}

/* Few rows of the innermost axis, fewer where there is no room for them. */
static int begin(attn_block_run *state, block_needs *needs) {
  int64_t axis = key_axis(state) - 1, most = FEW_ROWS;
  for (;;) {
    cut(state, axis, most);
    int error = measure(state, needs);
    int64_t bytes = attn_block_bytes(state);
    if (error || bytes <= room(state) || most == 1)
      return error;
    most = most * room(state) / bytes;
    if (most < 1)
      most = 1;
  }
}

/* More rows along `axis` by a half, or as many as make one block less. */
static void enlarge(attn_block_run *state, int64_t axis) {
  int64_t rows = state->counts[axis], extent = state->extents[axis], fewer = attn_blocks_along(state, axis) - 1;
  cut(state, axis, rows + rows / 2);
  if (state->counts[axis] == rows)
    state->counts[axis] = (extent + fewer - 1) / fewer;
}

/* Lets blocks, which have `needs`, have more rows along `axis` while there is room and they need few pairs more than
 * `least`. */
static int grow(attn_block_run *state, int64_t axis, int64_t least, block_needs *needs) {
  while (!is_whole(state, axis)) {
    int64_t rows = state->counts[axis];
    block_needs larger;
    enlarge(state, axis);
    int error = measure(state, &larger);
    if (error)
      return error;
    if (attn_block_bytes(state) > room(state) || larger.pairs > least + least / 10) {
      state->counts[axis] = rows;
      return 0;
    }
    *needs = larger;
  }
  return 0;
}

/* Lets blocks have fewer rows that are apart, so that there are at least as many series as threads may want. A device
 * has none, and gets blocks without rows. */
static void share_out(attn_block_run *state) {
  if (state->run.program->device)
    return;
  int64_t series = attn_count_series(state), least = attn_least_series(state);
  for (int64_t axis = 0; axis < key_axis(state) && series < least; ++axis) {
    if (!attn_is_apart(state, axis))
      continue;
    int64_t others = series / attn_blocks_along(state, axis), blocks = (least + others - 1) / others;
    cut(state, axis, blocks < state->extents[axis] ? state->extents[axis] / blocks : 1);
    series = others * attn_blocks_along(state, axis);
  }
}

int attn_choose_counts(attn_block_run *state) {
  int64_t innermost = key_axis(state) - 1;
  for (int64_t axis = 0; axis <= innermost; ++axis)
    state->counts[axis] = 1;
  block_needs needs = {state->extents[key_axis(state)], 0};
  reserve_keys(state, needs.keys);
  fill_room(state);
  int error = 0, has_few_rows = is_whole(state, innermost) && state->counts[innermost] < 2 * FEW_ROWS;
  if (state->blocks->finds_keys && !has_few_rows) {
    for (int64_t axis = 0; axis < innermost; ++axis)
      state->counts[axis] = 1;
    error = begin(state, &needs);
    int64_t least = needs.pairs;
    for (int64_t axis = innermost; !error && axis >= 0; --axis)
      error = grow(state, axis, least, &needs);
  }
  share_out(state);
  cut_keys(state, needs.keys);
  return error;
}

/*===- Blocks.c - Steps that run for one block of rows after the other ----===*
 *
 * Tensors with an element for each query and key are never stored as a whole: there is a block of them, for some rows
 * (BlockCounts.c). The steps of a program that write and read them run for one block, then for the next. To them a
 * block of an output is a tensor whose indices begin where the block does; pairs are those of the block, counted from
 * its first row and key. On a device outputs are whole: steps are told which part is theirs, and what is added first
 * takes the place of what was there. So all blocks are run there, and one where there are none.
 *
 * Which blocks follow one another, and which run side by side, is in BlockSeries.c.
 *
 *===----------------------------------------------------------------------===*/

#include "Blocks.h"

/* Rows of a block lie this many elements further apart than a multiple of it, so that those of a column do not want the
 * same place in a cache. */
enum { ROW_PADDING = 16 };

/* Keys that are looked at together for whether some row sees them, and those that a gap between seen ones has at
 * least: for few, steps take longer to begin than what they leave out. */
enum { KEYS_AT_ONCE = 256, LEAST_GAP = 64 };

static const attn_device *device_of(const attn_block_run *state) { return state->run.program->device; }

/* Whether steps get a buffer of the present block alone. */
static int is_cut(const attn_block_run *state, const attn_block_tensor *tensor) {
  return tensor->is_pairs || !device_of(state);
}

static int64_t element_bytes(const attn_halide_buffer *buffer) { return buffer->type_bits / 8; }

/* The dimension of a buffer that is dimension `i` of its tensor: the last of a tensor is the first of a buffer. */
static attn_halide_dimension *dimension_of(const attn_halide_buffer *buffer, int64_t i) {
  return &buffer->dimension[buffer->dimensions - 1 - i];
}

static void clear(const attn_halide_buffer *buffer, int32_t dimension, char *data) {
  if (dimension < 0) {
    memset(data, 0, (size_t)element_bytes(buffer));
    return;
  }
  const attn_halide_dimension *along = &buffer->dimension[dimension];
  if (dimension == 0 && along->stride == 1) {
    memset(data, 0, (size_t)(along->extent * element_bytes(buffer)));
    return;
  }
  for (int64_t i = 0; i < along->extent; ++i)
    clear(buffer, dimension - 1, data + i * along->stride * element_bytes(buffer));
}

/* No buffer on a device may be empty. */
static int64_t at_least_one(int64_t count) { return count ? count : 1; }

/* How many elements pairs have along dimension `i` of a block. */
static int64_t block_extent(const attn_block_run *state, const attn_block_tensor *tensor,
                            const attn_halide_buffer *pairs, int64_t i) {
  return tensor->axes[i] < 0 ? dimension_of(pairs, i)->extent : at_least_one(state->counts[tensor->axes[i]]);
}

static int64_t padded(int64_t keys) { return (keys + ROW_PADDING - 1) / ROW_PADDING * ROW_PADDING + ROW_PADDING; }

int64_t attn_block_elements(const attn_block_run *state, const attn_block_tensor *tensor,
                            const attn_halide_buffer *pairs) {
  int64_t elements = padded(block_extent(state, tensor, pairs, pairs->dimensions - 1));
  for (int64_t i = 0; i + 1 < pairs->dimensions; ++i)
    elements *= block_extent(state, tensor, pairs, i);
  return elements;
}

int64_t attn_block_bytes(const attn_block_run *state) {
  int64_t bytes = 0;
  for (int64_t i = 0; i < state->blocks->tensor_count; ++i)
    if (state->blocks->tensors[i].is_pairs)
      bytes += attn_block_elements(state, &state->blocks->tensors[i], state->whole[i]) * element_bytes(state->whole[i]);
  return bytes;
}

static int check_elements(const attn_block_run *state) {
  for (int64_t i = 0; i < state->blocks->tensor_count; ++i) {
    const attn_block_tensor *tensor = &state->blocks->tensors[i];
    if (tensor->is_pairs && attn_block_elements(state, tensor, state->whole[i]) > INT32_MAX)
      return attn_fail(ATTN_ERROR_SIZE, "%s: a row of %s would have more than %lld elements", state->signature->name,
                       state->run.program->intermediates[tensor->argument - state->run.argument_count].tensor.name,
                       (long long)INT32_MAX);
  }
  return 0;
}

/* Gives the buffers of pairs the shape of the largest block, one after the other in `memory`, if there is any. */
static void lay_out(const attn_block_run *state, char *memory) {
  for (int64_t i = 0; i < state->blocks->tensor_count; ++i) {
    const attn_block_tensor *tensor = &state->blocks->tensors[i];
    attn_halide_buffer *pairs = &state->buffers[i];
    if (!tensor->is_pairs)
      continue;
    int64_t stride = 1;
    for (int64_t j = pairs->dimensions - 1; j >= 0; --j) {
      int64_t extent = block_extent(state, tensor, state->whole[i], j);
      *dimension_of(pairs, j) = (attn_halide_dimension){0, (int32_t)extent, (int32_t)stride, 0};
      stride = j == pairs->dimensions - 1 ? padded(extent) : stride * extent;
    }
    pairs->host = memory;
    if (memory)
      memory += attn_block_elements(state, tensor, state->whole[i]) * element_bytes(pairs);
  }
}

/* Makes the buffers those of the present block. */
static void enter_block(const attn_block_run *state) {
  for (int64_t i = 0; i < state->blocks->tensor_count; ++i) {
    const attn_block_tensor *tensor = &state->blocks->tensors[i];
    const attn_halide_buffer *whole = state->whole[i];
    attn_halide_buffer *buffer = &state->buffers[i];
    if (!is_cut(state, tensor))
      continue;
    if (!tensor->is_pairs)
      buffer->host = whole->host;
    for (int64_t j = 0; j < whole->dimensions; ++j) {
      attn_halide_dimension *dimension = dimension_of(buffer, j);
      if (tensor->axes[j] < 0)
        continue;
      const attn_block_range *block = &state->ranges[tensor->axes[j]];
      dimension->extent = (int32_t)at_least_one(block->count);
      if (tensor->is_pairs)
        continue;
      dimension->minimum = block->first;
      buffer->host += (int64_t)block->first * dimension->stride * element_bytes(whole);
    }
  }
}

static int find_keys_among(attn_block_run *state, int64_t first, int64_t count) {
  const attn_blocks *blocks = state->blocks;
  attn_block_range *keys = &state->ranges[blocks->axis_count - 1];
  *keys = (attn_block_range){(int32_t)first, (int32_t)count};
  if (!blocks->finds_keys)
    return 0;
  int error = attn_run_step(state->signature, &state->run, &state->run.program->steps[blocks->first]);
  if (!error)
    *keys = (attn_block_range){state->keys[0], state->keys[1] - state->keys[0]};
  return error;
}

int attn_find_keys(attn_block_run *state) {
  return find_keys_among(state, 0, state->extents[state->blocks->axis_count - 1]);
}

static int run_steps(const attn_block_run *state) {
  const attn_blocks *blocks = state->blocks;
  int error = 0;
  enter_block(state);
  for (int64_t step = blocks->first + blocks->finds_keys; !error && step < blocks->end; ++step)
    error = attn_run_step(state->signature, &state->run, &state->run.program->steps[step]);
  return error;
}

/* Runs the steps for some keys, as many at a time as a block has. */
static int run_keys(attn_block_run *state, attn_block_range keys) {
  int64_t key = state->blocks->axis_count - 1;
  int error = 0;
  for (int64_t done = 0; !error && done < keys.count; done += state->counts[key]) {
    int64_t left = keys.count - done, count = left < state->counts[key] ? left : state->counts[key];
    state->ranges[key] = (attn_block_range){keys.first + (int32_t)done, (int32_t)count};
    error = run_steps(state);
  }
  return error;
}

/* Runs the steps for those of `keys` that some row sees: a look at a few of them after the other finds the gaps. */
static int run_seen_keys(attn_block_run *state, attn_block_range keys) {
  int64_t all = state->extents[state->blocks->axis_count - 1], end = (int64_t)keys.first + keys.count;
  attn_block_range seen = {0, 0};
  int error = 0;
  for (int64_t first = keys.first / KEYS_AT_ONCE * KEYS_AT_ONCE; !error && first < end; first += KEYS_AT_ONCE) {
    error = find_keys_among(state, first, first + KEYS_AT_ONCE < all ? KEYS_AT_ONCE : all - first);
    attn_block_range found = state->ranges[state->blocks->axis_count - 1];
    if (error || found.count <= 0)
      continue;
    if (seen.count && found.first - (seen.first + seen.count) >= LEAST_GAP) {
      error = run_keys(state, seen);
      seen.count = 0;
    }
    if (!seen.count)
      seen.first = found.first;
    seen.count = found.first + found.count - seen.first;
  }
  return error ? error : run_keys(state, seen);
}

/* Runs the steps for the keys that the rows need. */
static int run_block(attn_block_run *state, void *context) {
  (void)context;
  int error = attn_find_keys(state);
  if (error || device_of(state))
    return error ? error : run_steps(state);
  const attn_block_range keys = state->ranges[state->blocks->axis_count - 1];
  int may_have_gaps = state->blocks->searches_keys && state->blocks->cuts_keys && keys.count > 2 * KEYS_AT_ONCE;
  return may_have_gaps ? run_seen_keys(state, keys) : run_keys(state, keys);
}

int attn_visit_blocks(attn_block_run *state, int (*visit)(attn_block_run *, void *), void *context) {
  int64_t key = state->blocks->axis_count - 1;
  for (int64_t axis = 0; axis < key; ++axis)
    state->ranges[axis].first = state->within[axis].first;
  for (;;) {
    for (int64_t axis = 0; axis < key; ++axis) {
      int64_t left = (int64_t)state->within[axis].first + state->within[axis].count - state->ranges[axis].first;
      state->ranges[axis].count = (int32_t)(left < state->counts[axis] ? left : state->counts[axis]);
    }
    int error = visit(state, context);
    if (error)
      return error;
    int64_t axis = key - 1;
    for (; axis >= 0; --axis) {
      int64_t end = (int64_t)state->within[axis].first + state->within[axis].count;
      state->ranges[axis].first += (int32_t)state->counts[axis];
      if (state->ranges[axis].first < end)
        break;
      state->ranges[axis].first = state->within[axis].first;
    }
    if (axis < 0)
      return 0;
  }
}

/* On a device the first step that writes pairs makes room for them. */
static int run_on_device(attn_block_run *state) {
  const attn_blocks *blocks = state->blocks;
  lay_out(state, 0);
  int error = attn_visit_blocks(state, run_block, 0);
  for (int64_t i = 0; i < blocks->tensor_count; ++i)
    if (blocks->tensors[i].is_pairs)
      device_of(state)->free(0, &state->buffers[i]);
  return error;
}

void attn_clear_outputs(attn_block_run *state) {
  const attn_blocks *blocks = state->blocks;
  memcpy(state->ranges, state->within, (size_t)blocks->axis_count * sizeof *state->ranges);
  enter_block(state);
  for (int64_t i = 0; i < blocks->tensor_count; ++i)
    if (!blocks->tensors[i].is_pairs)
      clear(&state->buffers[i], state->buffers[i].dimensions - 1, state->buffers[i].host);
}

int attn_run_series(attn_block_run *state) {
  int error = check_elements(state);
  if (error)
    return error;
  if (device_of(state))
    return run_on_device(state);
  size_t bytes = (size_t)attn_block_bytes(state);
  char *memory = halide_malloc(0, bytes);
  if (!memory)
    return attn_fail(ATTN_ERROR_MEMORY, "%s: no memory for a block of %lld bytes", state->signature->name,
                     (long long)bytes);
  attn_clear_outputs(state);
  lay_out(state, memory);
  error = attn_visit_blocks(state, run_block, 0);
  halide_free(0, memory);
  return error;
}

/* Gives the steps of blocks what they get. */
static void set_arguments(attn_block_run *state) {
  const attn_blocks *blocks = state->blocks;
  void **arguments = state->run.arguments;
  void **axes = arguments + attn_tensor_and_size_count(&state->run);
  for (int64_t axis = 0; axis < blocks->axis_count; ++axis) {
    axes[2 * axis] = &state->ranges[axis].first;
    axes[2 * axis + 1] = &state->ranges[axis].count;
  }
  state->key_dimension = (attn_halide_dimension){0, 2, 1, 0};
  state->key_buffer = (attn_halide_buffer){0, 0, (char *)state->keys, 0, kDLInt, 32, 1, 1, &state->key_dimension, 0};
  axes[2 * state->run.axis_count] = &state->key_buffer;
  attn_halide_dimension *dimensions = state->dimensions;
  for (int64_t i = 0; i < blocks->tensor_count; ++i) {
    attn_halide_buffer *whole = arguments[blocks->tensors[i].argument];
    state->whole[i] = whole;
    state->buffers[i] = *whole;
    state->buffers[i].dimension = dimensions;
    memcpy(dimensions, whole->dimension, (size_t)whole->dimensions * sizeof *dimensions);
    dimensions += whole->dimensions;
    if (is_cut(state, &blocks->tensors[i]))
      arguments[blocks->tensors[i].argument] = &state->buffers[i];
  }
}

attn_block_run *attn_make_block_run(const attn_signature *signature, const attn_run_state *call,
                                    const attn_blocks *blocks) {
  size_t axes = (size_t)blocks->axis_count, tensors = (size_t)blocks->tensor_count, dimensions = 0;
  size_t pointers = (size_t)attn_pointer_count(call);
  for (size_t i = 0; i < tensors; ++i)
    dimensions += (size_t)((attn_halide_buffer *)call->arguments[blocks->tensors[i].argument])->dimensions;
  /* All arrays in one block of memory, the most aligned first. */
  attn_block_run *state = halide_malloc(0, sizeof *state + tensors * (sizeof *state->buffers + sizeof *state->whole) +
                                               2 * pointers * sizeof *state->run.arguments +
                                               axes * (2 * sizeof *state->extents + 2 * sizeof *state->ranges) +
                                               dimensions * sizeof *state->dimensions);
  if (!state) {
    attn_fail(ATTN_ERROR_MEMORY, "%s: out of memory", signature->name);
    return 0;
  }
  state->signature = signature;
  state->run = *call;
  state->blocks = blocks;
  state->buffers = (attn_halide_buffer *)(state + 1);
  state->whole = (attn_halide_buffer **)(state->buffers + tensors);
  state->run.arguments = (void **)(state->whole + tensors);
  state->run.selected = state->run.arguments + pointers;
  state->extents = (int64_t *)(state->run.selected + pointers);
  state->counts = state->extents + axes;
  state->within = (attn_block_range *)(state->counts + axes);
  state->ranges = state->within + axes;
  state->dimensions = (attn_halide_dimension *)(state->ranges + axes);
  memcpy(state->run.arguments, call->arguments, pointers * sizeof *call->arguments);
  set_arguments(state);
  return state;
}

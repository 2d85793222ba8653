/*===- Launch.c - A launch on a GPU in place of steps of a kernel ---------===*
 *
 * Kernels for tensor cores are images for several devices. What loads and launches them is Halide's runtime, as for its
 * own kernels: they have the same context, stream and errors.
 *
 *===----------------------------------------------------------------------===*/

#include "Program.h"

/* Whether the device has no smaller capability, and takes code of this kind. */
static int runs(const attn_image *image, int64_t major, int64_t minor) {
  int64_t capability = 10 * major + minor;
  if (image->kind == ATTN_IMAGE_EXACT_CUBIN)
    return image->capability == capability;
  return image->capability <= capability && (image->kind == ATTN_IMAGE_PTX || image->capability / 10 == major);
}

static int has_unit_stride(const attn_halide_buffer *buffer) {
  return buffer->dimension[0].stride == 1 || buffer->dimension[0].extent == 1;
}

static int is_for_call(const attn_launch *launch, void *const *arguments, const int64_t *sizes) {
  for (int64_t i = 0; i < launch->limit_count; ++i)
    if (!attn_is_within(&launch->limits[i], sizes))
      return 0;
  for (int64_t i = 0; i < launch->contiguous_count; ++i)
    if (!has_unit_stride(arguments[launch->contiguous[i]]))
      return 0;
  return 1;
}

/* The structure that a launch is given. */
typedef struct {
  _Alignas(64) char data[ATTN_MAX_LAUNCH_BYTES];
  size_t size;
} structure;

static void append(structure *all, const void *value, size_t bytes) {
  all->size = (all->size + bytes - 1) / bytes * bytes;
  memcpy(all->data + all->size, value, bytes);
  all->size += bytes;
}

static void append_tensor(structure *all, const attn_halide_buffer *buffer) {
  append(all, &buffer->device, sizeof buffer->device);
  for (int32_t i = buffer->dimensions; i-- > 0;) {
    int64_t stride = buffer->dimension[i].stride;
    append(all, &stride, sizeof stride);
  }
}

/* Where a device runs twice as many blocks at once, each tile's keys are shared by as many as it runs, but none has
 * fewer than two tiles of keys. */
static int64_t count_parts(const attn_launch *launch, const attn_tiling *tiling, int64_t blocks, int64_t keys) {
  enum { TILES = 2 };
  int64_t at_once = tiling->resident * launch->launcher->multiprocessors();
  int64_t tiles = (keys + tiling->keys - 1) / tiling->keys;
  if (blocks <= 0 || 2 * blocks > at_once || tiles < 2 * TILES)
    return 1;
  int64_t parts = at_once / blocks;
  int64_t each = (tiles + parts - 1) / parts;
  each = each < TILES ? TILES : each;
  return (tiles + each - 1) / each;
}

/* Whether there is a grid for a call with these sizes. */
static int find_grid(const attn_launch *launch, const int64_t *sizes, attn_grid *grid) {
  int64_t rows = 0, others = 0, keys = 0;
  if (attn_evaluate(&launch->rows, sizes, 0, &rows) || attn_evaluate(&launch->others, sizes, 0, &others) ||
      attn_evaluate(&launch->keys, sizes, 0, &keys) || rows > ATTN_MAX_EXTENT)
    return 0;
  grid->tiling = launch->tilings;
  while (grid->tiling->rows < rows && grid->tiling + 1 < launch->tilings + launch->tiling_count)
    ++grid->tiling;
  int64_t tiles = (rows + grid->tiling->rows - 1) / grid->tiling->rows;
  if (__builtin_mul_overflow(tiles, others, &grid->blocks) || grid->blocks > INT32_MAX)
    return 0;
  grid->parts = count_parts(launch, grid->tiling, grid->blocks, keys);
  grid->rows = rows * others;
  return 1;
}

int attn_find_launch(const attn_signature *signature, const attn_run_state *call, attn_grid *grid) {
  const attn_launch *launch = call->program->launch;
  grid->image = 0;
  if (!launch || !is_for_call(launch, call->arguments, call->sizes))
    return 0;
  int major = 0, minor = 0;
  attn_clear_error();
  if (call->program->device->capability(0, &major, &minor))
    return attn_device_error(signature, call->program->device, ATTN_ERROR_KERNEL);
  const attn_image *image = launch->images, *end = image + launch->image_count;
  while (image != end && !runs(image, major, minor))
    ++image;
  if (image != end && find_grid(launch, call->sizes, grid))
    grid->image = image;
  return 0;
}

/* The map of a tensor, or an error: rows begin at multiples of 16 bytes, and no dimension is one element many times. */
static int append_map(const attn_launch *launch, const attn_mapped_argument *argument, int64_t keys,
                      const attn_halide_buffer *buffer, structure *all) {
  enum { RANK = 5, BYTES = 2, ALIGNMENT = 16, COLUMNS = 64, MAP = 128 };
  uint64_t extents[RANK], strides[RANK - 1], last = ALIGNMENT;
  uint32_t box[RANK] = {COLUMNS, 1, 1, 1, 1};
  int error = buffer->device % ALIGNMENT != 0;
  for (int32_t i = 0; i < RANK; ++i) {
    const attn_halide_dimension *dimension = i < buffer->dimensions ? &buffer->dimension[i] : 0;
    extents[i] = dimension ? (uint64_t)dimension->extent : 1;
    int64_t stride = extents[i] > 1 ? (int64_t)dimension->stride * BYTES : (int64_t)last;
    error |= extents[i] == 0 || (i > 0 && (stride <= 0 || stride % ALIGNMENT != 0));
    if (i > 0)
      strides[i - 1] = last = (uint64_t)stride;
  }
  box[argument->axis] = (uint32_t)keys;
  memset(all->data + all->size, 0, MAP);
  if (!error)
    error = launch->launcher->tensor_map(all->data + all->size, buffer->device, extents, strides, box);
  all->size += MAP;
  return error;
}

static void append_maps(const attn_launch *launch, int64_t keys, void *const *arguments, structure *all) {
  enum { ALIGNMENT = 64 };
  int32_t are_valid = 1;
  all->size = (all->size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  for (int64_t i = 0; i < launch->map_count; ++i)
    are_valid &= !append_map(launch, &launch->maps[i], keys, arguments[launch->maps[i].number], all);
  append(all, &are_valid, sizeof are_valid);
}

static void pack(const attn_signature *signature, const attn_run_state *call, const attn_halide_buffer *states,
                 const attn_grid *grid, structure *all) {
  const attn_launch *launch = call->program->launch;
  all->size = 0;
  for (int64_t i = 0; i < launch->argument_count; ++i) {
    const attn_launch_argument *argument = &launch->arguments[i];
    if (argument->value_bytes)
      append(all, call->arguments[argument->number], (size_t)argument->value_bytes);
    else
      append_tensor(all, call->arguments[argument->number]);
  }
  for (int64_t i = 0; i < signature->size_count; ++i)
    append(all, call->arguments[signature->input_count + i], sizeof(int32_t));
  int32_t count = (int32_t)grid->parts;
  append(all, &states->device, sizeof states->device);
  append(all, &count, sizeof count);
  if (launch->map_count > 0)
    append_maps(launch, grid->tiling->keys, call->arguments, all);
}

/* What is read is copied where it is in the CPU's memory, what is written gets memory on the device. */
static int place(const attn_run_state *call) {
  const attn_launch *launch = call->program->launch;
  const attn_launcher *launcher = launch->launcher;
  int error = 0;
  for (int64_t i = 0; !error && i < launch->argument_count; ++i) {
    const attn_launch_argument *argument = &launch->arguments[i];
    void *buffer = call->arguments[argument->number];
    if (argument->is_written)
      error = launcher->allocate(0, buffer, launcher->interface());
    else if (!argument->value_bytes)
      error = launcher->copy_to_device(0, buffer, launcher->interface());
  }
  return error;
}

static int launch_function(const attn_launch *launch, const char *function, int64_t blocks, int64_t threads,
                           int64_t shared_bytes, structure *given) {
  const int8_t is_buffer[2] = {0, 0};
  const uint64_t types[2] = {0, 0};
  void *pointers[2] = {&given->data, 0};
  return launch->launcher->run(0, *launch->state, function, (int)blocks, 1, 1, (int)threads, 1, 1, (int)shared_bytes,
                               types, pointers, is_buffer);
}

/* What parts leave is in memory that Halide's runtime keeps for later calls in this stream: nobody waits for it. */
static int run_parts(const attn_signature *signature, const attn_run_state *call, const attn_grid *grid) {
  const attn_launch *launch = call->program->launch;
  int has_parts = grid->parts > 1;
  attn_halide_dimension extent = {0, (int32_t)(grid->parts * grid->rows * launch->state_size), 1, 0};
  attn_halide_buffer states = {0, 0, 0, 0, kDLFloat, 32, 1, 1, &extent, 0};
  int error = has_parts ? launch->launcher->allocate(0, &states, launch->launcher->interface()) : 0;
  structure given;
  if (!error) {
    pack(signature, call, &states, grid, &given);
    const attn_tiling *tiling = grid->tiling;
    error = launch_function(launch, tiling->function, grid->blocks * grid->parts, tiling->threads, tiling->shared_bytes,
                            &given);
  }
  if (!error && has_parts)
    error = launch_function(launch, launch->merge, grid->rows, launch->merging_threads, 0, &given);
  call->program->device->free(0, &states);
  return error;
}

static int run(const attn_signature *signature, const attn_run_state *call, const attn_grid *grid) {
  const attn_launch *launch = call->program->launch;
  int error = place(call);
  if (error)
    return error;
  error = launch->launcher->load(0, launch->state, grid->image->data, (int)grid->image->bytes);
  if (error)
    return error;
  error = run_parts(signature, call, grid);
  launch->launcher->release(0, *launch->state);
  for (int64_t i = 0; !error && i < launch->argument_count; ++i)
    if (launch->arguments[i].is_written) {
      attn_halide_buffer *written = call->arguments[launch->arguments[i].number];
      written->flags = (written->flags & ~(uint64_t)ATTN_HALIDE_HOST_DIRTY) | ATTN_HALIDE_DEVICE_DIRTY;
    }
  return error;
}

int attn_run_launch(const attn_signature *signature, const attn_run_state *call, const attn_grid *grid) {
  attn_clear_error();
  int error = run(signature, call, grid);
  int code = error == ATTN_HALIDE_OUT_OF_MEMORY ? ATTN_ERROR_MEMORY : ATTN_ERROR_KERNEL;
  return error ? attn_device_error(signature, call->program->device, code) : 0;
}

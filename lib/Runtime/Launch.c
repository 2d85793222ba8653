/*===- Launch.c - A launch on a GPU in place of a kernel's steps ----------===*
 *
 * Kernels for tensor cores are images for several devices. What loads and launches them is Halide's runtime, as for its
 * own kernels: they have the same context, stream and errors.
 *
 *===----------------------------------------------------------------------===*/

#include "HalideBuffer.h"
#include "Internal.h"

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
  for (int64_t i = 0; i < launch->limit_count; ++i) {
    int64_t size = 0;
    if (attn_evaluate(&launch->limits[i].size, sizes, 0, &size) || size > launch->limits[i].at_most)
      return 0;
  }
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

/* How many blocks and parts of keys a launch has, and in how much memory these leave states of rows. */
typedef struct {
  int64_t blocks; /* of each part */
  int64_t parts;
  int64_t rows; /* of all blocks */
  attn_halide_buffer states;
  attn_halide_dimension extent; /* of `states` */
} grid;

/* Where there are fewer blocks than multiprocessors, each tile's keys are shared by so many that a multiprocessor has
 * two of them, but none has fewer than two tiles of keys. */
static int64_t count_parts(const attn_launch *launch, int64_t blocks, int64_t keys) {
  enum { BLOCKS = 2, TILES = 2 };
  int64_t multiprocessors = launch->launcher->multiprocessors();
  int64_t tiles = (keys + launch->tile_keys - 1) / launch->tile_keys;
  if (blocks <= 0 || blocks >= multiprocessors || tiles < 2 * TILES)
    return 1;
  int64_t parts = BLOCKS * multiprocessors / blocks;
  int64_t each = (tiles + parts - 1) / parts;
  each = each < TILES ? TILES : each;
  return (tiles + each - 1) / each;
}

/* Whether there is a grid for a call with these sizes. */
static int find_grid(const attn_launch *launch, const int64_t *sizes, grid *grid) {
  int64_t rows = 0, others = 0, keys = 0;
  if (attn_evaluate(&launch->rows, sizes, 0, &rows) || attn_evaluate(&launch->others, sizes, 0, &others) ||
      attn_evaluate(&launch->keys, sizes, 0, &keys) || rows > ATTN_MAX_EXTENT)
    return 0;
  int64_t tiles = (rows + launch->tile_rows - 1) / launch->tile_rows;
  if (__builtin_mul_overflow(tiles, others, &grid->blocks) || grid->blocks > INT32_MAX)
    return 0;
  grid->parts = count_parts(launch, grid->blocks, keys);
  grid->rows = rows * others;
  grid->extent = (attn_halide_dimension){0, (int32_t)(grid->parts * grid->rows * launch->state_size), 1, 0};
  grid->states = (attn_halide_buffer){0, 0, 0, 0, kDLFloat, 32, 1, 1, &grid->extent, 0};
  return 1;
}

/* The map of a tensor, or an error: rows begin at multiples of 16 bytes, and no dimension is one element many times. */
static int append_map(const attn_launch *launch, const attn_mapped_input *input, const attn_halide_buffer *buffer,
                      structure *all) {
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
  box[input->axis] = (uint32_t)launch->tile_keys;
  memset(all->data + all->size, 0, MAP);
  if (!error)
    error = launch->launcher->tensor_map(all->data + all->size, buffer->device, extents, strides, box);
  all->size += MAP;
  return error;
}

static void append_maps(const attn_launch *launch, void *const *arguments, structure *all) {
  enum { ALIGNMENT = 64 };
  int32_t are_valid = 1;
  all->size = (all->size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  for (int64_t i = 0; i < launch->map_count; ++i)
    are_valid &= !append_map(launch, &launch->maps[i], arguments[launch->maps[i].input], all);
  append(all, &are_valid, sizeof are_valid);
}

static void pack(const attn_launch *launch, const attn_signature *signature, void *const *arguments, const grid *grid,
                 structure *all) {
  all->size = 0;
  int64_t first_output = signature->input_count + signature->size_count;
  for (int64_t i = 0; i < signature->input_count; ++i)
    if (signature->tensors[i].rank == 0)
      append(all, arguments[i], (size_t)attn_element_bytes(&signature->tensors[i]));
    else
      append_tensor(all, arguments[i]);
  for (int64_t i = 0; i < signature->output_count; ++i)
    append_tensor(all, arguments[first_output + i]);
  for (int64_t i = 0; i < signature->size_count; ++i)
    append(all, arguments[signature->input_count + i], sizeof(int32_t));
  int32_t parts = (int32_t)grid->parts;
  append(all, &grid->states.device, sizeof grid->states.device);
  append(all, &parts, sizeof parts);
  if (launch->map_count > 0)
    append_maps(launch, arguments, all);
}

/* Inputs that are in the CPU's memory are copied, outputs that are there get memory on the device. */
static int place(const attn_signature *signature, const attn_launcher *launcher, void *const *arguments) {
  int error = 0;
  for (int64_t i = 0; !error && i < signature->input_count; ++i)
    if (signature->tensors[i].rank > 0)
      error = launcher->copy_to_device(0, arguments[i], launcher->interface());
  for (int64_t i = 0; !error && i < signature->output_count; ++i)
    error = launcher->allocate(0, arguments[signature->input_count + signature->size_count + i], launcher->interface());
  return error;
}

static int launch_function(const attn_launch *launch, const char *function, int64_t blocks, int64_t shared_bytes,
                           structure *given) {
  const int8_t is_buffer[2] = {0, 0};
  const uint64_t types[2] = {0, 0};
  void *pointers[2] = {&given->data, 0};
  return launch->launcher->run(0, *launch->state, function, (int)blocks, 1, 1, (int)launch->threads, 1, 1,
                               (int)shared_bytes, types, pointers, is_buffer);
}

/* What parts leave is in memory that Halide's runtime keeps for later calls in this stream: nobody waits for it. */
static int run_parts(const attn_signature *signature, const attn_launch *launch, void *const *arguments, grid *grid) {
  int has_parts = grid->parts > 1;
  int error = has_parts ? launch->launcher->allocate(0, &grid->states, launch->launcher->interface()) : 0;
  structure given;
  if (!error) {
    pack(launch, signature, arguments, grid, &given);
    error = launch_function(launch, launch->function, grid->blocks * grid->parts, launch->shared_bytes, &given);
  }
  int64_t merging = (grid->rows + launch->merged_rows - 1) / launch->merged_rows;
  if (!error && has_parts)
    error = launch_function(launch, launch->merge, merging, 0, &given);
  return error;
}

static int run(const attn_signature *signature, const attn_program *program, const attn_image *image,
               void *const *arguments, grid *grid) {
  const attn_launch *launch = program->launch;
  const attn_launcher *launcher = launch->launcher;
  int error = place(signature, launcher, arguments);
  if (error)
    return error;
  error = launcher->load(0, launch->state, image->data, (int)image->bytes);
  if (error)
    return error;
  error = run_parts(signature, launch, arguments, grid);
  program->device->free(0, &grid->states);
  launcher->release(0, *launch->state);
  for (int64_t i = 0; !error && i < signature->output_count; ++i) {
    attn_halide_buffer *output = arguments[signature->input_count + signature->size_count + i];
    output->flags = (output->flags & ~(uint64_t)ATTN_HALIDE_HOST_DIRTY) | ATTN_HALIDE_DEVICE_DIRTY;
  }
  return error;
}

int attn_run_launch(const attn_signature *signature, const attn_program *program, void *const *arguments,
                    const int64_t *sizes, int *launched) {
  const attn_launch *launch = program->launch;
  if (!launch || !is_for_call(launch, arguments, sizes))
    return 0;
  int major = 0, minor = 0;
  grid grid;
  attn_clear_error();
  int error = program->device->capability(0, &major, &minor);
  const attn_image *image = launch->images, *end = image + launch->image_count;
  while (!error && image != end && !runs(image, major, minor))
    ++image;
  if (!error && image == end)
    return 0;
  if (!error && !find_grid(launch, sizes, &grid))
    return 0;
  if (!error)
    error = run(signature, program, image, arguments, &grid);
  *launched = 1;
  int code = error == ATTN_HALIDE_OUT_OF_MEMORY ? ATTN_ERROR_MEMORY : ATTN_ERROR_KERNEL;
  return error ? attn_device_error(signature, program->device, code) : 0;
}

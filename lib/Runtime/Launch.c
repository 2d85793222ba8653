/*===- Launch.c - One launch on a GPU in place of a kernel's steps --------===*
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
  for (int64_t i = 0; i < launch->row_count; ++i)
    if (!has_unit_stride(arguments[launch->rows[i]]))
      return 0;
  return 1;
}

/* The structure that a launch is given. */
typedef struct {
  union {
    uint64_t aligned;
    char bytes[ATTN_MAX_LAUNCH_BYTES];
  } data;
  size_t size;
} structure;

static void append(structure *all, const void *value, size_t bytes) {
  all->size = (all->size + bytes - 1) / bytes * bytes;
  memcpy(all->data.bytes + all->size, value, bytes);
  all->size += bytes;
}

static void append_tensor(structure *all, const attn_halide_buffer *buffer) {
  append(all, &buffer->device, sizeof buffer->device);
  for (int32_t i = buffer->dimensions; i-- > 0;) {
    int64_t stride = buffer->dimension[i].stride;
    append(all, &stride, sizeof stride);
  }
}

static void pack(const attn_signature *signature, void *const *arguments, structure *all) {
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

static int run(const attn_signature *signature, const attn_launch *launch, const attn_image *image,
               void *const *arguments, int64_t blocks) {
  const attn_launcher *launcher = launch->launcher;
  int error = place(signature, launcher, arguments);
  if (error)
    return error;
  error = launcher->load(0, launch->state, image->data, (int)image->bytes);
  if (error)
    return error;
  structure given;
  pack(signature, arguments, &given);
  const int8_t is_buffer[2] = {0, 0};
  const uint64_t types[2] = {0, 0};
  void *pointers[2] = {&given.data, 0};
  error = launcher->run(0, *launch->state, launch->function, (int)blocks, 1, 1, (int)launch->threads, 1, 1,
                        (int)launch->shared_bytes, types, pointers, is_buffer);
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
  int64_t blocks = 0;
  attn_clear_error();
  int error = program->device->capability(0, &major, &minor);
  const attn_image *image = launch->images, *end = image + launch->image_count;
  while (!error && image != end && !runs(image, major, minor))
    ++image;
  if (!error && image == end)
    return 0;
  if (!error && (attn_evaluate(&launch->blocks, sizes, 0, &blocks) || blocks > INT32_MAX))
    return 0;
  if (!error)
    error = run(signature, launch, image, arguments, blocks);
  *launched = 1;
  int code = error == ATTN_HALIDE_OUT_OF_MEMORY ? ATTN_ERROR_MEMORY : ATTN_ERROR_KERNEL;
  return error ? attn_device_error(signature, program->device, code) : 0;
}

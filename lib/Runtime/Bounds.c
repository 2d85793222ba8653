/*===- Bounds.c - Subscripts that depend on data --------------------------===*
 *
 * With --check-bounds there is a checking kernel for each kernel that reads a tensor where other tensors say. It gets
 * the same inputs, and finds the least and the greatest value of each such subscript. Here it is called, and a
 * subscript outside its dimension becomes an error.
 *
 *===----------------------------------------------------------------------===*/

#include "HalideBuffer.h"
#include "Internal.h"

/* "paged: k: dimension 0 (P) is 8, but its subscript in score is 9". */
static int compare(const attn_signature *signature, const attn_bound *bound, const int64_t *extremes,
                   const int64_t *sizes) {
  int64_t extent = 0;
  if (attn_evaluate(&bound->size, sizes, 0, &extent))
    return attn_fail(ATTN_ERROR_SIZE, "%s: %s: dimension %lld (%s) would be too large", signature->name, bound->tensor,
                     (long long)bound->dimension, bound->size.text);
  if (extremes[0] >= 0 && extremes[1] < extent)
    return 0;
  int constant = bound->size.length == 1 && bound->size.program[0].opcode == ATTN_PUSH_CONSTANT;
  return attn_fail(ATTN_ERROR_BOUNDS, "%s: %s: dimension %lld%s%s%s is %lld, but its subscript in %s is %lld",
                   signature->name, bound->tensor, (long long)bound->dimension, constant ? "" : " (",
                   constant ? "" : bound->size.text, constant ? "" : ")", (long long)extent, bound->statement,
                   (long long)(extremes[0] < 0 ? extremes[0] : extremes[1]));
}

/* One number, as an output of rank 0. */
static const attn_tensor number = {"subscript", kDLInt, 64, 0, 0, 0, 0};

/* The numbers that a GPU found are copied from it. */
static int fetch(const attn_signature *signature, const attn_device *device, attn_halide_buffer *buffers, size_t count,
                 int error) {
  for (size_t i = 0; i < count; ++i) {
    if (!error) {
      attn_clear_error();
      if (device->copy_to_host(0, &buffers[i]))
        error = attn_device_error(signature, device, ATTN_ERROR_KERNEL);
    }
    device->free(0, &buffers[i]);
  }
  return error;
}

int attn_check_bounds(const attn_signature *signature, const attn_bounds *bounds, const attn_place *place,
                      void *const *inputs, const int64_t *sizes) {
  size_t shared = (size_t)(signature->input_count + signature->size_count), count = 2 * (size_t)bounds->count;
  void **arguments = malloc((shared + count) * sizeof *arguments);
  attn_halide_buffer *buffers = malloc(count * sizeof *buffers);
  int64_t *found = malloc(count * sizeof *found);
  int error = 0;
  if (arguments && buffers && found) {
    memcpy(arguments, inputs, shared * sizeof *arguments);
    for (size_t i = 0; i < count; ++i) {
      buffers[i] = attn_halide_buffer_of(&number, (char *)&found[i], 0);
      arguments[shared + i] = &buffers[i];
    }
    error = attn_run(signature, bounds->programs, bounds->program_count, place, arguments, (int64_t)(shared + count),
                     sizes);
    if (place->device)
      error = fetch(signature, place->device, buffers, count, error);
    for (int64_t i = 0; !error && i < bounds->count; ++i)
      error = compare(signature, &bounds->bounds[i], &found[2 * i], sizes);
  } else {
    error = attn_fail(ATTN_ERROR_MEMORY, "%s: out of memory", signature->name);
  }
  free(arguments);
  free(buffers);
  free(found);
  return error;
}

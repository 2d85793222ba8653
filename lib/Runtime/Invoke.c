/*===- Invoke.c - A call, from its checks to its outputs ------------------===*
 *
 *   check → solve sizes → make buffers (pack what has no unit stride) → check subscripts → run → unpack
 *
 *===----------------------------------------------------------------------===*/

#include "Call.h"

/* The arrays of a call; on the stack where they are as small as usual. */
enum { STACK_TENSORS = 24, STACK_DIMENSIONS = 96, STACK_SIZES = 32 };

/* Checks what can be checked without sizes. A NULL scalar with a default is right. */
static int check_tensors(const attn_signature *signature, const DLTensor *const *tensors, int64_t count,
                         const attn_place *place) {
  for (int64_t i = 0; i < count; ++i) {
    if (!tensors[i] && signature->tensors[i].has_default)
      continue;
    int is_number = i < signature->input_count && signature->tensors[i].rank == 0;
    int error = attn_check_tensor(&signature->tensors[i], tensors[i], is_number ? 0 : place);
    if (error)
      return error;
  }
  return 0;
}

static int check_shapes(const attn_signature *signature, const DLTensor *const *tensors, int64_t count,
                        const int64_t *sizes) {
  for (int64_t i = 0; i < count; ++i) {
    int error = attn_check_shape(signature, i, tensors, sizes);
    if (error)
      return error;
  }
  return 0;
}

static int all_outputs_empty(const attn_signature *signature, const DLTensor *const *tensors) {
  for (int64_t i = signature->input_count; i < attn_tensor_count(signature); ++i)
    if (!attn_is_empty(tensors[i]))
      return 0;
  return 1;
}

static int invoke(const attn_signature *signature, const attn_bounds *bounds, const DLTensor *const *tensors,
                  attn_call *call) {
  int64_t count = attn_tensor_count(signature);
  call->place = attn_place_of(signature, tensors, count);
  int error = check_tensors(signature, tensors, count, &call->place);
  if (!error)
    error = attn_solve_sizes(signature, tensors, call->sizes);
  if (!error)
    error = check_shapes(signature, tensors, count, call->sizes);
  if (!error)
    error = attn_check_sizes(signature, call->sizes);
  if (!error)
    error = attn_check_overlap(signature, tensors);
  if (error || !signature->program_count || all_outputs_empty(signature, tensors))
    return error;
  if (call->place.device) {
    for (int64_t i = 0; i < count; ++i)
      call->buffers[i].device = 0;
    error = attn_open_device(signature, &call->place);
    if (error)
      return error;
  }
  error = attn_make_arguments(signature, tensors, call);
  if (!error && bounds)
    error = attn_check_bounds(signature, bounds, &call->place, call->arguments, call->sizes);
  if (!error)
    error = attn_run(signature, signature->programs, signature->program_count, &call->place, call->arguments,
                     count + signature->size_count, call->sizes);
  return attn_finish_arguments(signature, tensors, call, error);
}

static int invoke_small(const attn_signature *signature, const attn_bounds *bounds, const DLTensor *const *tensors) {
  void *arguments[STACK_TENSORS + STACK_SIZES];
  attn_halide_buffer buffers[STACK_TENSORS];
  attn_halide_dimension dimensions[STACK_DIMENSIONS];
  char *temporaries[STACK_TENSORS];
  int64_t sizes[STACK_SIZES];
  int32_t size_arguments[STACK_SIZES];
  attn_call call = {{kDLCPU, 0, 0}, arguments, buffers, dimensions, temporaries, sizes, size_arguments};
  for (int64_t i = 0; i < attn_tensor_count(signature); ++i)
    temporaries[i] = 0;
  return invoke(signature, bounds, tensors, &call);
}

static int invoke_large(const attn_signature *signature, const attn_bounds *bounds, const DLTensor *const *tensors,
                        size_t dimensions) {
  size_t count = (size_t)attn_tensor_count(signature), sizes = (size_t)signature->size_count;
  attn_call call;
  call.arguments = malloc((count + sizes) * sizeof *call.arguments);
  call.buffers = malloc(count * sizeof *call.buffers);
  call.dimensions = malloc((dimensions + 1) * sizeof *call.dimensions);
  call.temporaries = calloc(count, sizeof *call.temporaries);
  call.sizes = malloc((sizes + 1) * sizeof *call.sizes);
  call.size_arguments = malloc((sizes + 1) * sizeof *call.size_arguments);
  int error;
  if (call.arguments && call.buffers && call.dimensions && call.temporaries && call.sizes && call.size_arguments)
    error = invoke(signature, bounds, tensors, &call);
  else
    error = attn_fail(ATTN_ERROR_MEMORY, "%s: out of memory", signature->name);
  free(call.arguments);
  free(call.buffers);
  free(call.dimensions);
  free(call.temporaries);
  free(call.sizes);
  free(call.size_arguments);
  return error;
}

int attn_invoke(const attn_signature *signature, const DLTensor *const *tensors) {
  return attn_invoke_checked(signature, 0, tensors);
}

int attn_invoke_checked(const attn_signature *signature, const attn_bounds *bounds, const DLTensor *const *tensors) {
  int64_t dimensions = 0;
  for (int64_t i = 0; i < attn_tensor_count(signature); ++i)
    dimensions += signature->tensors[i].rank;
  if (attn_tensor_count(signature) <= STACK_TENSORS && dimensions <= STACK_DIMENSIONS &&
      signature->size_count <= STACK_SIZES)
    return invoke_small(signature, bounds, tensors);
  return invoke_large(signature, bounds, tensors, (size_t)dimensions);
}

int attn_output_shapes(const attn_signature *signature, const DLTensor *const *inputs, int64_t *shapes) {
  int64_t stack_sizes[STACK_SIZES];
  int64_t *sizes = stack_sizes;
  if (signature->size_count > STACK_SIZES && !(sizes = malloc((size_t)signature->size_count * sizeof *sizes)))
    return attn_fail(ATTN_ERROR_MEMORY, "%s: out of memory", signature->name);
  attn_place place = attn_place_of(signature, inputs, signature->input_count);
  int error = check_tensors(signature, inputs, signature->input_count, &place);
  if (!error)
    error = attn_solve_sizes(signature, inputs, sizes);
  if (!error)
    error = check_shapes(signature, inputs, signature->input_count, sizes);
  if (!error)
    error = attn_check_sizes(signature, sizes);
  for (int64_t i = signature->input_count; !error && i < attn_tensor_count(signature); ++i) {
    const attn_tensor *output = &signature->tensors[i];
    for (int64_t j = 0; !error && j < output->rank; ++j) {
      int64_t extent = 0;
      if (attn_evaluate(&output->shape[j], sizes, 0, &extent) || extent < 0 || extent > ATTN_MAX_EXTENT)
        error = attn_fail(ATTN_ERROR_SIZE, "%s: dimension %lld (%s) would be negative or too large", output->name,
                          (long long)j, output->shape[j].text);
      *shapes++ = extent;
    }
  }
  if (sizes != stack_sizes)
    free(sizes);
  return error;
}

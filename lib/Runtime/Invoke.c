/*===- Invoke.c - From DLTensors to the arguments of a kernel -------------===*
 *
 *   check → solve sizes → make buffers (pack what has no unit stride) → check subscripts → run → unpack
 *
 * The kernel wants a unit stride in the last dimension, and dimensions that span less than 2^31 elements. An input that
 * lacks them is copied into row-major order first; an output is computed in row-major order and copied out.
 *
 *===----------------------------------------------------------------------===*/

#include "HalideBuffer.h"
#include "Internal.h"

/* The arrays of a call; on the stack where they are as small as usual. */
enum { STACK_TENSORS = 24, STACK_DIMENSIONS = 96, STACK_SIZES = 32 };

typedef struct {
  attn_place place;
  void **arguments;                  /* inputs, sizes, outputs */
  attn_halide_buffer *buffers;       /* one a tensor */
  attn_halide_dimension *dimensions; /* of all buffers */
  char **temporaries;                /* one a tensor, mostly NULL */
  int64_t *sizes;                    /* in the signature's order */
  int32_t *size_arguments;           /* in the kernel's order */
} frame;

static int64_t tensor_count(const attn_signature *signature) {
  return signature->input_count + signature->output_count;
}

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
  for (int64_t i = signature->input_count; i < tensor_count(signature); ++i)
    if (!attn_is_empty(tensors[i]))
      return 0;
  return 1;
}

/* Whether the kernel, which counts elements in 32 bits, can use the tensor as it lies. On a GPU any stride will do;
 * what is copied to it must be in row-major order. */
static int is_direct(const DLTensor *tensor, const attn_place *place) {
  int64_t row_major = 1;
  for (int64_t i = tensor->ndim - 1; i >= 0; --i) {
    int64_t stride = attn_stride(tensor, i), span = 0;
    if (!place->device && i == tensor->ndim - 1 && tensor->shape[i] > 1 && stride != 1)
      return 0;
    if (attn_copies(place) && tensor->shape[i] > 1 && stride != row_major)
      return 0;
    row_major *= tensor->shape[i];
    if (__builtin_mul_overflow(tensor->shape[i], stride, &span) || span > INT32_MAX || span < -INT32_MAX)
      return 0;
  }
  return 1;
}

/* Memory for a row-major copy of the tensor in *temporary. An empty tensor gets one row of zeros: its data does not
 * matter, but must not be NULL. */
static int allocate(const attn_tensor *expected, const DLTensor *tensor, int empty, char **temporary) {
  int64_t elements = 1;
  if (empty) {
    elements = tensor->shape[tensor->ndim - 1];
    elements = elements ? elements : 1;
  } else {
    for (int64_t i = 0; i < tensor->ndim; ++i)
      elements = elements > INT32_MAX ? elements : elements * tensor->shape[i];
    if (elements > INT32_MAX)
      return attn_fail(ATTN_ERROR_SIZE, "%s: has more than %lld elements", expected->name, (long long)INT32_MAX);
  }
  *temporary = calloc((size_t)elements, (size_t)attn_element_bytes(expected));
  if (!*temporary)
    return attn_fail(ATTN_ERROR_MEMORY, "%s: no memory for a copy of %lld elements", expected->name,
                     (long long)elements);
  return 0;
}

/* Gives Halide the memory of a tensor on a GPU. */
static int wrap(const attn_signature *signature, const attn_tensor *expected, const attn_place *place,
                const DLTensor *tensor, attn_halide_buffer *buffer) {
  int is_opencl = place->device->type == kDLOpenCL;
  /* A part of OpenCL's memory begins at its first element. */
  for (int64_t i = 0; is_opencl && i < tensor->ndim; ++i)
    if (attn_stride(tensor, i) < 0)
      return attn_fail(ATTN_ERROR_SIZE,
                       "%s: dimension %lld (%s) has the stride %lld, but strides in OpenCL's memory must "
                       "not be negative",
                       expected->name, (long long)i, expected->shape[i].text, (long long)attn_stride(tensor, i));
  attn_clear_error();
  if (place->device->wrap(0, buffer, (uint64_t)(uintptr_t)(is_opencl ? tensor->data : attn_data(tensor))))
    return attn_device_error(signature, place->device, ATTN_ERROR_KERNEL);
  /* Halide's handle is an offset in bytes and OpenCL's own. */
  if (is_opencl)
    *(uint64_t *)(uintptr_t)buffer->device = tensor->byte_offset;
  return 0;
}

/* Describes tensor `index` to Halide, whose dimension 0 is the last one of the tensor. */
static int make_buffer(const attn_signature *signature, const DLTensor *const *tensors, int64_t index,
                       attn_halide_dimension *dimensions, frame *call) {
  const attn_tensor *expected = &signature->tensors[index];
  const DLTensor *tensor = tensors[index];
  int empty = attn_is_empty(tensor), input = index < signature->input_count;
  int direct = !empty && is_direct(tensor, &call->place);
  int wrapped = direct && call->place.device && !attn_copies(&call->place);
  char **temporary = &call->temporaries[index];
  if (!direct && !empty && call->place.device && !attn_copies(&call->place))
    return attn_fail(ATTN_ERROR_SIZE, "%s: its elements are more than %lld apart", expected->name,
                     (long long)INT32_MAX);
  if (!direct) {
    int error = allocate(expected, tensor, empty, temporary);
    if (error)
      return error;
    if (!empty && input)
      attn_pack(tensor, attn_element_bytes(expected), *temporary);
  }
  int64_t row_major = 1;
  for (int64_t i = tensor->ndim - 1; i >= 0; --i) {
    /* An empty dimension looks as if it had one element: what clamps subscripts need not think of empty ranges. All
     * that is written to an empty output lands in the one row that it gets. */
    int64_t extent = tensor->shape[i] ? tensor->shape[i] : 1;
    int64_t last = i == tensor->ndim - 1;
    int64_t stride = last && !wrapped ? 1 : empty ? 0 : direct ? attn_stride(tensor, i) : row_major;
    if (attn_copies(&call->place) && !empty)
      stride = row_major; /* also where there is one element and a stride means nothing */
    attn_halide_dimension dimension = {0, (int32_t)extent, (int32_t)stride, 0};
    dimensions[tensor->ndim - 1 - i] = dimension;
    if (!empty)
      row_major *= extent;
  }
  attn_halide_buffer *buffer = &call->buffers[index];
  *buffer = attn_halide_buffer_of(expected, wrapped ? 0 : direct ? attn_data(tensor) : *temporary, dimensions);
  if (wrapped)
    return wrap(signature, expected, &call->place, tensor, buffer);
  if (call->place.device && input)
    buffer->flags = ATTN_HALIDE_HOST_DIRTY;
  return 0;
}

/* After a run on a GPU: fetches the outputs that were copied, and forgets what the device has of the buffers. */
static int finish_on_device(const attn_signature *signature, const DLTensor *const *tensors, frame *call, int error) {
  const attn_device *device = call->place.device;
  for (int64_t i = 0; i < tensor_count(signature); ++i) {
    attn_halide_buffer *buffer = &call->buffers[i];
    if (!buffer->device)
      continue;
    if (!buffer->host) {
      device->detach(0, buffer);
      continue;
    }
    if (!error && i >= signature->input_count && !attn_is_empty(tensors[i])) {
      attn_clear_error();
      if (device->copy_to_host(0, buffer))
        error = attn_device_error(signature, device, ATTN_ERROR_KERNEL);
    }
    device->free(0, buffer);
  }
  return error;
}

static int make_arguments(const attn_signature *signature, const DLTensor *const *tensors, frame *call) {
  attn_halide_dimension *dimensions = call->dimensions;
  void **argument = call->arguments;
  for (int64_t i = 0; i < tensor_count(signature); ++i) {
    const attn_tensor *expected = &signature->tensors[i];
    if (i == signature->input_count)
      for (int64_t j = 0; j < signature->size_count; ++j)
        *argument++ = &call->size_arguments[j];
    if (i < signature->input_count && expected->rank == 0) {
      *argument++ = tensors[i] ? (void *)attn_data(tensors[i]) : (void *)(uintptr_t)&expected->default_bits;
      continue;
    }
    int error = make_buffer(signature, tensors, i, dimensions, call);
    if (error)
      return error;
    *argument++ = &call->buffers[i];
    dimensions += expected->rank;
  }
  for (int64_t j = 0; j < signature->size_count; ++j)
    call->size_arguments[j] = (int32_t)call->sizes[signature->size_order[j]];
  return 0;
}

static int invoke(const attn_signature *signature, const attn_bounds *bounds, const DLTensor *const *tensors,
                  frame *call) {
  int64_t count = tensor_count(signature);
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
  error = make_arguments(signature, tensors, call);
  if (!error && bounds)
    error = attn_check_bounds(signature, bounds, &call->place, call->arguments, call->sizes);
  if (!error)
    error = attn_run(signature, signature->programs, signature->program_count, &call->place, call->arguments,
                     count + signature->size_count, call->sizes);
  if (call->place.device)
    error = finish_on_device(signature, tensors, call, error);
  for (int64_t i = 0; i < count; ++i) {
    if (!error && i >= signature->input_count && call->temporaries[i] && !attn_is_empty(tensors[i]))
      attn_unpack(call->temporaries[i], attn_element_bytes(&signature->tensors[i]), tensors[i]);
    free(call->temporaries[i]);
  }
  return error;
}

static int invoke_small(const attn_signature *signature, const attn_bounds *bounds, const DLTensor *const *tensors) {
  void *arguments[STACK_TENSORS + STACK_SIZES];
  attn_halide_buffer buffers[STACK_TENSORS];
  attn_halide_dimension dimensions[STACK_DIMENSIONS];
  char *temporaries[STACK_TENSORS];
  int64_t sizes[STACK_SIZES];
  int32_t size_arguments[STACK_SIZES];
  frame call = {{kDLCPU, 0, 0}, arguments, buffers, dimensions, temporaries, sizes, size_arguments};
  for (int64_t i = 0; i < tensor_count(signature); ++i)
    temporaries[i] = 0;
  return invoke(signature, bounds, tensors, &call);
}

static int invoke_large(const attn_signature *signature, const attn_bounds *bounds, const DLTensor *const *tensors,
                        size_t dimensions) {
  size_t count = (size_t)tensor_count(signature), sizes = (size_t)signature->size_count;
  frame call;
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
  for (int64_t i = 0; i < tensor_count(signature); ++i)
    dimensions += signature->tensors[i].rank;
  if (tensor_count(signature) <= STACK_TENSORS && dimensions <= STACK_DIMENSIONS &&
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
  for (int64_t i = signature->input_count; !error && i < tensor_count(signature); ++i) {
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

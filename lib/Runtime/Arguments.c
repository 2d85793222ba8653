/*===- Arguments.c - From DLTensors to the arguments of a kernel ----------===*
 *
 * The kernel wants a unit stride in the last dimension, and dimensions that span less than 2^31 elements. An input that
 * lacks them is copied into row-major order first; an output is computed in row-major order and copied out.
 *
 *===----------------------------------------------------------------------===*/

#include "Call.h"

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
                       attn_halide_dimension *dimensions, attn_call *call) {
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

int attn_make_arguments(const attn_signature *signature, const DLTensor *const *tensors, attn_call *call) {
  attn_halide_dimension *dimensions = call->dimensions;
  void **argument = call->arguments;
  for (int64_t i = 0; i < attn_tensor_count(signature); ++i) {
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

/* After a run on a GPU: fetches the outputs that were copied, and forgets what the device has of the buffers. */
static int finish_on_device(const attn_signature *signature, const DLTensor *const *tensors, attn_call *call,
                            int error) {
  const attn_device *device = call->place.device;
  for (int64_t i = 0; i < attn_tensor_count(signature); ++i) {
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

int attn_finish_arguments(const attn_signature *signature, const DLTensor *const *tensors, attn_call *call, int error) {
  if (call->place.device)
    error = finish_on_device(signature, tensors, call, error);
  for (int64_t i = 0; i < attn_tensor_count(signature); ++i) {
    if (!error && i >= signature->input_count && call->temporaries[i] && !attn_is_empty(tensors[i]))
      attn_unpack(call->temporaries[i], attn_element_bytes(&signature->tensors[i]), tensors[i]);
    free(call->temporaries[i]);
  }
  return error;
}

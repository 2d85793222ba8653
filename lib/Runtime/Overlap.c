/*===- Overlap.c - Outputs must have memory of their own ------------------===*
 *
 * Tensors are compared as intervals of bytes, from their lowest to their highest element.
 *
 *===----------------------------------------------------------------------===*/

#include "Internal.h"

typedef struct {
  uintptr_t first, end;
} interval;

static interval memory_of(const attn_tensor *expected, const DLTensor *tensor) {
  int64_t bytes = attn_element_bytes(expected);
  /* OpenCL's memory has a handle in place of an address. */
  uintptr_t start =
      tensor->device.device_type == kDLOpenCL ? (uintptr_t)tensor->byte_offset : (uintptr_t)attn_data(tensor);
  interval memory = {start, start + (uintptr_t)bytes};
  for (int64_t i = 0; i < tensor->ndim; ++i) {
    int64_t distance = (tensor->shape[i] - 1) * attn_stride(tensor, i) * bytes;
    if (distance < 0)
      memory.first -= (uintptr_t)-distance;
    else
      memory.end += (uintptr_t)distance;
  }
  return memory;
}

static int64_t absolute(int64_t value) { return value < 0 ? -value : value; }

/* Whether two elements may lie in one place: taken from the smallest stride up, each stride must step over all
 * that the smaller ones reach. Every view that slicing, transposing and reshaping make of a dense tensor passes. */
static int overlaps_itself(const DLTensor *tensor) {
  int64_t reach = 0, last_stride = 0, last_dimension = -1;
  for (int64_t done = 0; done < tensor->ndim; ++done) {
    int64_t next = -1, next_stride = 0;
    for (int64_t i = 0; i < tensor->ndim; ++i) {
      int64_t stride = absolute(attn_stride(tensor, i));
      int after = stride > last_stride || (stride == last_stride && i > last_dimension);
      if (after && (next < 0 || stride < next_stride)) {
        next = i;
        next_stride = stride;
      }
    }
    if (tensor->shape[next] > 1) {
      if (next_stride <= reach)
        return 1;
      reach += next_stride * (tensor->shape[next] - 1);
    }
    last_stride = next_stride;
    last_dimension = next;
  }
  return 0;
}

/* Memory of OpenCL is shared under the same handle; a number is in the CPU's memory, wherever outputs are. */
static int may_share(const DLTensor *output, const DLTensor *other) {
  if (output->device.device_type != other->device.device_type)
    return 0;
  return output->device.device_type != kDLOpenCL || output->data == other->data;
}

int attn_check_overlap(const attn_signature *signature, const DLTensor *const *tensors) {
  int64_t count = signature->input_count + signature->output_count;
  for (int64_t i = signature->input_count; i < count; ++i) {
    const attn_tensor *output = &signature->tensors[i];
    if (attn_is_empty(tensors[i]))
      continue;
    if (tensors[i]->strides && overlaps_itself(tensors[i]))
      return attn_fail(ATTN_ERROR_OVERLAP, "%s: its strides put several elements of the output in one place",
                       output->name);
    interval written = memory_of(output, tensors[i]);
    for (int64_t j = 0; j < i; ++j) {
      const attn_tensor *other = &signature->tensors[j];
      if (!tensors[j] || attn_is_empty(tensors[j]) || !may_share(tensors[i], tensors[j]))
        continue;
      interval memory = memory_of(other, tensors[j]);
      if (written.first < memory.end && memory.first < written.end)
        return attn_fail(ATTN_ERROR_OVERLAP, "%s: the output shares memory with the %s %s", output->name,
                         j < signature->input_count ? "input" : "output", other->name);
    }
  }
  return 0;
}

/*===- Copy.c - Between any strides and row-major order -------------------===*/

#include "Internal.h"

/* Copies `count` elements whose addresses advance by the given strides in bytes. */
static void copy_row(char *to, int64_t to_stride, const char *from, int64_t from_stride, int64_t count,
                     int64_t element_bytes) {
#define COPY_AS(type)                                                                                                  \
  for (int64_t i = 0; i < count; ++i)                                                                                  \
  *(type *)(to + i * to_stride) = *(const type *)(from + i * from_stride)
  switch (element_bytes) {
  case 1:
    COPY_AS(uint8_t);
    break;
  case 2:
    COPY_AS(uint16_t);
    break;
  case 4:
    COPY_AS(uint32_t);
    break;
  default:
    COPY_AS(uint64_t);
    break;
  }
#undef COPY_AS
}

/* `unpack`: from `packed` to the tensor; otherwise the other way. Returns where the packed rows go on. */
static char *copy(const DLTensor *tensor, int64_t dimension, char *element, int64_t element_bytes, char *packed,
                  int unpack) {
  int64_t extent = tensor->shape[dimension];
  int64_t stride = attn_stride(tensor, dimension) * element_bytes;
  if (dimension == tensor->ndim - 1) {
    if (unpack)
      copy_row(element, stride, packed, element_bytes, extent, element_bytes);
    else
      copy_row(packed, element_bytes, element, stride, extent, element_bytes);
    return packed + extent * element_bytes;
  }
  for (int64_t i = 0; i < extent; ++i)
    packed = copy(tensor, dimension + 1, element + i * stride, element_bytes, packed, unpack);
  return packed;
}

void attn_pack(const DLTensor *tensor, int64_t element_bytes, char *packed) {
  copy(tensor, 0, attn_data(tensor), element_bytes, packed, 0);
}

void attn_unpack(const char *packed, int64_t element_bytes, const DLTensor *tensor) {
  copy(tensor, 0, attn_data(tensor), element_bytes, (char *)packed, 1);
}

/*===- Check.c - What must hold of one tensor by itself -------------------===*/

#include "Internal.h"

int64_t attn_element_bytes(const attn_tensor *tensor) { return tensor->bits / 8; }

int64_t attn_stride(const DLTensor *tensor, int64_t dimension) {
  if (tensor->shape[dimension] <= 1)
    return 0; /* what the tensor says of it means nothing */
  if (tensor->strides)
    return tensor->strides[dimension];
  int64_t stride = 1;
  for (int64_t i = tensor->ndim - 1; i > dimension; --i)
    stride *= tensor->shape[i];
  return stride;
}

int attn_is_empty(const DLTensor *tensor) {
  for (int64_t i = 0; i < tensor->ndim; ++i)
    if (tensor->shape[i] == 0)
      return 1;
  return 0;
}

/* Of DLPack 1.1, codes from 7 on, which older headers do not declare. */
static const char *const narrow_floats[] = {"float8_e3m4",     "float8_e4m3",   "float8_e4m3b11fnuz", "float8_e4m3fn",
                                            "float8_e4m3fnuz", "float8_e5m2",   "float8_e5m2fnuz",    "float8_e8m0fnu",
                                            "float6_e2m3fn",   "float6_e3m2fn", "float4_e2m1fn"};

/* Writes "f32", or "f32x4" for lanes; of what the language does not have, "complex64 (which no tensor can be)", or
   "code 99 with 64 bits". */
static void print_dtype(char *text, size_t size, int code, int bits, int lanes) {
  const int first_narrow = 7, narrow = (int)(sizeof narrow_floats / sizeof *narrow_floats);
  const char *letter = 0;
  int known = 0;
  switch (code) {
  case kDLInt:
    letter = "i";
    known = bits == 8 || bits == 32 || bits == 64;
    break;
  case kDLUInt:
    letter = "u";
    known = bits == 8;
    break;
  case kDLFloat:
    letter = "f";
    known = bits == 16 || bits == 32 || bits == 64;
    break;
  case kDLBfloat:
    letter = "bf";
    known = bits == 16;
    break;
  case 5: /* kDLComplex, which not every DLPack declares */
    letter = "complex";
    break;
  default:
    break;
  }
  char suffix[16] = "";
  if (lanes != 1)
    snprintf(suffix, sizeof suffix, "x%d", lanes);
  if (code == 6 && bits == 8) /* kDLBool; DLPack 0.6 does not declare it */
    snprintf(text, size, "bool%s", suffix);
  else if (letter)
    snprintf(text, size, "%s%d%s%s", letter, bits, suffix, known ? "" : " (which no tensor can be)");
  else if (code >= first_narrow && code < first_narrow + narrow)
    snprintf(text, size, "%s%s (which no tensor can be)", narrow_floats[code - first_narrow], suffix);
  else
    snprintf(text, size, "code %d with %d bits%s", code, bits, suffix);
}

static int check_dtype(const attn_tensor *expected, const DLTensor *tensor) {
  DLDataType dtype = tensor->dtype;
  if (dtype.code == expected->code && dtype.bits == expected->bits && dtype.lanes == 1)
    return 0;
  char found[64], wanted[64];
  print_dtype(found, sizeof found, dtype.code, dtype.bits, dtype.lanes);
  print_dtype(wanted, sizeof wanted, (int)expected->code, (int)expected->bits, 1);
  return attn_fail(ATTN_ERROR_DTYPE, "%s: dtype is %s, but must be %s", expected->name, found, wanted);
}

/* Extents must not be negative, and every address must be computable in 64 bits. */
static int check_extents(const attn_tensor *expected, const DLTensor *tensor) {
  int64_t bytes = attn_element_bytes(expected);
  for (int64_t i = 0; i < expected->rank; ++i) {
    long long extent = tensor->shape[i];
    if (extent < 0)
      return attn_fail(ATTN_ERROR_SIZE, "%s: dimension %lld (%s) is %lld, which is negative", expected->name,
                       (long long)i, expected->shape[i].text, extent);
    if (extent > ATTN_MAX_EXTENT)
      return attn_fail(ATTN_ERROR_SIZE, "%s: dimension %lld (%s) is %lld, but can be at most %lld", expected->name,
                       (long long)i, expected->shape[i].text, extent, (long long)ATTN_MAX_EXTENT);
  }
  if (attn_is_empty(tensor))
    return 0;
  int64_t total = bytes, reach = bytes;
  for (int64_t i = 0; i < expected->rank; ++i) {
    if (__builtin_mul_overflow(total, tensor->shape[i], &total))
      return attn_fail(ATTN_ERROR_SIZE, "%s: has more elements than memory can hold", expected->name);
  }
  for (int64_t i = 0; tensor->strides && i < expected->rank; ++i) {
    int64_t stride = attn_stride(tensor, i), distance;
    if (stride == INT64_MIN || __builtin_mul_overflow(stride < 0 ? -stride : stride, bytes, &distance) ||
        __builtin_mul_overflow(distance, tensor->shape[i] - 1, &distance) ||
        __builtin_add_overflow(reach, distance, &reach))
      return attn_fail(ATTN_ERROR_SIZE, "%s: stride %lld of dimension %lld (%s) reaches beyond memory", expected->name,
                       (long long)stride, (long long)i, expected->shape[i].text);
  }
  return 0;
}

static int check_device(const attn_tensor *expected, const DLTensor *tensor, const attn_place *place) {
  int type = (int)tensor->device.device_type, index = (int)tensor->device.device_id;
  if (type == place->type && (type == kDLCPU || index == place->index))
    return 0;
  const char *device = place->device ? place->device->name : "";
  if (place->type == kDLCPU)
    return attn_fail(ATTN_ERROR_DEVICE, "%s: is on a device of type %d, but must be on the CPU (type %d)",
                     expected->name, type, (int)kDLCPU);
  if (type == kDLCPU)
    return attn_fail(ATTN_ERROR_DEVICE,
                     "%s: is in the CPU's memory, but the kernel was compiled for %s: pass a tensor that is there, or "
                     "compile with --copy",
                     expected->name, device);
  if (type != place->type)
    return attn_fail(ATTN_ERROR_DEVICE, "%s: is on a device of type %d, but must be on %s (type %d)", expected->name,
                     type, device, place->type);
  return attn_fail(ATTN_ERROR_DEVICE, "%s: is on %s device %d, but other tensors of the call are on device %d",
                   expected->name, device, index, place->index);
}

/* Numbers are in the CPU's memory, wherever the kernel runs. */
static const attn_place cpu = {kDLCPU, 0, 0};

int attn_check_tensor(const attn_tensor *expected, const DLTensor *tensor, const attn_place *place) {
  if (!tensor)
    return attn_fail(ATTN_ERROR_NULL_TENSOR, "%s: the tensor is NULL, and it has no default", expected->name);
  if (tensor->ndim != expected->rank) {
    if (expected->rank == 0)
      return attn_fail(ATTN_ERROR_RANK, "%s: is a scalar, so its rank must be 0, but is %d", expected->name,
                       (int)tensor->ndim);
    return attn_fail(ATTN_ERROR_RANK, "%s: rank is %d, but must be %lld", expected->name, (int)tensor->ndim,
                     (long long)expected->rank);
  }
  if (check_device(expected, tensor, place ? place : &cpu))
    return ATTN_ERROR_DEVICE;
  if (check_dtype(expected, tensor))
    return ATTN_ERROR_DTYPE;
  if (expected->rank > 0 && !tensor->shape)
    return attn_fail(ATTN_ERROR_NULL_TENSOR, "%s: the shape is NULL", expected->name);
  if (check_extents(expected, tensor))
    return ATTN_ERROR_SIZE;
  if (attn_is_empty(tensor))
    return 0;
  if (!tensor->data)
    return attn_fail(ATTN_ERROR_NULL_DATA, "%s: the data is NULL, but the tensor has elements", expected->name);
  int64_t alignment = attn_element_bytes(expected);
  /* OpenCL's memory has a handle in place of an address. */
  uintptr_t address =
      tensor->device.device_type == kDLOpenCL ? (uintptr_t)tensor->byte_offset : (uintptr_t)attn_data(tensor);
  if (address % (uintptr_t)alignment != 0)
    return attn_fail(ATTN_ERROR_ALIGNMENT, "%s: the data must be aligned to %lld bytes, but is %lld past one",
                     expected->name, (long long)alignment, (long long)(address % (uintptr_t)alignment));
  return 0;
}

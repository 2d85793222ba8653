/*===- HalideBuffer.h - Halide's buffers, by their ABI ----------*- C -*-===*
 *
 * The structures of HalideRuntime.h (Halide 21), whose header cannot be included where there is no C library.
 * A unit test compares the two.
 *
 *===----------------------------------------------------------------------===*/

#ifndef ATTN_LIB_RUNTIME_HALIDEBUFFER_H
#define ATTN_LIB_RUNTIME_HALIDEBUFFER_H

#include "attn/Runtime/Signature.h"
#include <stdint.h>

typedef struct {
  int32_t minimum, extent, stride;
  uint32_t flags;
} attn_halide_dimension;

typedef struct {
  uint64_t device;
  const void *device_interface;
  char *host;
  uint64_t flags;
  uint8_t type_code; /* 0 int, 1 uint, 2 float, 4 bfloat: DLPack's codes but for bool, which is a uint of 1 bit */
  uint8_t type_bits;
  uint16_t type_lanes;
  int32_t dimensions;
  attn_halide_dimension *dimension;
  void *padding;
} attn_halide_buffer;

/* A buffer for a tensor of this dtype and rank; the dimensions are filled in by whoever asks. */
static inline attn_halide_buffer attn_halide_buffer_of(const attn_tensor *tensor, char *host,
                                                       attn_halide_dimension *dimensions) {
  int is_bool = tensor->code == 6; /* kDLBool */
  uint8_t code = is_bool ? 1 : (uint8_t)tensor->code, bits = is_bool ? 1 : (uint8_t)tensor->bits;
  attn_halide_buffer buffer = {0, 0, host, 0, code, bits, 1, (int32_t)tensor->rank, dimensions, 0};
  return buffer;
}

/* Flags: the newest data is in the CPU's memory, or on the device. */
enum { ATTN_HALIDE_HOST_DIRTY = 1, ATTN_HALIDE_DEVICE_DIRTY = 2 };

/* Halide's error code for a failed allocation. */
enum { ATTN_HALIDE_OUT_OF_MEMORY = -11 };

#endif /* ATTN_LIB_RUNTIME_HALIDEBUFFER_H */

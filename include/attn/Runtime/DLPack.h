/*===- DLPack.h - The DLTensor of DLPack 1.x --------------------*- C -*-===*
 *
 * Uses <dlpack/dlpack.h> where it is installed and otherwise declares the same ABI.
 *
 *===----------------------------------------------------------------------===*/

#ifndef ATTN_RUNTIME_DLPACK_H
#define ATTN_RUNTIME_DLPACK_H

#if defined(__has_include)
#if __has_include(<dlpack/dlpack.h>)
#include <dlpack/dlpack.h>
#define ATTN_HAS_DLPACK_HEADER 1
#endif
#endif

#ifndef ATTN_HAS_DLPACK_HEADER
#include <stdint.h>

#ifndef DLPACK_DLPACK_H_
#define DLPACK_DLPACK_H_

typedef enum { kDLCPU = 1, kDLCUDA = 2, kDLCUDAHost = 3, kDLOpenCL = 4 } DLDeviceType;

typedef struct {
  DLDeviceType device_type;
  int32_t device_id;
} DLDevice;

typedef enum { kDLInt = 0, kDLUInt = 1, kDLFloat = 2, kDLBfloat = 4, kDLBool = 6 } DLDataTypeCode;

typedef struct {
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
} DLDataType;

/* shape and strides are in elements; strides may be NULL for a row-major tensor. */
typedef struct {
  void *data;
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t *shape;
  int64_t *strides;
  uint64_t byte_offset;
} DLTensor;

#endif /* DLPACK_DLPACK_H_ */
#endif /* ATTN_HAS_DLPACK_HEADER */

#endif /* ATTN_RUNTIME_DLPACK_H */

/* Calls a kernel that was compiled for CUDA, in place and on tensors in the CPU's memory. */

#include "bmm.h"
#include <stdio.h>

int main(void) {
  float x[6] = {1, 2, 3, 4, 5, 6}, y[6] = {1, 0, 0, 1, 1, 1}, out[4] = {0, 0, 0, 0};
  int64_t x_shape[3] = {1, 2, 3}, y_shape[3] = {1, 3, 2}, out_shape[3] = {1, 2, 2};
  DLDataType type = {kDLFloat, 32, 1};
  DLTensor tensors[3] = {{x, {kDLCUDA, 0}, 3, type, x_shape, 0, 0},
                         {y, {kDLCUDA, 0}, 3, type, y_shape, 0, 0},
                         {out, {kDLCUDA, 0}, 3, type, out_shape, 0, 0}};
  int code = bmm(&tensors[0], &tensors[1], &tensors[2]);
  printf("on CUDA: %d: %s\n", code, attn_last_error());
  tensors[1].device.device_type = kDLCPU;
  code = bmm(&tensors[0], &tensors[1], &tensors[2]);
  printf("mixed: %d: %s\n", code, attn_last_error());
  tensors[1].device.device_type = kDLCUDA;
  tensors[2].device.device_id = 1;
  code = bmm(&tensors[0], &tensors[1], &tensors[2]);
  printf("two devices: %d: %s\n", code, attn_last_error());
  for (int i = 0; i < 3; ++i)
    tensors[i].device.device_type = kDLCPU;
  code = bmm(&tensors[0], &tensors[1], &tensors[2]);
  printf("on the CPU: %d: %s\n", code, code ? attn_last_error() : "");
  printf("%g %g %g %g\n", out[0], out[1], out[2], out[3]);
  return 0;
}

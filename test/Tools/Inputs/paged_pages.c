/* Two sequences on pages of one token: says what a call gives for a table, and whether the output was written. */

#include "paged.h"
#include <stdio.h>

static DLTensor tensor(void *data, int ndim, int64_t *shape, uint8_t code) {
  DLTensor result = {0};
  result.data = data;
  result.device.device_type = kDLCPU;
  result.ndim = ndim;
  result.dtype.code = code;
  result.dtype.bits = 32;
  result.dtype.lanes = 1;
  result.shape = shape;
  return result;
}

static void call(int32_t first, int32_t last, int32_t tokens) {
  float q[2] = {1, 1}, k[3] = {1, 1, 1}, v[3] = {2, 4, 6}, out[2] = {-1, -1};
  int32_t page[4], length[2];
  int64_t q_shape[] = {2, 1, 1}, k_shape[] = {3, 1, 1, 1}, page_shape[] = {2, 2}, length_shape[] = {2};
  DLTensor tq = tensor(q, 3, q_shape, kDLFloat), tk = tensor(k, 4, k_shape, kDLFloat),
           tv = tensor(v, 4, k_shape, kDLFloat), tpage = tensor(page, 2, page_shape, kDLInt),
           tlength = tensor(length, 1, length_shape, kDLInt), tout = tensor(out, 3, q_shape, kDLFloat);
  int code;
  page[0] = first, page[1] = 1, page[2] = 0, page[3] = last;
  length[0] = 2, length[1] = tokens;
  code = paged(&tq, &tk, &tv, &tpage, &tlength, &tout);
  printf("%d: %g %g %s\n", code, out[0], out[1], code == ATTN_ERROR_BOUNDS ? attn_last_error() : "");
}

int main(void) {
  call(2, 1, 2);
  call(2, 3, 2);
  call(2, 3, 1); /* the last page is not used */
  call(-1, 1, 2);
  return 0;
}

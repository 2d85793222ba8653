/* Calls `part` with sizes that break its checks, then rightly, and prints what it returns and whether it wrote. */

#include "part.h"
#include <stdio.h>

enum { ROWS = 2, UNWRITTEN = 77 };

static DLTensor tensor(void *data, int ndim, int64_t *shape, uint8_t code, uint8_t bits) {
  DLTensor result = {0};
  result.data = data;
  result.device.device_type = kDLCPU;
  result.ndim = ndim;
  result.dtype.code = code;
  result.dtype.bits = bits;
  result.dtype.lanes = 1;
  result.shape = shape;
  return result;
}

static void call(int64_t columns, int64_t weights) {
  float x[ROWS * 8], w[8], y[ROWS] = {UNWRITTEN, UNWRITTEN};
  int64_t z[ROWS] = {UNWRITTEN, UNWRITTEN}, x_shape[2], w_shape[1], row_shape[1];
  DLTensor tx = tensor(x, 2, x_shape, kDLFloat, 32), tw = tensor(w, 1, w_shape, kDLFloat, 32),
           ty = tensor(y, 1, row_shape, kDLFloat, 32), tz = tensor(z, 1, row_shape, kDLInt, 64);
  int i, code;
  for (i = 0; i < ROWS * 8; ++i)
    x[i] = (float)i;
  for (i = 0; i < 8; ++i)
    w[i] = 1;
  x_shape[0] = row_shape[0] = ROWS;
  x_shape[1] = columns;
  w_shape[0] = weights;
  code = part(&tx, &tw, NULL, &ty, &tz);
  printf("%d: %g %g %lld %lld%s%s\n", code, y[0], y[1], (long long)z[0], (long long)z[1], code ? ": " : "",
         code ? attn_last_error() : "");
}

int main(void) {
  call(4, 5);
  call(3, 3);
  call(4, 4);
  return 0;
}

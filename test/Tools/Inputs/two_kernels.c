/* Two kernels of two objects in one C99 program: prints what they give and what a wrong call reports. */

#include "masked_softmax.h"
#include "scaled_dot.h"
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

static void print(int code, const float *values, int count) {
  int i;
  if (code) {
    printf("%d: %s\n", code, attn_last_error());
    return;
  }
  printf("0:");
  for (i = 0; i < count; ++i)
    printf(" %g", values[i]);
  printf("\n");
}

/* A pool without threads, which counts its loops. */
static void in_order(void *pool, void (*task)(void *closure, int i), void *closure, int count) {
  int i;
  for (i = 0; i < count; ++i)
    task(closure, i);
  ++*(int *)pool;
}

enum { MANY = 20000 }; /* rows, for which a thread is worth waking */
static float many[3 * MANY], many_masked[3 * MANY];

int main(void) {
  int loops = 0;
  float q[4] = {1, 1, 1, 1}, k[40], v[80], out[8], weight[20], x[3] = {1, 1, 1}, masked[3];
  int32_t valid[2] = {2, 6};
  int64_t q_shape[] = {2, 1, 2}, k_shape[] = {2, 10, 2}, v_shape[] = {2, 10, 4}, valid_shape[] = {2};
  int64_t out_shape[] = {2, 1, 4}, weight_shape[] = {2, 1, 10}, x_shape[] = {1, 1, 3}, many_shape[] = {1, MANY, 3},
          one_shape[] = {1};
  DLTensor tq = tensor(q, 3, q_shape, kDLFloat), tk = tensor(k, 3, k_shape, kDLFloat),
           tv = tensor(v, 3, v_shape, kDLFloat), tvalid = tensor(valid, 1, valid_shape, kDLInt),
           tout = tensor(out, 3, out_shape, kDLFloat), tweight = tensor(weight, 3, weight_shape, kDLFloat),
           tx = tensor(x, 3, x_shape, kDLFloat), tone = tensor(valid, 1, one_shape, kDLInt),
           tmasked = tensor(masked, 3, x_shape, kDLFloat), tmany = tensor(many, 3, many_shape, kDLFloat),
           tmany_masked = tensor(many_masked, 3, many_shape, kDLFloat);
  int i;
  for (i = 0; i < 40; ++i)
    k[i] = 1;
  for (i = 0; i < 80; ++i)
    v[i] = (float)(i % 40);
  print(scaled_dot(&tq, &tk, &tv, &tvalid, &tout, &tweight), out, 8);
  print(masked_softmax(&tx, &tone, &tmasked), masked, 3);
  attn_set_thread_pool(in_order, &loops);
  print(masked_softmax(&tmany, &tone, &tmany_masked), many_masked + 3 * (MANY - 1), 3);
  attn_set_thread_pool(NULL, NULL);
  printf("%s\n", loops ? "its own pool" : "another pool");
  k_shape[1] = 9;
  print(scaled_dot(&tq, &tk, &tv, &tvalid, &tout, &tweight), out, 8);
  return 0;
}

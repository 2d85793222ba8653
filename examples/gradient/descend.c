/* Gradient descent with the kernels that `attnc attention.attn --grad` writes: which queries give this output?
 *
 *   attnc attention.attn --grad
 *   cc descend.c attention.o -lpthread -ldl -lm
 */

#include "attention.h"
#include <stdio.h>

enum { M = 3, N = 5, D = 4, E = 2, STEPS = 8 };

static DLTensor tensor(float *data, int64_t *shape, int rank) {
  DLTensor result = {0};
  result.data = data;
  result.device.device_type = kDLCPU;
  result.ndim = rank;
  result.dtype.code = kDLFloat;
  result.dtype.bits = 32;
  result.dtype.lanes = 1;
  result.shape = shape;
  return result;
}

int main(void) {
  int64_t rows[] = {M, D}, keys[] = {N, D}, values[] = {N, E}, outputs[] = {M, E}, sums[] = {M};
  float q[M * D], k[N * D], v[N * E], out[M * E], saved[M];
  float grad_out[M * E], grad_q[M * D], grad_k[N * D], grad_v[N * E];
  for (int i = 0; i < N * D; ++i)
    k[i] = (float)(i * 7 % 11) / 5 - 1;
  for (int i = 0; i < N * E; ++i)
    v[i] = (float)(i * 5 % 9) / 4 - 1;
  for (int i = 0; i < M * D; ++i)
    q[i] = 0;
  DLTensor tq = tensor(q, rows, 2), tk = tensor(k, keys, 2), tv = tensor(v, values, 2), tout = tensor(out, outputs, 2),
           tsaved = tensor(saved, sums, 1), tgrad_out = tensor(grad_out, outputs, 2), tgrad_q = tensor(grad_q, rows, 2),
           tgrad_k = tensor(grad_k, keys, 2), tgrad_v = tensor(grad_v, values, 2);
  float before = 0;
  int falls = 1;
  for (int step = 0; step < STEPS; ++step) {
    if (attend_forward(&tq, &tk, &tv, &tout, &tsaved)) {
      printf("%s\n", attn_last_error());
      return 1;
    }
    float loss = 0; /* sum of (out - 0.5)^2 / 2 */
    for (int i = 0; i < M * E; ++i) {
      grad_out[i] = out[i] - 0.5f;
      loss += grad_out[i] * grad_out[i] / 2;
    }
    printf("step %d: loss %.4f\n", step, loss);
    falls &= step == 0 || loss < before;
    before = loss;
    if (attend_backward(&tq, &tk, &tv, &tsaved, &tout, &tgrad_out, &tgrad_q, &tgrad_k, &tgrad_v)) {
      printf("%s\n", attn_last_error());
      return 1;
    }
    for (int i = 0; i < M * D; ++i)
      q[i] -= grad_q[i];
  }
  printf("%s\n", falls ? "the loss falls with every step" : "the loss does not fall");
  return !falls;
}

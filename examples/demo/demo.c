/*===- demo.c - Two kernels in a C program --------------------------------===*
 *
 * scaled_dot.h and attend.h were written by attnc, with the objects beside them. That is all this program needs:
 * no Halide, no MLIR, no Python.
 *
 *   demo cases FOLDER                         the textbook case, and FOLDER's four words from .npy files
 *   demo serve THREADS Q K V VALID OUT        answers commands from stdin with a line each:
 *                                             run (seconds), peak (operations a second), write (the result, to OUT)
 *
 *===----------------------------------------------------------------------===*/

#define _POSIX_C_SOURCE 200809L
#include "attend.h"
#include "npy.h"
#include "peak.h"
#include "scaled_dot.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static DLTensor tensor(void *data, char kind, int rank, int64_t *shape) {
  DLTensor result = {0};
  result.data = data;
  result.device.device_type = kDLCPU;
  result.dtype.code = kind == 'f' ? kDLFloat : kDLInt;
  result.dtype.bits = 32;
  result.dtype.lanes = 1;
  result.ndim = rank;
  result.shape = shape; /* strides stay NULL: row-major */
  return result;
}

static DLTensor view(npy_array *array) { return tensor(array->data, array->kind, array->rank, array->shape); }

static void print_row(const float *row, int64_t count) {
  printf("   ");
  for (int64_t i = 0; i < count; ++i)
    printf(" %11.8g", row[i]);
  printf("\n");
}

static int run_scaled_dot(npy_array *q, npy_array *k, npy_array *v, npy_array *valid, float *out, float *weight) {
  int64_t out_shape[3] = {q->shape[0], q->shape[1], v->shape[2]};
  int64_t weight_shape[3] = {q->shape[0], q->shape[1], k->shape[1]};
  DLTensor tq = view(q), tk = view(k), tv = view(v), tvalid = view(valid);
  DLTensor tout = tensor(out, 'f', 3, out_shape), tweight = tensor(weight, 'f', 3, weight_shape);
  if (scaled_dot(&tq, &tk, &tv, &tvalid, &tout, &tweight) != 0) {
    fprintf(stderr, "%s\n", attn_last_error());
    return 1;
  }
  return 0;
}

/* Keys of ones, so every key weighs the same: the result is the mean of the first 2, then of the first 6 values. */
static int textbook(void) {
  float queries[2][1][2] = {{{0.3f, -1.0f}}, {{2.0f, 0.5f}}};
  float keys[2][10][2], values[2][10][4], out[2][1][4], weight[2][1][10];
  int32_t lengths[2] = {2, 6};
  for (int b = 0; b < 2; ++b)
    for (int n = 0; n < 10; ++n) {
      keys[b][n][0] = keys[b][n][1] = 1.0f;
      for (int e = 0; e < 4; ++e)
        values[b][n][e] = (float)(4 * n + e);
    }
  npy_array q = {'f', 3, {2, 1, 2}, queries}, k = {'f', 3, {2, 10, 2}, keys};
  npy_array v = {'f', 3, {2, 10, 4}, values}, valid = {'i', 1, {2}, lengths};
  if (run_scaled_dot(&q, &k, &v, &valid, out[0][0], weight[0][0]))
    return 1;
  printf("Textbook: equal keys, values 0...39, valid lengths 2 and 6\n");
  print_row(out[0][0], 4);
  print_row(out[1][0], 4);
  return 0;
}

/* FOLDER/NAME.npy */
static int read_from(const char *folder, const char *name, npy_array *array) {
  char path[4096];
  snprintf(path, sizeof path, "%s/%s.npy", folder, name);
  return npy_read(path, array);
}

static int words(const char *folder) {
  npy_array q, k, v, valid;
  float out[4 * 3], weight[4 * 4];
  if (read_from(folder, "q", &q) || read_from(folder, "k", &k) || read_from(folder, "v", &v) ||
      read_from(folder, "valid", &valid))
    return 1;
  if (q.rank != 3 || v.rank != 3 || npy_count(&q) != 4 * 3 || npy_count(&v) != 4 * 3 || npy_count(&k) != 4 * 3) {
    fprintf(stderr, "%s: q, k and v must be 1 x 4 x 3\n", folder);
    return 1;
  }
  if (run_scaled_dot(&q, &k, &v, &valid, out, weight))
    return 1;
  printf("Four words, from .npy files\n");
  for (int word = 0; word < 4; ++word)
    print_row(out + 3 * word, 3);
  free(q.data), free(k.data), free(v.data), free(valid.data);
  return 0;
}

static int serve(char **arguments) {
  npy_array q, k, v, valid;
  attn_set_num_threads(atoi(arguments[0]));
  if (npy_read(arguments[1], &q) || npy_read(arguments[2], &k) || npy_read(arguments[3], &v) ||
      npy_read(arguments[4], &valid))
    return 1;
  npy_array out = {'f', 3, {q.shape[0], q.shape[1], v.shape[2]}, 0};
  out.data = calloc((size_t)npy_count(&out), sizeof(float));
  DLTensor tq = view(&q), tk = view(&k), tv = view(&v), tvalid = view(&valid), tout = view(&out);
  char command[64];
  while (fgets(command, sizeof command, stdin)) {
    if (strcmp(command, "run\n") == 0) {
      double begin = now();
      if (attend(&tq, &tk, &tv, &tvalid, &tout) != 0) {
        fprintf(stderr, "%s\n", attn_last_error());
        return 1;
      }
      printf("%.9f\n", now() - begin);
    } else if (strcmp(command, "peak\n") == 0) {
      printf("%.6e\n", peak_flops(atoi(arguments[0])));
    } else if (strcmp(command, "write\n") == 0) {
      printf("%d\n", npy_write(arguments[5], &out));
    }
    fflush(stdout);
  }
  free(q.data), free(k.data), free(v.data), free(valid.data), free(out.data);
  return 0;
}

int main(int count, char **arguments) {
  if (count == 3 && strcmp(arguments[1], "cases") == 0)
    return textbook() || words(arguments[2]);
  if (count == 8 && strcmp(arguments[1], "serve") == 0)
    return serve(arguments + 2);
  fprintf(stderr, "usage: demo cases FOLDER | demo serve THREADS Q K V VALID OUT\n");
  return 2;
}

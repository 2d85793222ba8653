/* Calls causal attention in f16 on a driver whose devices have the CPU's memory (fake_cuda.c), and compares what they
 * compute with the formula. */

#include "causal.h"
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { H = 2, M = 70, N = 270, D = 40, E = 24, WIDE = 200 };

static void (*fake_fail)(const char *function, int error);

static _Float16 q[H][M][D], k[H][N][D], v[H][N][E], out[H][M][E], wide[H * N * WIDE], spaced[H * M * D * 2];
static const DLDataType f16 = {kDLFloat, 16, 1};

static int device; /* of the tensors */

static DLTensor tensor(void *data, DLDeviceType type, int64_t *shape, int64_t *strides) {
  DLTensor result = {data, {type, device}, 4, f16, shape, strides, 0};
  return result;
}

static double expected(int h, int m, int e) {
  double sum = 0, total = 0;
  for (int n = 0; n <= m + N - M; ++n) {
    double score = 0;
    for (int d = 0; d < D; ++d)
      score += (double)q[h][m][d] * (double)k[h][n][d];
    sum += exp(score / sqrt(D));
    total += exp(score / sqrt(D)) * (double)v[h][n][e];
  }
  return total / sum;
}

static const char *judgement(void) {
  double error = 0;
  for (int h = 0; h < H; ++h)
    for (int m = 0; m < M; ++m)
      for (int e = 0; e < E; ++e)
        error = fmax(error, fabs((double)out[h][m][e] - expected(h, m, e)));
  return error < 3e-3 ? "right" : "not computed";
}

static void report(const char *what, int code) {
  printf("%s: %d: %s\n", what, code, code ? attn_last_error() : judgement());
}

static void call_with_keys(const char *what, void *keys, DLDeviceType type) {
  int64_t q_shape[4] = {1, H, M, D}, k_shape[4] = {1, H, N, D}, v_shape[4] = {1, H, N, E}, out_shape[4] = {1, H, M, E};
  DLTensor tensors[4] = {tensor(q, type, q_shape, 0), tensor(keys, type, k_shape, 0), tensor(v, type, v_shape, 0),
                         tensor(out, type, out_shape, 0)};
  memset(out, 0, sizeof out);
  printf("%s\n", what);
  report(what, causal(&tensors[0], &tensors[1], &tensors[2], &tensors[3]));
}

static void call(const char *what, DLDeviceType type) { call_with_keys(what, k, type); }

static void failing_call(const char *what, const char *function, int error) {
  fake_fail(function, error);
  call(what, kDLCUDA);
  fake_fail("", 0);
}

/* Rows of queries whose elements are apart. */
static void call_with_strides(void) {
  int64_t q_shape[4] = {1, H, M, D}, q_strides[4] = {H * M * D * 2, M * D * 2, D * 2, 2};
  int64_t k_shape[4] = {1, H, N, D}, v_shape[4] = {1, H, N, E}, out_shape[4] = {1, H, M, E};
  DLTensor tensors[4] = {tensor(spaced, kDLCUDA, q_shape, q_strides), tensor(k, kDLCUDA, k_shape, 0),
                         tensor(v, kDLCUDA, v_shape, 0), tensor(out, kDLCUDA, out_shape, 0)};
  printf("strides\n");
  printf("strides: %d\n", causal(&tensors[0], &tensors[1], &tensors[2], &tensors[3]));
}

/* Rows of more columns than the kernel has been made for. */
static void call_with_wide_rows(void) {
  int64_t q_shape[4] = {1, 1, 2, WIDE}, k_shape[4] = {1, 1, N, WIDE}, v_shape[4] = {1, 1, N, E},
          out_shape[4] = {1, 1, 2, E};
  DLTensor tensors[4] = {tensor(spaced, kDLCUDA, q_shape, 0), tensor(wide, kDLCUDA, k_shape, 0),
                         tensor(v, kDLCUDA, v_shape, 0), tensor(out, kDLCUDA, out_shape, 0)};
  printf("wide rows\n");
  printf("wide rows: %d\n", causal(&tensors[0], &tensors[1], &tensors[2], &tensors[3]));
}

static void fill(_Float16 *data, size_t count, unsigned seed) {
  for (size_t i = 0; i < count; ++i) {
    seed = seed * 1664525 + 1013904223;
    data[i] = (_Float16)((int)(seed >> 16 & 0xff) - 128) / 64;
  }
}

int main(int count, char **arguments) {
  setvbuf(stdout, 0, _IONBF, 0);
  void *driver = dlopen("libcuda.so.1", RTLD_NOW), *fake = driver ? dlsym(driver, "fake_fail") : 0;
  fill(&q[0][0][0], H * M * D, 1);
  fill(&k[0][0][0], H * N * D, 2);
  fill(&v[0][0][0], H * N * E, 3);
  if (!fake) {
    call("no driver", kDLCUDA);
    return 0;
  }
  *(void **)&fake_fail = fake;
  if (count > 1 && !strcmp(arguments[1], "copy")) {
    attn_set_cuda_stream((void *)0x1234);
    call("copied", kDLCPU);
    return 0;
  }
  if (count > 1 && !strcmp(arguments[1], "parts")) {
    attn_set_cuda_stream((void *)0x1234);
    failing_call("no memory for parts", "cuMemAlloc_v2", 2);
    call("in parts", kDLCUDA);
    call("again", kDLCUDA);
    return 0;
  }
  if (count > 1 && !strcmp(arguments[1], "maps")) {
    call("by maps", kDLCUDA);
    failing_call("no maps", "cuTensorMapEncodeTiled", 1);
    memcpy(wide + 1, k, sizeof k);
    call_with_keys("keys at odd addresses", wide + 1, kDLCUDA);
    return 0;
  }
  if (count > 1) {
    call("once", kDLCUDA);
    for (device = 1; device >= 0 && !strcmp(arguments[1], "devices"); --device)
      call(device ? "device 1" : "device 0", kDLCUDA);
    return 0;
  }
  printf("q %p k %p v %p out %p\n", (void *)q, (void *)k, (void *)v, (void *)out);
  failing_call("no start", "cuInit", 3);
  failing_call("no capability", "cuDeviceGetAttribute", 101);
  failing_call("bad code", "cuModuleLoadDataEx", 218);
  failing_call("no function", "cuModuleGetFunction", 500);
  call("first", kDLCUDA);
  attn_set_cuda_stream((void *)0x1234);
  call("on a stream", kDLCUDA);
  failing_call("too much shared memory", "cuFuncSetAttribute", 1);
  failing_call("failed launch", "cuLaunchKernel", 701);
  failing_call("no memory", "cuLaunchKernel", 2);
  call_with_strides();
  call_with_wide_rows();
  call("after it", kDLCUDA);
  return 0;
}

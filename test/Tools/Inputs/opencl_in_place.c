/* Calls a kernel on OpenCL's memory, in the caller's context and queue. Keys that the mask leaves out are in memory
 * that nobody may read. */

#include "prefix.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

/* Of OpenCL, whose headers may not be installed. */
typedef void *cl_object;
int clGetPlatformIDs(unsigned, cl_object *, unsigned *);
int clGetDeviceIDs(cl_object, uint64_t, unsigned, cl_object *, unsigned *);
cl_object clCreateContext(const intptr_t *, unsigned, const cl_object *, void *, void *, int *);
cl_object clCreateCommandQueue(cl_object, cl_object, uint64_t, int *);
cl_object clCreateBuffer(cl_object, uint64_t, size_t, void *, int *);
int clEnqueueReadBuffer(cl_object, cl_object, unsigned, size_t, size_t, void *, unsigned, void *, void *);
enum { USE_HOST_POINTER = 1 << 3 };

enum { QUERIES = 5, KEYS = 4096, SEEN = 70, WIDTH = 16, PAGE = 4096, OFFSET = 128 };

static int check(int error, const char *what) {
  if (error) {
    printf("%s: %d\n", what, error);
    exit(1);
  }
  return error;
}

static cl_object context, queue;

static cl_object buffer(void *data, size_t bytes) {
  int error;
  cl_object made = clCreateBuffer(context, USE_HOST_POINTER, bytes, data, &error);
  check(error, "clCreateBuffer");
  return made;
}

static void *pages(size_t bytes) {
  void *data = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  check(data == MAP_FAILED, "mmap");
  return data;
}

static int64_t few[2] = {QUERIES, WIDTH}, many[2] = {KEYS, WIDTH};
static const DLDataType f32 = {kDLFloat, 32, 1}, i32 = {kDLInt, 32, 1};
static int32_t seen = SEEN;

static void call(const char *what, cl_object q, uint64_t offset, int64_t *strides, cl_object k, cl_object v,
                 cl_object out) {
  DLTensor tensors[5] = {{q, {kDLOpenCL, 0}, 2, f32, few, strides, offset},
                         {k, {kDLOpenCL, 0}, 2, f32, many, 0, 0},
                         {v, {kDLOpenCL, 0}, 2, f32, many, 0, 0},
                         {&seen, {kDLCPU, 0}, 0, i32, 0, 0, 0},
                         {out, {kDLOpenCL, 0}, 2, f32, few, 0, 0}};
  int code = prefix(&tensors[0], &tensors[1], &tensors[2], &tensors[3], &tensors[4]);
  printf("%s: %d%s%s\n", what, code, code ? ": " : "", code ? attn_last_error() : "");
}

static float expected(const float *q, const float *k, const float *v, int d) {
  double total = 0, sum = 0;
  for (int n = 0; n < SEEN; ++n) {
    double score = 0;
    for (int i = 0; i < WIDTH; ++i)
      score += q[i] * k[n * WIDTH + i];
    total += exp(score);
    sum += exp(score) * v[n * WIDTH + d];
  }
  return (float)(sum / total);
}

int main(void) {
  cl_object platform, device;
  int error;
  check(clGetPlatformIDs(1, &platform, 0), "clGetPlatformIDs");
  check(clGetDeviceIDs(platform, 0xFFFFFFFF, 1, &device, 0), "clGetDeviceIDs");
  context = clCreateContext(0, 1, &device, 0, 0, &error);
  check(error, "clCreateContext");
  queue = clCreateCommandQueue(context, device, 0, &error);
  check(error, "clCreateCommandQueue");

  size_t few_bytes = QUERIES * WIDTH * sizeof(float), many_bytes = KEYS * WIDTH * sizeof(float);
  char *start = pages(PAGE);
  float *q = (float *)(start + OFFSET), *k = pages(many_bytes), *v = pages(many_bytes), result[QUERIES * WIDTH];
  for (int i = 0; i < QUERIES * WIDTH; ++i)
    q[i] = (float)sin(i);
  for (int i = 0; i < SEEN * WIDTH; ++i)
    k[i] = (float)cos(i), v[i] = (float)sin(3 * i);
  cl_object queries = buffer(start, PAGE), keys = buffer(k, many_bytes);
  cl_object values = buffer(v, many_bytes), out = buffer(pages(PAGE), few_bytes);
  /* Chunks have 32 keys, so that the last one which is visited ends with key 95, in the second page. */
  check(mprotect((char *)k + 2 * PAGE, many_bytes - 2 * PAGE, PROT_NONE), "mprotect");
  check(mprotect((char *)v + 2 * PAGE, many_bytes - 2 * PAGE, PROT_NONE), "mprotect");

  call("without a queue", queries, OFFSET, 0, keys, values, out);
  attn_set_opencl_queue(queue);
  call("in place", queries, OFFSET, 0, keys, values, out);
  check(clEnqueueReadBuffer(queue, out, 1, 0, few_bytes, result, 0, 0, 0), "clEnqueueReadBuffer");
  double worst = 0;
  for (int m = 0; m < QUERIES; ++m)
    for (int d = 0; d < WIDTH; ++d)
      worst = fmax(worst, fabs(result[m * WIDTH + d] - expected(q + m * WIDTH, k, v, d)));
  printf("right: %s\n", worst < 1e-5 ? "yes" : "no");

  call("between alignments", queries, 4, 0, keys, values, out);
  int64_t backwards[2] = {-WIDTH, 1};
  call("backwards", queries, 1024, backwards, keys, values, out);
  call("after it", queries, OFFSET, 0, keys, values, out);
  return 0;
}

/* Calls a kernel that was compiled for CUDA with a driver that prints what it is asked for (fake_cuda.c). */

#include "bmm.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

static void (*fake_fail)(const char *function, int error);
static void (*fake_set_context)(void *context);

static float memory[16];
static int64_t x_shape[3] = {1, 2, 3}, y_shape[3] = {1, 3, 2}, out_shape[3] = {1, 2, 2};
static const DLDataType f32 = {kDLFloat, 32, 1};

static void call(const char *what, DLDeviceType type, int device) {
  DLTensor x = {memory, {type, device}, 3, f32, x_shape, 0, 0}, y = {memory, {type, device}, 3, f32, y_shape, 0, 24};
  DLTensor out = {memory + 12, {type, device}, 3, f32, out_shape, 0, 0};
  printf("%s\n", what);
  int code = bmm(&x, &y, &out);
  printf("%s: %d%s%s\n", what, code, code ? ": " : "", code ? attn_last_error() : "");
}

static void failing_call(const char *what, DLDeviceType type, const char *function, int error) {
  fake_fail(function, error);
  call(what, type, 0);
  fake_fail("", 0);
}

static void *on_another_thread(void *stream) {
  call("another thread", kDLCUDA, 0);
  attn_set_cuda_stream(stream);
  call("its stream", kDLCUDA, 0);
  return 0;
}

int main(int count, char **arguments) {
  setvbuf(stdout, 0, _IONBF, 0);
  void *driver = dlopen("libcuda.so.1", RTLD_NOW), *fake = driver ? dlsym(driver, "fake_fail") : 0;
  if (!fake) {
    call("no driver", kDLCUDA, 0);
    return 0;
  }
  *(void **)&fake_fail = fake;
  *(void **)&fake_set_context = dlsym(driver, "fake_set_context");
  if (count > 1 && !strcmp(arguments[1], "copy")) {
    attn_set_cuda_stream((void *)0x1234);
    failing_call("no memory", kDLCPU, "cuMemAlloc_v2", 2);
    failing_call("failed copy", kDLCPU, "copy to the device", 700);
    failing_call("failed copy back", kDLCPU, "copy from the device", 700);
    call("copied", kDLCPU, 0);
    return 0;
  }
  printf("x %p y %p out %p\n", (void *)memory, (void *)(memory + 6), (void *)(memory + 12));

  failing_call("no start", kDLCUDA, "cuInit", 3);
  failing_call("bad code", kDLCUDA, "cuModuleLoadDataEx", 218);
  call("first", kDLCUDA, 0);
  attn_set_cuda_stream((void *)0x1234);
  call("on a stream", kDLCUDA, 0);
  call("device 1", kDLCUDA, 1);
  call("device 7", kDLCUDA, 7);
  call("negative", kDLCUDA, -1);

  int device = 0;
  fake_set_context(&device);
  call("in a context", kDLCUDA, 0);
  call("in another device's context", kDLCUDA, 1);
  void *current = 0;
  int (*get_current)(void **);
  *(void **)&get_current = dlsym(driver, "cuCtxGetCurrent");
  get_current(&current);
  printf("the caller's context is %s\n", current == &device ? "current again" : "lost");

  failing_call("failed launch", kDLCUDA, "cuLaunchKernel", 701);
  call("after it", kDLCUDA, 0);
  pthread_t thread;
  pthread_create(&thread, 0, on_another_thread, (void *)0x5678);
  pthread_join(thread, 0);
  call("on the first stream", kDLCUDA, 0);
  return 0;
}

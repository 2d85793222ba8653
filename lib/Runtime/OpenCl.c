/*===- OpenCl.c - OpenCL's driver, context and queue ----------------------===*
 *
 * Takes the place of Halide's own functions. Memory of OpenCL can be used only in the context that it was made in: a
 * call in place runs in the caller's queue, whose context that is. Calls on tensors in the CPU's memory have a context
 * and a queue of their own, on the first device that there is.
 *
 *===----------------------------------------------------------------------===*/

#include "Internal.h"

/* Not static: see Error.c. */
__thread void *attn_opencl_queue;

void attn_set_opencl_queue(void *queue) { attn_opencl_queue = queue; }

void *halide_opencl_get_symbol(void *user, const char *name) {
  (void)user;
  static void *library;
  void *loaded = attn_load_once("libOpenCL.so.1", &library);
  return loaded ? dlsym(loaded, name) : 0;
}

static int fail(const char *function, int error) {
  return attn_fail(ATTN_ERROR_NO_DEVICE, "%s failed with error %d", function, error);
}

/* The first device, of any kind, of the first platform that has one. */
static int find_device(void **platform, void **device) {
  enum { PLATFORMS = 16 };
  typedef int (*get_platforms)(unsigned, void **, unsigned *);
  typedef int (*get_devices)(void *, uint64_t, unsigned, void **, unsigned *);
  const uint64_t all = 0xFFFFFFFF; /* CL_DEVICE_TYPE_ALL */
  void *platforms[PLATFORMS];
  unsigned count = 0, found = 0;
  int error = ((get_platforms)halide_opencl_get_symbol(0, "clGetPlatformIDs"))(PLATFORMS, platforms, &count);
  if (error)
    return fail("clGetPlatformIDs", error);
  get_devices devices = (get_devices)halide_opencl_get_symbol(0, "clGetDeviceIDs");
  for (unsigned i = 0; i < count && i < PLATFORMS; ++i)
    if (!devices(platforms[i], all, 1, device, &found) && found) {
      *platform = platforms[i];
      return 0;
    }
  return attn_fail(ATTN_ERROR_NO_DEVICE, "no platform of OpenCL has a device");
}

static int make_own(void **context, void **queue) {
  typedef void *(*create_context)(const intptr_t *, unsigned, void *const *, void *, void *, int *);
  typedef void *(*create_queue)(void *, void *, uint64_t, int *);
  enum { CONTEXT_PLATFORM = 0x1084 };
  void *platform = 0, *device = 0;
  int error = find_device(&platform, &device);
  if (error)
    return error;
  intptr_t properties[] = {CONTEXT_PLATFORM, (intptr_t)platform, 0};
  *context = ((create_context)halide_opencl_get_symbol(0, "clCreateContext"))(properties, 1, &device, 0, 0, &error);
  if (error)
    return fail("clCreateContext", error);
  *queue = ((create_queue)halide_opencl_get_symbol(0, "clCreateCommandQueue"))(*context, device, 0, &error);
  return error ? fail("clCreateCommandQueue", error) : 0;
}

/* Halide does one thing at a time. */
static char is_busy;

int halide_acquire_cl_context(void *user, void **context, void **queue, _Bool create) {
  (void)user;
  static void *own_context, *own_queue;
  typedef int (*queue_info)(void *, unsigned, size_t, void *, size_t *);
  enum { QUEUE_CONTEXT = 0x1090 };
  *context = *queue = 0;
  while (__atomic_test_and_set(&is_busy, __ATOMIC_ACQUIRE))
    ;
  int error = 0;
  if (!create) {
    /* The process ends, and perhaps the driver has ended already: nothing is to be given back to it. */
  } else if (attn_opencl_queue) {
    queue_info information = (queue_info)halide_opencl_get_symbol(0, "clGetCommandQueueInfo");
    *queue = attn_opencl_queue;
    error = information(*queue, QUEUE_CONTEXT, sizeof *context, context, 0);
    error = error ? fail("clGetCommandQueueInfo", error) : 0;
  } else {
    if (!own_queue)
      error = make_own(&own_context, &own_queue);
    *context = own_context;
    *queue = own_queue;
  }
  if (error)
    __atomic_clear(&is_busy, __ATOMIC_RELEASE);
  return error;
}

int halide_release_cl_context(void *user) {
  (void)user;
  __atomic_clear(&is_busy, __ATOMIC_RELEASE);
  return 0;
}

/*===- Cuda.c - CUDA's driver, context and stream --------------------------===*
 *
 * Takes the place of Halide's own functions. The driver is loaded by the name that it always has; a call runs in the
 * caller's context and stream, where the memory of its tensors is; and kernels get as many registers as they need.
 *
 *===----------------------------------------------------------------------===*/

#include "Internal.h"

/* Not static: see Error.c. */
__thread void *attn_cuda_stream;
__thread int attn_cuda_device; /* of the call that this thread runs */

void attn_set_cuda_stream(void *stream) { attn_cuda_stream = stream; }

/* Takes the place of a function that an old driver lacks: Halide would call what it has not found. */
static int not_supported(void) { return 801; /* CUDA_ERROR_NOT_SUPPORTED */ }

/* NULL where there is no driver. */
static void *driver_function(const char *name) {
  static void *library;
  void *loaded = attn_load_once("libcuda.so.1", &library);
  if (!loaded)
    return 0;
  void *found = dlsym(loaded, name);
  return found ? found : (void *)not_supported;
}

/* Halide allows a thread 64 registers, unless an environment variable says otherwise. */
static int load_module(void **module, const void *image, unsigned count, int *options, void **values) {
  (void)count;
  (void)options;
  (void)values;
  typedef int (*function)(void **, const void *, unsigned, int *, void **);
  function load = (function)driver_function("cuModuleLoadDataEx");
  return load(module, image, 0, 0, 0);
}

/* A function that is launched with more than 48 KiB of shared memory must be allowed to have it. Halide calls it an
 * error of the launch where that fails. */
static int launch(void *function, unsigned blocks_x, unsigned blocks_y, unsigned blocks_z, unsigned threads_x,
                  unsigned threads_y, unsigned threads_z, unsigned shared, void *stream, void **arguments,
                  void **extra) {
  enum { ALLOWED = 48 << 10, MAX_DYNAMIC_SHARED_SIZE_BYTES = 8 };
  typedef int (*set_attribute)(void *, int, int);
  typedef int (*launch_kernel)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *,
                               void **, void **);
  int error = 0;
  if (shared > ALLOWED)
    error =
        ((set_attribute)driver_function("cuFuncSetAttribute"))(function, MAX_DYNAMIC_SHARED_SIZE_BYTES, (int)shared);
  if (error)
    return error;
  return ((launch_kernel)driver_function("cuLaunchKernel"))(function, blocks_x, blocks_y, blocks_z, threads_x,
                                                            threads_y, threads_z, shared, stream, arguments, extra);
}

void *halide_cuda_get_symbol(void *user, const char *name) {
  (void)user;
  void *found = driver_function(name);
  if (found && strstr(name, "cuModuleLoadDataEx") == name)
    return (void *)load_module;
  return found && strstr(name, "cuLaunchKernel") == name ? (void *)launch : found;
}

static int fail(const char *function, int error) {
  typedef int (*get_name)(int, const char **);
  const char *name = 0;
  ((get_name)driver_function("cuGetErrorName"))(error, &name);
  return attn_fail(ATTN_ERROR_NO_DEVICE, "%s failed with error %d%s%s%s", function, error, name ? " (" : "",
                   name ? name : "", name ? ")" : "");
}

/* The context of a device that libraries share. */
static int primary_context(int index, void **context) {
  enum { DEVICES = 64 };
  static void *contexts[DEVICES];
  int device = 0;
  typedef int (*get)(int *, int);
  typedef int (*retain)(void **, int);
  if (index >= 0 && index < DEVICES && (*context = __atomic_load_n(&contexts[index], __ATOMIC_ACQUIRE)))
    return 0;
  int error = ((get)driver_function("cuDeviceGet"))(&device, index);
  if (error)
    return fail("cuDeviceGet", error);
  error = ((retain)driver_function("cuDevicePrimaryCtxRetain"))(context, device);
  if (error)
    return fail("cuDevicePrimaryCtxRetain", error);
  if (index < DEVICES)
    __atomic_store_n(&contexts[index], *context, __ATOMIC_RELEASE);
  return 0;
}

int attn_cuda_multiprocessors(void) {
  enum { MULTIPROCESSOR_COUNT = 16 };
  typedef int (*get)(int *, int);
  typedef int (*get_attribute)(int *, int, int);
  int device = 0, count = 0;
  if (((get)driver_function("cuDeviceGet"))(&device, attn_cuda_device) ||
      ((get_attribute)driver_function("cuDeviceGetAttribute"))(&count, MULTIPROCESSOR_COUNT, device))
    return 0;
  return count;
}

int attn_cuda_tensor_map(void *map, uint64_t address, const uint64_t *extents, const uint64_t *strides,
                         const uint32_t *box) {
  enum { RANK = 5, UINT16 = 1, NO_INTERLEAVE = 0, SWIZZLE_128_BYTES = 3, PROMOTION_TO_256_BYTES = 3, FILL_WITH_0 = 0 };
  static const uint32_t steps[RANK] = {1, 1, 1, 1, 1};
  typedef int (*encode)(void *, int, uint32_t, uint64_t, const uint64_t *, const uint64_t *, const uint32_t *,
                        const uint32_t *, int, int, int, int);
  return ((encode)driver_function("cuTensorMapEncodeTiled"))(map, UINT16, RANK, address, extents, strides, box, steps,
                                                             NO_INTERLEAVE, SWIZZLE_128_BYTES, PROMOTION_TO_256_BYTES,
                                                             FILL_WITH_0);
}

int halide_cuda_acquire_context(void *user, void **context, _Bool create) {
  (void)user;
  (void)create;
  typedef int (*initialise)(unsigned);
  typedef int (*current)(void **);
  typedef int (*current_device)(int *);
  *context = 0;
  int error = ((initialise)driver_function("cuInit"))(0), device = -1;
  if (error)
    return fail("cuInit", error);
  error = ((current)driver_function("cuCtxGetCurrent"))(context);
  if (error)
    return fail("cuCtxGetCurrent", error);
  if (*context && !((current_device)driver_function("cuCtxGetDevice"))(&device) && device == attn_cuda_device)
    return 0;
  return primary_context(attn_cuda_device, context);
}

int halide_cuda_release_context(void *user) {
  (void)user;
  return 0;
}

int halide_cuda_get_stream(void *user, void *context, void **stream) {
  (void)user;
  (void)context;
  *stream = attn_cuda_stream;
  return 0;
}

/* A CUDA driver for tests, where there is none: a libcuda.so.1 whose devices have the CPU's memory. It prints each call
 * that a program cares about, and fails where it is told to. Its devices run nothing, but kernels for tensor cores that
 * the library has which FAKE_CUDA_KERNELS names (emulated_kernel.cpp). What others would write is in the files 0, 1, … of
 * the folder FAKE_CUDA_MEMORY: the contents of the first, the second, … memory that a program allocates. */

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEVICES = 2, INVALID_DEVICE = 101 };

/* Calls of this function fail with this error. */
static const char *failing = "";
static int failure;

void fake_fail(const char *function, int error) {
  failing = function;
  failure = error;
}

static int result(const char *function) { return strcmp(function, failing) ? 0 : failure; }

/* Contexts are pointers to the number of their device; each thread has a stack of them. */
static int primary[DEVICES] = {0, 1};
static __thread void *contexts[8];
static __thread int depth;

void fake_set_context(void *context) {
  depth = context ? 1 : 0;
  contexts[1] = context;
}

int cuInit(unsigned flags) {
  (void)flags;
  return result("cuInit");
}

/* NVRTC asks for it. */
int cuGetExportTable(const void **table, const void *id) {
  enum { NOT_FOUND = 500 };
  (void)id;
  *table = 0;
  return NOT_FOUND;
}

int cuGetErrorName(int error, const char **name) {
  *name = error == 3 ? "CUDA_ERROR_NOT_INITIALIZED" : error == INVALID_DEVICE ? "CUDA_ERROR_INVALID_DEVICE" : 0;
  return 0;
}

int cuDeviceGet(int *device, int index) {
  *device = index;
  return index >= 0 && index < DEVICES ? result("cuDeviceGet") : INVALID_DEVICE;
}

/* FAKE_CUDA_CAPABILITY: "80", or "80,90" where that of device 1 is another. FAKE_CUDA_MULTIPROCESSORS: "132"; 1 where
 * it is not given. */
int cuDeviceGetAttribute(int *value, int attribute, int device) {
  const char *given = getenv("FAKE_CUDA_CAPABILITY"), *second = given ? strchr(given, ',') : 0;
  const char *multiprocessors = getenv("FAKE_CUDA_MULTIPROCESSORS");
  int capability = !given ? 80 : atoi(device && second ? second + 1 : given);
  *value = attribute == 75 ? capability / 10 : attribute == 76 ? capability % 10 : 0;
  if (attribute == 16)
    *value = multiprocessors ? atoi(multiprocessors) : 1;
  return result("cuDeviceGetAttribute");
}

int cuDevicePrimaryCtxRetain(void **context, int device) {
  printf("  primary context of device %d\n", device);
  *context = &primary[device];
  return result("cuDevicePrimaryCtxRetain");
}

int cuCtxGetCurrent(void **context) {
  *context = depth ? contexts[depth] : 0;
  return 0;
}

int cuCtxGetDevice(int *device) {
  *device = *(int *)contexts[depth];
  return 0;
}

int cuCtxPushCurrent_v2(void *context) {
  contexts[++depth] = context;
  return 0;
}

int cuCtxPopCurrent_v2(void **context) {
  *context = contexts[depth--];
  return 0;
}

/* "sm_80" of PTX, "a cubin for sm_80" of machine code, whose ELF header has the number in its flags. */
static void describe(const char *image, char *text, size_t size) {
  const char *target = strstr(image, ".target sm_");
  uint32_t flags = 0;
  if (!strncmp(image, "\177ELF", 4)) {
    memcpy(&flags, image + 48, sizeof flags);
    snprintf(text, size, "a cubin for sm_%u", flags >> 8 & 0xff);
  } else {
    snprintf(text, size, target ? "sm_%d" : "unknown", target ? atoi(target + strlen(".target sm_")) : 0);
  }
}

int cuModuleLoadDataEx(void **module, const void *image, unsigned count, int *options, void **values) {
  (void)options;
  (void)values;
  char text[32];
  describe(image, text, sizeof text);
  printf("  load a module with %u options: %s\n", count, text);
  *module = module;
  return result("cuModuleLoadDataEx");
}

int cuModuleUnload(void *module) {
  (void)module;
  return 0;
}

int cuModuleGetFunction(void **function, void *module, const char *name) {
  (void)module;
  *function = (void *)name;
  return result("cuModuleGetFunction");
}

int cuFuncSetAttribute(void *function, int attribute, int value) {
  printf("  attribute %d of %s is %d\n", attribute, (const char *)function, value);
  return result("cuFuncSetAttribute");
}

/* What lib/CUDA/EmulatedCopies.h takes for a map. */
int cuTensorMapEncodeTiled(uint64_t *map, int type, uint32_t rank, uint64_t address, const uint64_t *extents,
                           const uint64_t *strides, const uint32_t *box, const uint32_t *steps, int interleave,
                           int swizzle, int promotion, int fill) {
  enum { WORDS = 16 };
  (void)promotion;
  printf("  map of type %d, interleave %d, swizzle %d, fill %d, aligned by %d:", type, interleave, swizzle, fill,
         (int)((uintptr_t)map % 64));
  memset(map, 0, WORDS * sizeof *map);
  map[0] = address;
  for (uint32_t i = 0; i < rank; ++i) {
    printf(" %llu/%u", (unsigned long long)extents[i], box[i] * steps[i]);
    map[1 + i] = extents[i];
    map[10 + i] = box[i];
  }
  printf(", strides");
  for (uint32_t i = 0; i + 1 < rank; ++i)
    printf(" %llu", (unsigned long long)(map[6 + i] = strides[i]));
  printf("\n");
  return result("cuTensorMapEncodeTiled");
}

static void fill(void *memory, size_t bytes) {
  static int count;
  const char *folder = getenv("FAKE_CUDA_MEMORY");
  char path[512];
  snprintf(path, sizeof path, "%s/%d", folder ? folder : "", count++);
  FILE *file = folder ? fopen(path, "rb") : 0;
  if (file && (fread(memory, 1, bytes, file) == 0 || fclose(file)))
    printf("  %s cannot be read\n", path);
}

int cuMemAlloc_v2(uint64_t *pointer, size_t bytes) {
  printf("  allocate\n");
  int error = result("cuMemAlloc_v2");
  *pointer = error ? 0 : (uint64_t)(uintptr_t)calloc(1, bytes);
  if (!error)
    fill((void *)(uintptr_t)*pointer, bytes);
  return error;
}

int cuMemFree_v2(uint64_t pointer) {
  printf("  free\n");
  free((void *)(uintptr_t)pointer);
  return 0;
}

static int copy(const char *what, uint64_t to, uint64_t from, size_t bytes, void *stream) {
  printf("  %s: %zu bytes, stream %p\n", what, bytes, stream);
  memcpy((void *)(uintptr_t)to, (void *)(uintptr_t)from, bytes);
  return result(what);
}

int cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t bytes) {
  return copy("copy to the device", to, (uint64_t)(uintptr_t)from, bytes, 0);
}

int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t bytes) {
  return copy("copy from the device", (uint64_t)(uintptr_t)to, from, bytes, 0);
}

int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t bytes, void *stream) {
  return copy("copy to the device", to, (uint64_t)(uintptr_t)from, bytes, stream);
}

int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t bytes, void *stream) {
  return copy("copy from the device", (uint64_t)(uintptr_t)to, from, bytes, stream);
}

/* The kernel on the CPU; an error of the emulator is printed. */
static void run(const char *function, unsigned blocks, unsigned threads, unsigned shared, const void *arguments) {
  const char *path = getenv("FAKE_CUDA_KERNELS");
  void *library = path ? dlopen(path, RTLD_NOW) : 0;
  char name[256], message[512] = "";
  snprintf(name, sizeof name, "launch_%s", function);
  void (*kernel)(const void *, unsigned, unsigned, unsigned, char *, size_t) = 0;
  if (library)
    *(void **)&kernel = dlsym(library, name);
  if (kernel)
    kernel(arguments, blocks, threads, shared, message, sizeof message);
  if (*message)
    printf("  %s: %s\n", function, message);
}

/* Says which of the memory that a test names is among the first arguments, which are pointers, or what the first words
 * of a structure are that is the only argument. */
int cuLaunchKernel(void *function, unsigned blocks_x, unsigned blocks_y, unsigned blocks_z, unsigned threads_x,
                   unsigned threads_y, unsigned threads_z, unsigned shared, void *stream, void **arguments,
                   void **extra) {
  (void)extra;
  unsigned blocks = blocks_x * blocks_y * blocks_z, threads = threads_x * threads_y * threads_z;
  printf("  launch %u blocks of %u threads, %u shared bytes, device %d, stream %p", blocks, threads, shared,
         *(int *)contexts[depth], stream);
  const char *pointers = getenv("FAKE_CUDA_POINTERS"), *words = getenv("FAKE_CUDA_WORDS");
  for (int i = 0; pointers && i < atoi(pointers); ++i)
    printf("%s%p", i ? " " : ", memory ", *(void **)arguments[i]);
  for (int i = 0; words && i < atoi(words); ++i)
    printf("%s%#llx", i ? " " : ", given ", ((unsigned long long **)arguments)[0][i]);
  printf("\n");
  int error = result("cuLaunchKernel");
  if (!error)
    run(function, blocks, threads, shared, arguments[0]);
  return error;
}

int cuStreamSynchronize(void *stream) {
  printf("  wait for stream %p\n", stream);
  return 0;
}

int cuCtxSynchronize(void) {
  printf("  wait for the device\n");
  return 0;
}

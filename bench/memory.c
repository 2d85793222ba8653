/*===- memory.c - How much memory a kernel has at most at one time --------===*
 *
 * Linked with a kernel's object, whose calls of malloc, calloc, free and dlsym come here (--wrap): from dlsym it has
 * CUDA's functions that give memory of the device.
 *
 *===----------------------------------------------------------------------===*/

#include <malloc.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void __real_free(void *block);
void *__real_dlsym(void *library, const char *name);

typedef struct {
  atomic_size_t held, most;
} counter;

static counter host, device;

size_t most_memory(void) { return atomic_load(&host.most); }

size_t most_device_memory(void) { return atomic_load(&device.most); }

static void take(counter *of, size_t bytes) {
  size_t now = atomic_fetch_add(&of->held, bytes) + bytes, before = atomic_load(&of->most);
  while (now > before && !atomic_compare_exchange_weak(&of->most, &before, now))
    ;
}

static void *taken(void *block) {
  take(&host, malloc_usable_size(block)); /* 0 of a null pointer */
  return block;
}

void *__wrap_malloc(size_t size) { return taken(__real_malloc(size)); }

void *__wrap_calloc(size_t count, size_t size) { return taken(__real_calloc(count, size)); }

void __wrap_free(void *block) {
  atomic_fetch_sub(&host.held, malloc_usable_size(block));
  __real_free(block);
}

/* What the driver gave and has not got back; it is asked in one thread. */
enum { BLOCKS = 64, OUT_OF_MEMORY = 2 };
static struct {
  uint64_t address;
  size_t bytes;
} blocks[BLOCKS];
static int (*allocate)(uint64_t *, size_t), (*release)(uint64_t);

static int counting_allocate(uint64_t *address, size_t bytes) {
  int index = 0;
  while (index < BLOCKS && blocks[index].bytes)
    ++index;
  int error = index < BLOCKS ? allocate(address, bytes) : OUT_OF_MEMORY;
  if (error)
    return error;
  blocks[index].address = *address;
  blocks[index].bytes = bytes;
  take(&device, bytes);
  return 0;
}

static int counting_release(uint64_t address) {
  for (int index = 0; index < BLOCKS; ++index)
    if (blocks[index].bytes && blocks[index].address == address) {
      atomic_fetch_sub(&device.held, blocks[index].bytes);
      blocks[index].bytes = 0;
      break;
    }
  return release(address);
}

void *__wrap_dlsym(void *library, const char *name) {
  void *found = __real_dlsym(library, name);
  if (!strcmp(name, "cuMemAlloc_v2")) {
    allocate = (int (*)(uint64_t *, size_t))found;
    return (void *)counting_allocate;
  }
  if (!strcmp(name, "cuMemFree_v2")) {
    release = (int (*)(uint64_t))found;
    return (void *)counting_release;
  }
  return found;
}

/*===- Workspace.c - The memory of a kernel's tiles, used again -----------===*
 *
 * Takes the place of Halide's own functions. A kernel asks for the same few blocks for every tile of every call;
 * malloc would give large ones back to the system each time and fault their pages in again (measured: a quarter of an
 * attention's time). Blocks are powers of two, but for large ones; freed ones wait here in slots, a few for each size,
 * that belong to no thread, so that none is lost when a thread ends; each thread looks into the same slots first.
 *
 *===----------------------------------------------------------------------===*/

#include "Internal.h"

enum {
  ALIGNMENT = 128, /* of blocks: more than any vector */
  GROUPS = 64,     /* threads that have slots of their own, unless their addresses collide */
  SLOTS = 8,       /* of a group, for each size */
  SMALLEST = 7,    /* power of two that is the size of a block */
  LARGEST = 22,    /* that is kept: larger ones, such as a long tensor between two statements, go back to the system */
  ROUNDED = 20,    /* the largest that is a power of two; others are as large as they must be */
  HUGE_PAGE = 1 << 21,
  MADVISE_HUGE_PAGE = 14, /* MADV_HUGEPAGE */
};

/* What stands in front of a block. */
typedef struct {
  void *allocation; /* what malloc gave */
  size_t capacity;  /* bytes of the block */
} block_header;

static void *kept[GROUPS][LARGEST - SMALLEST + 1][SLOTS];

static block_header *header(void *block) { return (block_header *)block - 1; }

/* The power of two for a block of `size` bytes. */
static int power_for(size_t size) {
  return size <= (size_t)1 << SMALLEST ? SMALLEST : 64 - __builtin_clzll((unsigned long long)size - 1);
}

static void **slots(int power) {
  /* The message of the last error is the thread's own; multiplying mixes the bits in which threads differ. */
  uint64_t thread = (uint64_t)(uintptr_t)attn_last_error();
  return kept[(thread >> 6) * UINT64_C(0x9E3779B97F4A7C15) >> 58][power - SMALLEST];
}

/* Asks for huge pages in a block that the system gets back: there is a fault for each of its pages in every call. That
 * of 16 MiB takes 9 ms with pages of 4 KiB (a virtual machine on Zen 4). It may be asked in vain. */
static void prefer_huge_pages(void *block, size_t size) {
  uintptr_t first = ((uintptr_t)block + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
  uintptr_t end = ((uintptr_t)block + size) / HUGE_PAGE * HUGE_PAGE;
  if (first < end)
    (void)madvise((void *)first, end - first, MADVISE_HUGE_PAGE);
}

void *halide_malloc(void *context, size_t size) {
  (void)context;
  int power = power_for(size);
  if (power <= LARGEST) {
    void **own = slots(power);
    for (int slot = 0; slot < SLOTS; ++slot)
      if (__atomic_load_n(&own[slot], __ATOMIC_RELAXED)) {
        void *block = __atomic_exchange_n(&own[slot], NULL, __ATOMIC_ACQUIRE);
        if (block && header(block)->capacity >= size)
          return block;
        if (block) /* a large one that is too small from now on */
          free(header(block)->allocation);
      }
    if (power <= ROUNDED)
      size = (size_t)1 << power;
  }
  size_t extra = ALIGNMENT + sizeof(block_header);
  char *allocation = size <= SIZE_MAX - extra ? malloc(size + extra) : NULL;
  if (!allocation)
    return NULL;
  uintptr_t first = (uintptr_t)allocation + sizeof(block_header);
  void *block = allocation + sizeof(block_header) + (ALIGNMENT - first % ALIGNMENT) % ALIGNMENT;
  *header(block) = (block_header){allocation, size};
  if (power > LARGEST)
    prefer_huge_pages(block, size);
  return block;
}

void halide_free(void *context, void *block) {
  (void)context;
  if (!block)
    return;
  int power = power_for(header(block)->capacity);
  if (power <= LARGEST) {
    void **own = slots(power);
    for (int slot = 0; slot < SLOTS; ++slot) {
      void *none = __atomic_load_n(&own[slot], __ATOMIC_RELAXED);
      if (!none && __atomic_compare_exchange_n(&own[slot], &none, block, 0, __ATOMIC_RELEASE, __ATOMIC_RELAXED))
        return;
    }
  }
  free(header(block)->allocation);
}

/*===- Workspace.c - The memory of a kernel's tiles, used again -----------===*
 *
 * Takes the place of Halide's own functions. A kernel asks for the same few blocks for every tile of every call;
 * malloc would give large ones back to the system each time and fault their pages in again (measured: a quarter of an
 * attention's time). Freed blocks wait here in slots that belong to no thread, so that none is lost when a thread ends;
 * each thread looks into the same few slots first.
 *
 *===----------------------------------------------------------------------===*/

#include "Internal.h"

enum {
  ALIGNMENT = 128,        /* of blocks: more than any vector */
  GROUPS = 64,            /* threads that have slots of their own, unless their addresses collide */
  SLOTS = 16,             /* of a group */
  LARGEST_KEPT = 1 << 20, /* larger blocks, such as a tensor between two statements, go back to the system */
};

/* What stands in front of a block. */
typedef struct {
  void *allocation; /* what malloc gave */
  size_t capacity;  /* bytes of the block */
} block_header;

static void *kept[GROUPS][SLOTS];

static block_header *header(void *block) { return (block_header *)block - 1; }

static void **slots(void) {
  /* The message of the last error is the thread's own; multiplying mixes the bits in which threads differ. */
  uint64_t thread = (uint64_t)(uintptr_t)attn_last_error();
  return kept[(thread >> 6) * UINT64_C(0x9E3779B97F4A7C15) >> 58];
}

static void release(void *block) {
  if (block)
    free(header(block)->allocation);
}

void *halide_malloc(void *context, size_t size) {
  (void)context;
  void **own = slots();
  for (int slot = 0; slot < SLOTS && size <= LARGEST_KEPT; ++slot) {
    if (!__atomic_load_n(&own[slot], __ATOMIC_RELAXED))
      continue;
    /* Whoever takes a block out of its slot owns it, and only then may look at it. */
    void *block = __atomic_exchange_n(&own[slot], NULL, __ATOMIC_ACQUIRE);
    if (!block)
      continue;
    size_t capacity = header(block)->capacity;
    if (capacity >= size && capacity / 2 <= size)
      return block;
    release(__atomic_exchange_n(&own[slot], block, __ATOMIC_RELEASE));
  }
  size_t extra = ALIGNMENT + sizeof(block_header);
  char *allocation = size <= SIZE_MAX - extra ? malloc(size + extra) : NULL;
  if (!allocation)
    return NULL;
  uintptr_t first = (uintptr_t)allocation + sizeof(block_header);
  void *block = allocation + sizeof(block_header) + (ALIGNMENT - first % ALIGNMENT) % ALIGNMENT;
  *header(block) = (block_header){allocation, size};
  return block;
}

void halide_free(void *context, void *block) {
  (void)context;
  if (!block || header(block)->capacity > LARGEST_KEPT) {
    release(block);
    return;
  }
  void **own = slots();
  for (int slot = 0; slot < SLOTS; ++slot) {
    void *none = NULL;
    if (__atomic_compare_exchange_n(&own[slot], &none, block, 0, __ATOMIC_RELEASE, __ATOMIC_RELAXED))
      return;
  }
  /* All slots are taken, by blocks of a size that is perhaps no longer asked for. */
  release(__atomic_exchange_n(&own[header(block)->capacity / ALIGNMENT % SLOTS], block, __ATOMIC_ACQ_REL));
}

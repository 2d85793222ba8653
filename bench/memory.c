/*===- memory.c - How much memory a kernel has at most at one time --------===*
 *
 * Linked with a kernel's object, whose calls of malloc, calloc and free come here (--wrap).
 *
 *===----------------------------------------------------------------------===*/

#include <malloc.h>
#include <stdatomic.h>
#include <stddef.h>

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void __real_free(void *block);

static atomic_size_t held, most;

size_t most_memory(void) { return atomic_load(&most); }

static void *taken(void *block) {
  size_t bytes = malloc_usable_size(block); /* 0 of a null pointer */
  size_t now = atomic_fetch_add(&held, bytes) + bytes, before = atomic_load(&most);
  while (now > before && !atomic_compare_exchange_weak(&most, &before, now))
    ;
  return block;
}

void *__wrap_malloc(size_t size) { return taken(__real_malloc(size)); }

void *__wrap_calloc(size_t count, size_t size) { return taken(__real_calloc(count, size)); }

void __wrap_free(void *block) {
  atomic_fetch_sub(&held, malloc_usable_size(block));
  __real_free(block);
}

#include "counter.h"

#include <errno.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stddef.h>

// glibc's own, under the names that it keeps for this purpose.
void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
void *__libc_memalign(size_t, size_t);
void __libc_free(void *);

static _Thread_local long count, bytes;
static _Atomic long all;

// The size field before each piece of memory.
static const long overhead = sizeof(size_t);

static void *taken(void *memory) {
  if (memory) {
    count += 1;
    bytes += (long)malloc_usable_size(memory) + overhead;
  }
  return memory;
}

static void given_back(void *memory) {
  if (memory) bytes -= (long)malloc_usable_size(memory) + overhead;
}

static void count_for_all(void) { atomic_fetch_add_explicit(&all, 1, memory_order_relaxed); }

void *malloc(size_t size) {
  count_for_all();
  return taken(__libc_malloc(size));
}

void *calloc(size_t number, size_t size) { return taken(__libc_calloc(number, size)); }

void *realloc(void *old, size_t size) {
  given_back(old);
  return taken(__libc_realloc(old, size));
}

void *memalign(size_t alignment, size_t size) {
  count_for_all();
  return taken(__libc_memalign(alignment, size));
}

void *aligned_alloc(size_t alignment, size_t size) { return memalign(alignment, size); }

int posix_memalign(void **result, size_t alignment, size_t size) {
  void *memory = memalign(alignment, size);
  if (memory == NULL) return ENOMEM;
  *result = memory;
  return 0;
}

void free(void *memory) {
  given_back(memory);
  __libc_free(memory);
}

long allocation_count(void) { return count; }

long allocation_count_of_all_threads(void) { return all; }

long live_bytes(void) { return bytes; }

#include "writer.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { PAGE = 4096, HEAD = sizeof(struct sdm_map_record), SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL };

int sealed_memory(uint64_t size, int seals) {
  int descriptor = memfd_create("map", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  CHECK(descriptor >= 0 && fchmod(descriptor, 0600) == 0 && ftruncate(descriptor, (off_t)size) == 0);
  CHECK(!seals || fcntl(descriptor, F_ADD_SEALS, seals) == 0);
  return descriptor;
}

int reopened(int descriptor) {
  char name[64];
  snprintf(name, sizeof name, "/proc/self/fd/%d", descriptor);
  int other = open(name, O_RDONLY | O_CLOEXEC);
  CHECK(other >= 0);
  return other;
}

static uint64_t rounded(uint64_t size, uint64_t unit) { return (size + unit - 1) / unit * unit; }

static void open_page(struct writer *w) {
  w->page = sealed_memory(PAGE, SEALS);
  w->waiting = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, w->page, 0);
  CHECK(w->waiting != MAP_FAILED);
}

static void close_page(struct writer *w) {
  if (w->waiting) munmap((void *)w->waiting, PAGE);
  if (w->page >= 0) close(w->page);
}

void writer_change_page(struct writer *w) {
  close_page(w);
  open_page(w);
}

struct writer writer_open(struct shape s) {
  uint64_t ring = PAGE + rounded(s.slots * 8, 64), size = rounded(ring + s.ring_bytes, PAGE);
  struct writer w = {.size = size, .memory = sealed_memory(size, SEALS), .page = -1, .first = s.position, .end = s.position, .id = s.id};
  w.region = reopened(w.memory);
  uint8_t *bytes = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, w.memory, 0);
  CHECK(bytes != MAP_FAILED);
  w.header = (void *)bytes;
  w.index = (void *)(bytes + PAGE);
  w.ring = bytes + ring;
  if (s.has_page) open_page(&w);
  struct sdm_map_header *h = w.header;
  h->magic = SDM_MAP_MAGIC;
  h->version = SDM_MAP_VERSION;
  h->header_bytes = sizeof *h;
  h->generation = s.generation;
  h->epoch = s.epoch;
  h->region_bytes = size;
  h->slots = s.slots;
  h->index_offset = PAGE;
  h->ring_offset = ring;
  h->ring_bytes = s.ring_bytes;
  atomic_store(&h->first, s.position);
  atomic_store(&h->end, s.position);
  return w;
}

void writer_close(struct writer *w) {
  munmap(w->header, w->size);
  close_page(w);
  close(w->memory);
  close(w->region);
}

static _Atomic(uint64_t) *slot(struct writer *w, uint64_t position) { return &w->index[position & (w->header->slots - 1)]; }

/* Drops the oldest event, which `first` shows before its bytes are used again. */
static void drop(struct writer *w) {
  w->first++;
  if (w->first < w->end) w->tail = atomic_load_explicit(slot(w, w->first), memory_order_relaxed);
}

/* Whether a record of these bytes has room at w->next without an event that is held. */
static bool has_room(const struct writer *w, uint64_t bytes) {
  if (w->first == w->end) return true;
  if (w->next > w->tail) return w->next + bytes <= w->header->ring_bytes;
  return w->next + bytes <= w->tail;
}

/* The thread sanitizer is told that readers may look at these bytes: they are stored one by one. */
static void store(uint8_t *to, const void *from, size_t size) {
#ifdef __SANITIZE_THREAD__
  for (size_t i = 0; i < size; i++)
    atomic_store_explicit((_Atomic(uint8_t) *)(to + i), ((const uint8_t *)from)[i], memory_order_relaxed);
#else
  memcpy(to, from, size);
#endif
}

void writer_put(struct writer *w, const void *data, uint32_t size) {
  uint64_t bytes = rounded(HEAD + size, 8), before = w->first;
  CHECK(bytes <= w->header->ring_bytes);
  if (w->end - w->first == w->header->slots) drop(w);
  if (w->next + bytes > w->header->ring_bytes) { /* it lies in one piece, at the start */
    while (w->first < w->end && w->tail >= w->next) drop(w);
    w->next = 0;
  }
  while (!has_room(w, bytes)) drop(w);
  if (w->first == w->end) w->tail = w->next;
  if (w->first != before) {
    /* At most the end that readers know: a batch is published in parts if it needs all of the room. */
    if (w->first > atomic_load_explicit(&w->header->end, memory_order_relaxed)) writer_publish(w);
    atomic_store_explicit(&w->header->first, w->first, memory_order_relaxed);
#ifndef __SANITIZE_THREAD__
    atomic_thread_fence(memory_order_release);
#endif
  }
  struct sdm_map_record record = {.size = size, .id = ++w->id, .time = 1000000 + w->id};
  store(w->ring + w->next, &record, sizeof record);
  store(w->ring + w->next + HEAD, data, size);
  atomic_store_explicit(slot(w, w->end), w->next, memory_order_relaxed);
  w->next += bytes;
  w->end++;
}

static void wake(struct writer *w) {
  atomic_fetch_add(&w->header->wake, 1);
  if (w->waiting) {
    if (!atomic_exchange(w->waiting, 0)) return;
    atomic_fetch_add(&w->header->wake, 1);
  }
  w->wakes++;
  syscall(SYS_futex, &w->header->wake, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void writer_publish(struct writer *w) {
  atomic_store_explicit(&w->header->end, w->end, memory_order_release);
  wake(w);
}

void writer_add(struct writer *w, const void *data, uint32_t size) {
  writer_put(w, data, size);
  writer_publish(w);
}

void writer_set_state(struct writer *w, enum sdm_map_state state) {
  atomic_store_explicit(&w->header->state, state, memory_order_release);
  wake(w);
}

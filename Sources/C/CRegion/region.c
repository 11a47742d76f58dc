/* The region of a mapped stream: what is required of it, and how its events are copied. See streamd-map.h for its layout and rules.
 *
 * A region is only read, and may have any content at any moment: what is used is read once into private memory and then checked.
 * An access cannot fault, because the seals of the descriptor forbid that it shrinks, and every access is within its size.
 *
 * Events that lie side by side share one copy and one validation. The copy is a plain one, which the writer may disturb: the C
 * standard calls that a race, but its bytes are not used unless `first` shows that they were not overwritten meanwhile. */
#include "region.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { HEAD = sizeof(struct sdm_map_record), BOUNDS_ATTEMPTS = 16, SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL };
_Static_assert(ATOMIC_LLONG_LOCK_FREE == 2 && ATOMIC_INT_LOCK_FREE == 2, "read-only memory admits no other atomics");

static const struct sdm_map_header *header_of(const struct region *r) { return (const void *)r->bytes; }

/* --- opening and closing --- */

/* Checks that a descriptor is a sealed memfd, and sets its size. */
static const char *check_descriptor(int descriptor, uint64_t *size) {
  struct stat status;
  if (fstat(descriptor, &status) < 0 || !S_ISREG(status.st_mode)) return "a descriptor of the map is no memory";
  int seals = fcntl(descriptor, F_GET_SEALS);
  if (seals < 0 || (seals & SEALS) != SEALS) return "a descriptor of the map is not sealed";
  *size = (uint64_t)status.st_size;
  return NULL;
}

static bool is_within(uint64_t offset, uint64_t bytes, uint64_t size) { return offset <= size && bytes <= size - offset; }

/* Checks the fields that never change, and keeps them. */
static const char *read_header(struct region *r, uint64_t generation) {
  struct sdm_map_header h;
  memcpy(&h, r->bytes, offsetof(struct sdm_map_header, constant));
  if (h.magic != SDM_MAP_MAGIC) return "the region is no mapped stream";
  if (h.version != SDM_MAP_VERSION) return "the layout of the region has another version";
  if (h.header_bytes != sizeof h || h.region_bytes != r->size || h.generation != generation)
    return "the header of the region is not that of the reply";
  if (!h.slots || (h.slots & (h.slots - 1)) || h.slots > r->size / 8 || h.index_offset % 64 || h.ring_offset % 64 || h.ring_bytes < HEAD)
    return "the layout of the region is impossible";
  uint64_t index_bytes = h.slots * 8;
  if (h.index_offset < sizeof h || h.ring_offset < sizeof h || !is_within(h.index_offset, index_bytes, r->size) ||
      !is_within(h.ring_offset, h.ring_bytes, r->size))
    return "the index or the ring lies outside of the region";
  if (h.index_offset < h.ring_offset + h.ring_bytes && h.ring_offset < h.index_offset + index_bytes)
    return "the index and the ring of the region overlap";
  r->generation = generation;
  r->epoch = h.epoch;
  r->slots = h.slots;
  r->ring_bytes = h.ring_bytes;
  r->index = (const void *)(r->bytes + h.index_offset);
  r->ring = r->bytes + h.ring_offset;
  return NULL;
}

static void *map(size_t size, int protection, int descriptor) {
  void *place = mmap(NULL, size, protection, MAP_SHARED, descriptor, 0);
  return place == MAP_FAILED ? NULL : place;
}

int region_open(struct region *r, const int descriptors[2], uint64_t expected, uint64_t generation, const char **why) {
  *r = (struct region){.event_limit = EVENT_LIMIT};
  uint64_t size, page = (uint64_t)sysconf(_SC_PAGESIZE);
  if ((*why = check_descriptor(descriptors[0], &size))) return -EPROTO;
  *why = "the size of the region is not that of the reply";
  if (size != expected || size < sizeof(struct sdm_map_header) || size % page || size > SIZE_MAX / 2) return -EPROTO;
  *why = "the region cannot be mapped";
  r->size = (size_t)size;
  r->bytes = map(r->size, PROT_READ, descriptors[0]);
  if (!r->bytes) return errno == ENOMEM ? -ENOMEM : -EPROTO;
  int result = region_take_page(r, descriptors[1], why);
  if (result == 0 && (*why = read_header(r, generation))) result = -EPROTO;
  if (result < 0) region_close(r);
  return result;
}

int region_take_page(struct region *r, int descriptor, const char **why) {
  uint64_t size, page = (uint64_t)sysconf(_SC_PAGESIZE);
  _Atomic(uint32_t) *waiting = NULL;
  if (descriptor >= 0) {
    if ((*why = check_descriptor(descriptor, &size))) return -EPROTO;
    *why = "the waiting page is smaller than a page";
    if (size < page) return -EPROTO;
    *why = "the waiting page cannot be mapped";
    if (!(waiting = map((size_t)page, PROT_READ | PROT_WRITE, descriptor))) return errno == ENOMEM ? -ENOMEM : -EPROTO;
  }
  if (r->waiting) munmap((void *)r->waiting, (size_t)page);
  r->waiting = waiting;
  return 0;
}

void region_close(struct region *r) {
  if (r->waiting) munmap((void *)r->waiting, (size_t)sysconf(_SC_PAGESIZE));
  if (r->bytes) munmap((void *)(uintptr_t)r->bytes, r->size);
  *r = (struct region){0};
}

/* --- reading --- */

uint32_t region_state(const struct region *r) { return atomic_load_explicit(&header_of(r)->state, memory_order_acquire); }

uint64_t region_end(const struct region *r) { return atomic_load_explicit(&header_of(r)->end, memory_order_acquire); }

static uint64_t first_of(const struct region *r, memory_order order) { return atomic_load_explicit(&header_of(r)->first, order); }

/* Which events are held. */
static enum found find(const struct region *r, uint64_t position, uint64_t *first, uint64_t *end) {
  uint64_t e = region_end(r);
  for (int attempt = 0; attempt < BOUNDS_ATTEMPTS; attempt++) {
    uint64_t f = first_of(r, memory_order_acquire);
    if (f <= e && e - f <= r->slots && position <= e) {
      *first = f;
      *end = e;
      return position == e ? FOUND_NOTHING : position < f ? FOUND_OVERTAKEN : FOUND_EVENTS;
    }
    e = region_end(r);
    if ((f > e || e - f > r->slots || position > e) && first_of(r, memory_order_acquire) == f) return FOUND_DAMAGE;
  }
  return FOUND_AGAIN;
}

static uint64_t place_of(const struct region *r, uint64_t position) {
  return atomic_load_explicit(&r->index[position & (r->slots - 1)], memory_order_relaxed);
}

static bool is_place(const struct region *r, uint64_t place) { return place % 8 == 0 && is_within(place, HEAD, r->ring_bytes); }

/* The bytes of a record, or 0: it does not end within the ring, or has more than the limit (`is_large`). */
static uint64_t record_bytes(const struct region *r, uint64_t place, bool *is_large) {
  uint32_t size = atomic_load_explicit((const _Atomic(uint32_t) *)(const void *)(r->ring + place), memory_order_relaxed);
  bool is_whole = is_within(place, HEAD + (uint64_t)size, r->ring_bytes);
  *is_large = is_whole && size > r->event_limit;
  return is_whole && !*is_large ? HEAD + (uint64_t)size : 0;
}

static bool reserve(struct copy *to, size_t size) {
  if (size <= to->capacity) return true;
  if (size < COPY_BYTES) size = COPY_BYTES;
  uint8_t *bytes = malloc(size);
  if (!bytes) return false;
  free(to->bytes);
  to->bytes = bytes;
  to->capacity = size;
  return true;
}

#ifdef __has_feature /* of clang */
#define HAS_FEATURE(name) __has_feature(name)
#else
#define HAS_FEATURE(name) 0
#endif
#if defined(__SANITIZE_THREAD__) || HAS_FEATURE(thread_sanitizer)
/* The thread sanitizer knows no fence, and no race that does no harm. */
static void copy_bytes(uint8_t *to, const uint8_t *from, size_t size) {
  for (size_t i = 0; i < size; i++) to[i] = atomic_load_explicit((const _Atomic(uint8_t) *)(from + i), memory_order_relaxed);
}
static void finish_copy(void) {}
#else
static void copy_bytes(uint8_t *to, const uint8_t *from, size_t size) { memcpy(to, from, size); }
static void finish_copy(void) { atomic_thread_fence(memory_order_acquire); }
#endif

/* Copies records from `position` on that lie side by side, at most `most`; those behind the end of the ring, and those that would make
 * a long copy, are for the next call. */
static enum found copy_records(const struct region *r, uint64_t position, uint64_t most, struct copy *to) {
  uint64_t start = place_of(r, position), last = start, bytes;
  bool is_large;
  if (!is_place(r, start)) return FOUND_DAMAGE;
  if (most > COPY_EVENTS) most = COPY_EVENTS;
  uint32_t count = 1;
  to->offsets[0] = 0;
  for (; count < most; count++) {
    uint64_t place = place_of(r, position + count);
    if (place < last + HEAD || place - start > COPY_BYTES - HEAD || !is_place(r, place)) break;
    to->offsets[count] = (uint32_t)(place - start);
    last = place;
  }
  bytes = record_bytes(r, last, &is_large);
  if (count > 1 && (!bytes || last - start + bytes > COPY_BYTES)) {
    count--; /* the end of the one before is then checked in the copy */
    bytes = last - start;
  } else if (bytes) {
    bytes += last - start;
  } else {
    return is_large ? FOUND_TOO_LARGE : FOUND_DAMAGE;
  }
  if (!reserve(to, (size_t)bytes)) return FOUND_NO_MEMORY;
  copy_bytes(to->bytes, r->ring + start, (size_t)bytes);
  to->count = count;
  to->size = (uint32_t)bytes;
  return FOUND_EVENTS;
}

/* Each record must end before the next one. The first one that is too large, and those after it, are for the next call. */
static enum found examine(const struct region *r, struct copy *c) {
  for (uint32_t i = c->next; i < c->count; i++) {
    uint32_t end = i + 1 < c->count ? c->offsets[i + 1] : c->size, size;
    memcpy(&size, c->bytes + c->offsets[i], sizeof size);
    if (end - c->offsets[i] < HEAD || size > end - c->offsets[i] - HEAD) return FOUND_DAMAGE;
    if (size > r->event_limit) {
      if (i == c->next) return FOUND_TOO_LARGE;
      c->count = i;
    }
  }
  return FOUND_EVENTS;
}

enum found region_copy(const struct region *r, uint64_t position, uint64_t most, struct copy *to, uint64_t *first, uint64_t *end) {
  to->count = to->next = 0;
  enum found found = find(r, position, first, end);
  if (found != FOUND_EVENTS) return found;
  found = copy_records(r, position, *end - position < most ? *end - position : most, to);
  finish_copy();
  uint64_t oldest = first_of(r, memory_order_relaxed);
  if (oldest > position) { /* events were overwritten meanwhile */
    if (oldest - position >= to->count) to->count = 0;
    to->next = to->count ? (uint32_t)(oldest - position) : 0;
  }
  if (oldest > position && !to->count) return FOUND_AGAIN;
  if (found == FOUND_EVENTS) found = examine(r, to);
  if (found != FOUND_EVENTS) to->count = to->next = 0;
  return found;
}

/* --- waiting --- */

int region_wait(const struct region *r, uint64_t position, uint64_t usec) {
  const struct sdm_map_header *h = header_of(r);
  if (r->waiting) atomic_store_explicit(r->waiting, 1, memory_order_seq_cst);
  uint32_t wake = atomic_load_explicit(&h->wake, memory_order_seq_cst);
  /* Cleared by the writer, which may have woken everybody before this one sleeps. Later it changes `wake` first. */
  if (r->waiting && !atomic_load_explicit(r->waiting, memory_order_seq_cst)) return 0;
  if (region_end(r) != position || region_state(r) != SDM_MAP_LIVE) return 0;
  struct timespec time = {.tv_sec = (time_t)(usec / 1000000), .tv_nsec = (long)(usec % 1000000) * 1000};
  if (syscall(SYS_futex, &h->wake, FUTEX_WAIT, wake, &time, NULL, 0) == 0) return 0;
  return errno == EAGAIN || errno == ETIMEDOUT ? 0 : -errno;
}

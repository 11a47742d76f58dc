/* region.h: the reader of a mapped stream's memory, for libstreamd and for MappedLog. streamd-map.h has the layout and the rules. */
#ifndef STREAMD_REGION_H
#define STREAMD_REGION_H
#include "streamd-map.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

enum {
  COPY_EVENTS = 512,       /* of a region, in one copy */
  COPY_BYTES = 16 << 10,   /* likewise, unless one event has more: it stays in a first cache */
  EVENT_LIMIT = 64 << 20,  /* bytes of an event; as StreamClient has it, unless its user chooses another limit */
};

struct region {
  const uint8_t *bytes;       /* NULL: none */
  size_t size;
  _Atomic(uint32_t) *waiting; /* the waiting page; NULL: none */
  uint64_t generation, epoch, slots, ring_bytes;
  const _Atomic(uint64_t) *index;
  const uint8_t *ring;
  uint32_t event_limit;       /* bytes of an event, at most 1 GiB: see FOUND_TOO_LARGE */
};
/* Private copies of events. */
struct copy {
  uint8_t *bytes;
  size_t capacity;
  uint32_t count, next; /* events; the first one that is valid and was not taken */
  uint32_t size;        /* bytes of all records */
  uint32_t offsets[COPY_EVENTS];
};
enum found {
  FOUND_EVENTS,
  FOUND_NOTHING,   /* there is no event at this position yet */
  FOUND_OVERTAKEN, /* the event at this position is not held any more */
  FOUND_AGAIN,     /* it was overwritten meanwhile */
  FOUND_TOO_LARGE, /* the event at this position has more bytes than `event_limit` */
  FOUND_DAMAGE,
  FOUND_NO_MEMORY,
};
/* Maps what a reply has brought: two descriptors, the second of which may be -1, and the region's size and generation. 0, -EPROTO or
 * -ENOMEM, and a sentence. The descriptors stay open. */
int region_open(struct region *r, const int descriptors[2], uint64_t size, uint64_t generation, const char **why);
/* Uses the waiting page that a reply has brought (-1: none) in place of the one before, which the daemon may have forgotten. */
int region_take_page(struct region *r, int descriptor, const char **why);
void region_close(struct region *r);
uint32_t region_state(const struct region *r);
uint64_t region_end(const struct region *r);
/* Copies at most `most` events from `position` on. Those before `to->next` were overwritten meanwhile. If the reader is overtaken, the
 * events from `first` up to `end` are held. */
enum found region_copy(const struct region *r, uint64_t position, uint64_t most, struct copy *to, uint64_t *first, uint64_t *end);
/* Waits, at most for `usec`, until there is more than `position`. 0: look again; or a negative errno. */
int region_wait(const struct region *r, uint64_t position, uint64_t usec);
/* The futex on which the region's readers wait. */
static inline const void *region_wake_word(const struct region *r) { return r->bytes + offsetof(struct sdm_map_header, wake); }

/* A copied event; `data` is valid until the next copy. */
struct copied {
  uint64_t id, time;
  const uint8_t *data;
  uint32_t size;
};
/* The event `index` after `next`. Members are read one by one: a whole record in between would be stored by halves and loaded across
 * them, which takes longer than all else. */
static inline struct copied copied_event(const struct copy *c, uint32_t index) {
  const uint8_t *record = c->bytes + c->offsets[c->next + index];
  struct copied e = {.data = record + sizeof(struct sdm_map_record)};
  memcpy(&e.id, record + offsetof(struct sdm_map_record, id), sizeof e.id);
  memcpy(&e.time, record + offsetof(struct sdm_map_record, time), sizeof e.time);
  memcpy(&e.size, record + offsetof(struct sdm_map_record, size), sizeof e.size);
  return e;
}
#endif

/* writer.h: a writer of mapped streams, as streamd-map.h describes it. It is what a daemon does, without one. */
#ifndef WRITER_H
#define WRITER_H
#include "check.h"
#include "streamd-map.h"

struct writer {
  struct sdm_map_header *header;
  _Atomic(uint32_t) *waiting;       /* NULL: no waiting page */
  _Atomic(uint64_t) *index;
  uint8_t *ring;
  uint64_t size;                    /* of the region */
  int memory, region, page;         /* descriptors: for writing, for readers, and the waiting page, or -1 */
  uint64_t first, end, next, tail;  /* positions; offsets in the ring: of the next record, and of the oldest one */
  uint64_t id;                      /* of the last event */
  uint64_t wakes;                   /* how often somebody waited */
};

struct shape {
  uint64_t slots, ring_bytes, generation, epoch, position, id;
  bool has_page;
};

struct writer writer_open(struct shape shape);
void writer_close(struct writer *w);
void writer_change_page(struct writer *w); /* forgets the waiting page, and has another one */
/* Makes room for a record, and writes it; it is not visible yet. */
void writer_put(struct writer *w, const void *data, uint32_t size);
void writer_publish(struct writer *w);
void writer_add(struct writer *w, const void *data, uint32_t size); /* both */
void writer_set_state(struct writer *w, enum sdm_map_state state);
int sealed_memory(uint64_t size, int seals); /* a memfd of mode 0600 */
int reopened(int descriptor);                /* for reading only */
#endif

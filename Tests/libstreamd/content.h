/* content.h: events whose size and bytes follow from their id, so that a torn one is found. */
#ifndef CONTENT_H
#define CONTENT_H
#include "writer.h"

enum { LARGEST = 400 };

static inline uint64_t word_of(uint64_t id, uint32_t index) { return (id + index) * UINT64_C(0x9E3779B97F4A7C15); }

static inline uint32_t size_of(uint64_t id) { return (uint32_t)(id * 2654435761u >> 7) % (LARGEST / 8) * 8; }

static inline void write_next(struct writer *w) {
  uint64_t words[LARGEST / 8];
  uint32_t size = size_of(w->id + 1);
  for (uint32_t i = 0; i < size / 8; i++) words[i] = word_of(w->id + 1, i);
  writer_put(w, words, size);
}

static inline void expect_whole(const sdm_event *e) {
  CHECK(e->size == size_of(e->id) && e->time == 1000000 + e->id);
  for (uint32_t i = 0; i < e->size / 8; i++) {
    uint64_t word;
    memcpy(&word, (const uint8_t *)e->data + i * 8, 8);
    CHECK(word == word_of(e->id, i));
  }
}
#endif

/* The readers of mapped streams against regions, replies and descriptors of a hostile daemon: errors, and no fault, loop or leak. */
#include "mapping.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

static const struct shape plain = {.slots = 16, .ring_bytes = 4096, .generation = 3, .epoch = 7, .has_page = true};

static int try(struct peer *p, const struct writer *w, uint64_t position) {
  sdm_mapped *m = NULL;
  put_map(p, p->c->next_id, w, position, "0");
  int result = sdm_map(p->c, &m, "quotes", NULL);
  sdm_mapped_unref(m);
  return result;
}

/* --- headers --- */

static void foreign_magic(struct sdm_map_header *h) { h->magic++; }
static void next_version(struct sdm_map_header *h) { h->version = 2; }
static void short_header(struct sdm_map_header *h) { h->header_bytes = 64; }
static void other_generation(struct sdm_map_header *h) { h->generation++; }
static void larger(struct sdm_map_header *h) { h->region_bytes += 4096; }
static void no_slots(struct sdm_map_header *h) { h->slots = 0; }
static void odd_slots(struct sdm_map_header *h) { h->slots = 15; }
static void many_slots(struct sdm_map_header *h) { h->slots = UINT64_C(1) << 63; }
static void more_slots(struct sdm_map_header *h) { h->slots = 2048; }
static void odd_index(struct sdm_map_header *h) { h->index_offset += 8; }
static void index_in_header(struct sdm_map_header *h) { h->index_offset = 128; }
static void far_index(struct sdm_map_header *h) { h->index_offset = UINT64_MAX - 63; }
static void index_at_end(struct sdm_map_header *h) { h->index_offset = h->region_bytes - 64; }
static void odd_ring(struct sdm_map_header *h) { h->ring_offset += 4; }
static void far_ring(struct sdm_map_header *h) { h->ring_offset = UINT64_MAX & ~UINT64_C(63); }
static void ring_in_header(struct sdm_map_header *h) { h->ring_offset = 0; }
static void long_ring(struct sdm_map_header *h) { h->ring_bytes = h->region_bytes; }
static void endless_ring(struct sdm_map_header *h) { h->ring_bytes = UINT64_MAX; }
static void empty_ring(struct sdm_map_header *h) { h->ring_bytes = 0; }
static void overlapping(struct sdm_map_header *h) { h->index_offset = h->ring_offset + 1024; }

void hostile_regions(void) {
  static void (*const changes[])(struct sdm_map_header *) = {
      foreign_magic, next_version, short_header, other_generation, larger, no_slots, odd_slots, many_slots, more_slots, odd_index,
      index_in_header, far_index, index_at_end, odd_ring, far_ring, ring_in_header, long_ring, endless_ring, empty_ring, overlapping,
  };
  struct peer p = connected();
  for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
    struct writer w = writer_open(plain);
    struct sdm_map_header before;
    memcpy(&before, w.header, sizeof before);
    put_map(&p, p.c->next_id, &w, 0, "0");
    changes[i](w.header);
    sdm_mapped *m = NULL;
    EQUAL(sdm_map(p.c, &m, "quotes", NULL), -EPROTO);
    CHECK(!m && strstr(sdm_error(p.c), "region"));
    memcpy(w.header, &before, sizeof before);
    EQUAL(try(&p, &w, 0), 0);
    writer_close(&w);
  }
  put_away(&p);
}

/* --- contents --- */

static void end_before_first(struct writer *w) { atomic_store(&w->header->first, 100); }
static void too_many(struct writer *w) { atomic_store(&w->header->end, 3 + 17); }
static void end_goes_back(struct writer *w) { atomic_store(&w->header->end, 2); }
static void far_place(struct writer *w) { atomic_store(&w->index[3], UINT64_MAX - 7); }
static void place_at_end(struct writer *w) { atomic_store(&w->index[3], 4096 - 16); }
static void odd_place(struct writer *w) { atomic_store(&w->index[3], 12); }
static void overlapping_places(struct writer *w) { atomic_store(&w->index[4], w->index[3] + 24); }
static void set_size(struct writer *w, uint64_t position, uint32_t size) { memcpy(w->ring + w->index[position], &size, sizeof size); }
static void long_first(struct writer *w) { set_size(w, 3, 41); }
static void endless_first(struct writer *w) { set_size(w, 3, UINT32_MAX); }
static void endless_last(struct writer *w) { set_size(w, w->end - 1, UINT32_MAX); }
static void beyond_ring(struct writer *w) { set_size(w, w->end - 1, 4096); }
static void unknown_state(struct writer *w) {
  atomic_store(&w->header->end, 3);
  atomic_store(&w->header->state, 9);
}

void hostile_contents(void) {
  static void (*const changes[])(struct writer *) = {
      end_before_first, too_many, end_goes_back, far_place, place_at_end, odd_place, overlapping_places, long_first, endless_first,
      endless_last, beyond_ring, unknown_state,
  };
  struct peer p = connected();
  for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
    struct writer w = writer_open(plain);
    add_events(&w, 3);
    sdm_mapped *m = mapped(&p, &w, 0, NULL);
    expect_events(m, 1, 3);
    for (int k = 0; k < 4; k++) writer_add(&w, "0123456789abcdef", 16);
    changes[i](&w);
    sdm_event e;
    int result, count = 0;
    while ((result = next_mapped(m, &e)) == 1) CHECK(e.size == 16 && ++count < 10);
    EQUAL(result, -EPROTO);
    SAYS(p.c, "the region is damaged");
    EQUAL(sdm_mapped_next(m, &e), -EPROTO);
    EQUAL(sdm_mapped_wait(m, UINT64_MAX), 1);
    sdm_mapped_unref(m);
    writer_close(&w);
  }
  struct writer w = writer_open(plain); /* a position that the region has not */
  sdm_mapped *m = mapped(&p, &w, UINT64_MAX, NULL);
  sdm_event e;
  EQUAL(next_mapped(m, &e), -EPROTO);
  sdm_mapped_unref(m);
  writer_close(&w);
  put_away(&p);
}

/* --- replies --- */

static void expect_map_error(struct peer *p, const char *json, const int *descriptors, int count, const char *sentence) {
  sdm_mapped *m = NULL;
  int before = open_descriptors();
  put_reply(p, p->c->next_id, json, descriptors, count);
  EQUAL(sdm_map(p->c, &m, "quotes", NULL), -EPROTO);
  SAYS(p->c, sentence);
  CHECK(!m);
  EQUAL(open_descriptors(), before);
  EQUAL(sdm_is_connected(p->c), 1);
}

static void malformed_replies(struct peer *p, struct writer *w) {
  static const char *const replies[] = {
      "", "{", "{}", "[]", "null", "{\"version\":1}", "{\"version\":1,\"generation\":3,\"size\":4096}",
      "{\"version\":1,\"generation\":3,\"size\":4096,\"position\":-1}", "{\"version\":1,\"generation\":3,\"size\":4096,\"position\":1.5}",
      "{\"version\":1,\"generation\":3,\"size\":4096,\"position\":99999999999999999999}",
      "{\"version\":1,\"generation\":3,\"size\":4096,\"position\":null}", "{\"version\":1,\"generation\":3,\"size\":4096,\"position\":0",
      "{\"version\":1,\"generation\":3,\"size\":4096,\"position\":0}x", "{\"version\":1,\"generation\":3,\"size\":4096,\"position\":0,\"a",
      "{\"version\":1,\"generation\":3,\"size\":4096,\"position\":0,\"a\":[[[{]}", "{\"version\":\"1\",\"generation\":3,\"size\":1,\"position\":0}",
  };
  for (size_t i = 0; i < sizeof replies / sizeof replies[0]; i++)
    expect_map_error(p, replies[i], (int[]){w->region, w->page}, 2, "the reply to a request for a map is malformed");
}

void hostile_replies(void) {
  struct peer p = connected();
  struct writer w = writer_open(plain);
  malformed_replies(&p, &w);
  char json[300], *place = json + sprintf(json, " {\"more\":{\"a\":[1,\"]}\\\"\"]},\"version\":1,\"position\":0 ,\"x\":true,\"generation\":3,\"size\":");
  sprintf(place, "%llu} ", (unsigned long long)w.header->region_bytes);
  sdm_mapped *m = NULL; /* what a later daemon may send */
  put_reply(&p, p.c->next_id, json, (int[]){w.region, w.page, w.page, w.page}, 4);
  EQUAL(sdm_map(p.c, &m, "quotes", NULL), 0);
  sdm_mapped_unref(m);
  expect_map_error(&p, json, NULL, 0, "the reply to a request for a map has no descriptor");
  expect_map_error(&p, "{\"version\":1,\"generation\":3,\"size\":8192,\"position\":0}", &w.region, 1, "the size of the region is not that of the reply");
  expect_map_error(&p, "{\"version\":2,\"generation\":3,\"size\":8192,\"position\":0}", &w.region, 1, "the layout of the region has another version");
  int pipes[2], unsealed = sealed_memory(w.header->region_bytes, 0), shrinking = sealed_memory(w.header->region_bytes, F_SEAL_GROW | F_SEAL_SEAL);
  CHECK(pipe(pipes) == 0);
  expect_map_error(&p, json, &pipes[0], 1, "a descriptor of the map is no memory");
  expect_map_error(&p, json, &unsealed, 1, "a descriptor of the map is not sealed");
  expect_map_error(&p, json, &shrinking, 1, "a descriptor of the map is not sealed");
  expect_map_error(&p, json, (int[]){w.region, unsealed}, 2, "a descriptor of the map is not sealed");
  expect_map_error(&p, json, (int[]){w.region, pipes[1]}, 2, "a descriptor of the map is no memory");
  int empty = sealed_memory(0, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), read_only = reopened(w.page);
  expect_map_error(&p, json, (int[]){w.region, empty}, 2, "the waiting page is smaller than a page");
  expect_map_error(&p, json, (int[]){w.region, read_only}, 2, "the waiting page cannot be mapped");
  expect_map_error(&p, "{\"version\":1,\"generation\":3,\"size\":0,\"position\":0}", &empty, 1, "the size of the region is not that of the reply");
  for (int i = 0; i < 2; i++) close(pipes[i]);
  close(unsealed);
  close(shrinking);
  close(empty);
  close(read_only);
  writer_close(&w);
  put_away(&p);
}

/* --- descriptors --- */

/* Descriptors with other messages are closed, and a reply has its own. */
void foreign_descriptors(void) {
  struct peer p = connected();
  struct writer w = writer_open(plain);
  struct buffer out = {0}, late = {0};
  sdm_mapped *m = NULL, *other = NULL;
  int before = open_descriptors();
  uint32_t id = p.c->next_id;
  for (int i = 0; i < 50; i++) { /* before the reply, each in a message of its own */
    frame_keepalive(&out, false, NULL, 0);
    put_with(&p, &out, (int[]){w.page, w.region, w.page, w.page}, 1 + i % 4);
  }
  put_map(&p, id, &w, 0, "0");
  EQUAL(sdm_map(p.c, &m, "quotes", NULL), 0);
  EQUAL(open_descriptors(), before);
  for (int i = 0; i < 5; i++) { /* when no reply is expected */
    frame_keepalive(&out, false, NULL, 0);
    put_with(&p, &out, (int[]){w.page, w.region}, 2);
    while (sdm_process(p.c) > 0) {}
  }
  EQUAL(open_descriptors(), before);
  /* In one read: frames, and a reply whose descriptors come with its first byte; with each later byte come others. */
  frame_keepalive(&out, false, (const uint8_t *)"before", 6);
  put_with(&p, &out, NULL, 0);
  char json[128];
  int size = snprintf(json, sizeof json, "{\"version\":1,\"generation\":3,\"size\":%llu,\"position\":0}", (unsigned long long)w.header->region_bytes);
  put_frame(&late, p.c->next_id, FRAME_PAYLOAD, FLAG_NEXT | FLAG_COMPLETE, json, (size_t)size);
  for (size_t i = 0; i < buffer_size(&late); i++) {
    buffer_append(&out, buffer_content(&late) + i, 1);
    put_with(&p, &out, i ? (int[]){w.page, w.page} : (int[]){w.region, w.page}, 2);
  }
  EQUAL(sdm_map(p.c, &other, "quotes", NULL), 0);
  EQUAL(open_descriptors(), before);
  sdm_mapped_unref(other);
  other = NULL;
  buffer_put(&out, 100, 3); /* an incomplete frame with descriptors, and then the end */
  put_with(&p, &out, (int[]){w.page, w.region}, 2);
  sdm_set_timeout(p.c, 20000);
  EQUAL(sdm_map(p.c, &other, "quotes", NULL), -ETIMEDOUT);
  EQUAL(open_descriptors(), before + 2);
  close(p.socket);
  while (sdm_is_connected(p.c) == 1) sdm_process(p.c);
  EQUAL(open_descriptors(), before - 2);
  sdm_mapped_unref(m);
  buffer_clear(&late);
  writer_close(&w);
  p.socket = -1;
  put_away(&p);
}

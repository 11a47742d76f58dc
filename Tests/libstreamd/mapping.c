/* The readers of mapped streams against the daemon of peer.h: demand, lag, generations, ends, losses, waits. */
#include "mapping.h"

#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static const struct shape small = {.slots = 64, .ring_bytes = 4096, .generation = 1, .epoch = 7, .has_page = true};

/* --- reading and demand --- */

static void reads(void) {
  struct peer p = connected();
  struct writer w = writer_open(small);
  sdm_event e, events[200];
  uint64_t generation = 0;
  add_events(&w, 10);
  sdm_mapped *m = mapped(&p, &w, 4, NULL);
  uint32_t credit = 0;
  expect_request(&p, FRAME_REQUEST_RESPONSE, "{\"map\":true,\"from\":\"replay\"}", NULL);
  expect_request(&p, FRAME_REQUEST_STREAM, "{\"map\":true,\"position\":4}", &credit);
  EQUAL(credit, 65536);
  EQUAL(sdm_mapped_get_generation(m, &generation), 0);
  EQUAL(generation, 1);
  expect_events(m, 5, 10);
  EQUAL(sdm_mapped_next(m, &e), 0);
  EQUAL(sdm_mapped_wait(m, 0), 0);
  EQUAL(sdm_mapped_wait(m, 20000), 0);
  for (uint64_t id = 11; id < 3000; id++) { /* over the end of the ring many times */
    static char data[1000];
    uint32_t size = (uint32_t)(id * 37 % 900);
    memset(data, (int)id, size);
    writer_add(&w, data, size);
    if (id % 2 == 0) EQUAL(sdm_mapped_wait(m, 0), 1);
    EQUAL(sdm_mapped_next(m, &e), 1);
    CHECK(e.id == id && e.size == size && e.data && e.gap == 0 && (!size || memcmp(e.data, data, size) == 0));
  }
  add_events(&w, 30);
  int count = 0;
  while (count < 30) {
    int more = sdm_mapped_next_batch(m, events, 7);
    CHECK(more > 0 && more <= 7);
    for (int i = 0; i < more; i++) EQUAL(events[i].id, 3000 + count + i);
    count += more;
  }
  EQUAL(sdm_mapped_next_batch(m, events, 200), 0);
  EQUAL(sdm_mapped_next_batch(m, events, 0), -EINVAL);
  CHECK(sdm_mapped_ref(m) == m);
  sdm_mapped_unref(m);
  sdm_mapped_unref(m);
  const uint8_t *content;
  size_t size;
  sent(&p, FRAME_CANCEL, &content, &size);
  writer_close(&w);
  put_away(&p);
}

static void large(void) {
  struct peer p = connected();
  struct writer w = writer_open((struct shape){.slots = 4, .ring_bytes = 3 << 20, .generation = 1});
  sdm_event e;
  sdm_mapped *m = mapped(&p, &w, 0, NULL);
  static uint8_t page[1 << 20];
  for (uint64_t id = 1; id < 20; id++) {
    uint32_t bytes = id % 3 == 0 ? 100 : id % 3 == 1 ? sizeof page : 200000;
    memset(page, (int)id, bytes);
    writer_add(&w, page, bytes);
    EQUAL(next_mapped(m, &e), 1);
    CHECK(e.id == id && e.size == bytes && memcmp(e.data, page, bytes) == 0);
  }
  sdm_mapped_unref(m);
  writer_close(&w);
  put_away(&p);
}

static void demand(void) {
  struct peer p = connected();
  struct writer w = writer_open(small);
  sdm_options o = SDM_OPTIONS_INIT;
  o.window = 10;
  o.from = SDM_FROM_ID;
  o.since = 3;
  o.on_lag = SDM_ON_LAG_SKIP;
  add_events(&w, 10);
  sdm_mapped *m = mapped(&p, &w, 3, &o);
  const uint8_t *content;
  size_t size;
  uint32_t credit;
  expect_request(&p, FRAME_REQUEST_RESPONSE, "{\"map\":true,\"from\":3,\"on_lag\":\"skip\"}", NULL);
  expect_request(&p, FRAME_REQUEST_STREAM, "{\"map\":true,\"position\":3}", &credit);
  EQUAL(credit, 10);
  expect_events(m, 4, 9); /* the second call after five events has sent the credit */
  sent(&p, FRAME_REQUEST_N, &content, &size);
  EQUAL(number_at(content, 4), 5);
  usleep(1100000); /* less than half of the window is renewed once a second */
  expect_events(m, 10, 10);
  sent(&p, FRAME_REQUEST_N, &content, &size);
  EQUAL(number_at(content, 4), 1);
  add_events(&w, 80); /* events that were lost count as read */
  expect_events(m, w.first + 1, w.first + 1);
  EQUAL(sdm_mapped_wait(m, 0), 1);
  sent(&p, FRAME_REQUEST_N, &content, &size);
  EQUAL(number_at(content, 4), w.first + 1 - 9);
  sdm_mapped_unref(m);
  writer_close(&w);
  put_away(&p);
}

/* --- lag --- */

static void lag(void) {
  for (int policy = SDM_ON_LAG_DEFAULT; policy <= SDM_ON_LAG_FAIL; policy++) {
    struct peer p = connected();
    struct writer w = writer_open((struct shape){.slots = 16, .ring_bytes = 4096, .generation = 1, .position = 1000});
    sdm_options o = SDM_OPTIONS_INIT;
    o.on_lag = (sdm_on_lag)policy;
    sdm_mapped *m = mapped(&p, &w, 1000, &o);
    sdm_event e;
    add_events(&w, 3);
    expect_events(m, 1, 3);
    for (uint64_t id = 3, more = 17; more < 40; more++) {
      add_events(&w, (int)more);
      EQUAL(sdm_mapped_wait(m, 0), 1);
      int result = sdm_mapped_next(m, &e);
      if (policy == SDM_ON_LAG_FAIL) {
        EQUAL(result, -ENOBUFS);
        SAYS(p.c, "lagged: 1 events lost");
        EQUAL(sdm_mapped_next(m, &e), -ENOBUFS);
        break;
      }
      EQUAL(result, 1);
      EQUAL(e.gap, policy == SDM_ON_LAG_LATEST ? more - 1 : more - 16);
      EQUAL(e.id, id + e.gap + 1);
      if (policy != SDM_ON_LAG_LATEST) expect_events(m, e.id + 1, e.id + 15);
      EQUAL(sdm_mapped_next(m, &e), 0);
      id += more;
    }
    sdm_mapped_unref(m);
    writer_close(&w);
    put_away(&p);
  }
}

/* --- generations --- */

/* Replies to the request of a reader that has read the old region to its end. */
static void pass_next(struct peer *p, sdm_mapped *m, const char *request, struct writer *next, uint64_t position, const char *missed) {
  sdm_event e;
  EQUAL(sdm_mapped_next(m, &e), 0);
  struct frame f = expect_request(p, FRAME_REQUEST_RESPONSE, request, NULL);
  put_map(p, f.id, next, position, missed);
}

static void generations(void) {
  struct peer p = connected();
  struct shape shape = small;
  struct writer one = writer_open(shape), two, three, four;
  add_events(&one, 5);
  sdm_mapped *m = mapped(&p, &one, 5, NULL);
  expect_request(&p, FRAME_REQUEST_RESPONSE, "{\"map\":true,\"from\":\"replay\"}", NULL);
  uint64_t generation;
  const uint8_t *content;
  size_t size;
  shape.generation = 5;
  shape.position = shape.id = 8; /* 6 to 8 are lost; nothing was read so far */
  two = writer_open(shape);
  add_events(&two, 4);
  writer_set_state(&one, SDM_MAP_REPLACED);
  pass_next(&p, m, "{\"map\":true,\"from\":5}", &two, 8, "99");
  sdm_event e;
  EQUAL(next_mapped(m, &e), 1);
  EQUAL(e.gap, 3); /* by the positions, which have the same epoch */
  expect_events(m, 10, 12);
  expect_request(&p, FRAME_REQUEST_STREAM, "{\"map\":true,\"position\":8}", NULL);
  struct frame f = sent(&p, FRAME_CANCEL, &content, &size);
  EQUAL(f.id, 3);
  EQUAL(sdm_mapped_get_generation(m, &generation), 0);
  EQUAL(generation, 5);
  shape = (struct shape){.slots = 16, .ring_bytes = 1024, .generation = 6, .epoch = 8, .id = 20, .position = 2};
  three = writer_open(shape); /* without a waiting page */
  add_events(&three, 1);
  writer_set_state(&two, SDM_MAP_REPLACED);
  pass_next(&p, m, "{\"map\":true,\"from\":12}", &three, 2, "null");
  EQUAL(next_mapped(m, &e), 1);
  CHECK(e.gap == SDM_GAP_UNKNOWN && e.id == 21);
  shape.epoch = 9;
  shape.generation = 7;
  four = writer_open(shape);
  add_events(&four, 2);
  writer_set_state(&three, SDM_MAP_REPLACED);
  pass_next(&p, m, "{\"map\":true,\"from\":21}", &four, 3, "17");
  EQUAL(next_mapped(m, &e), 1);
  CHECK(e.gap == 17 && e.id == 22);
  writer_set_state(&four, SDM_MAP_REPLACED);
  pass_next(&p, m, "{\"map\":true,\"from\":22}", &four, 4, "0"); /* it was replaced before it was asked for */
  EQUAL(next_mapped(m, &e), -EPROTO);
  SAYS(p.c, "the daemon has passed a region again that it had replaced");
  sdm_mapped_unref(m);
  writer_close(&one);
  writer_close(&two);
  writer_close(&three);
  writer_close(&four);
  put_away(&p);
}

/* The next generation is refused, or was lost with on_lag = "fail". */
static void refused_generation(void) {
  struct peer p = connected();
  struct writer w = writer_open(small), next;
  sdm_event e;
  add_events(&w, 3);
  sdm_mapped *m = mapped(&p, &w, 1, NULL);
  writer_set_state(&w, SDM_MAP_REPLACED);
  expect_events(m, 2, 3);
  EQUAL(sdm_mapped_next(m, &e), 0);
  struct frame f = expect_request(&p, FRAME_REQUEST_RESPONSE, "{\"map\":true,\"from\":\"replay\"}", NULL);
  f = expect_request(&p, FRAME_REQUEST_RESPONSE, "{\"map\":true,\"from\":3}", NULL);
  put_error(&p, f.id, 0x204, "\"quotes\" is not mapped");
  EQUAL(next_mapped(m, &e), -EOPNOTSUPP);
  SAYS(p.c, "\"quotes\" is not mapped");
  EQUAL(sdm_mapped_wait(m, UINT64_MAX), 1);
  sdm_mapped_unref(m);
  writer_close(&w);

  w = writer_open(small);
  sdm_options o = SDM_OPTIONS_INIT;
  o.on_lag = SDM_ON_LAG_FAIL;
  add_events(&w, 3);
  m = mapped(&p, &w, 3, &o);
  struct shape shape = small;
  shape.generation = 2;
  shape.position = shape.id = 7;
  next = writer_open(shape);
  writer_set_state(&w, SDM_MAP_REPLACED);
  expect_request(&p, FRAME_REQUEST_RESPONSE, "{\"map\":true,\"from\":\"replay\",\"on_lag\":\"fail\"}", NULL);
  pass_next(&p, m, "{\"map\":true,\"from\":3,\"on_lag\":\"fail\"}", &next, 7, "4");
  EQUAL(next_mapped(m, &e), -ENOBUFS);
  SAYS(p.c, "lagged: 4 events lost");
  sdm_mapped_unref(m);
  writer_close(&w);
  writer_close(&next);
  put_away(&p);
}

/* --- ends and losses --- */

static void ends(void) {
  for (int way = 0; way < 3; way++) {
    struct peer p = connected();
    struct writer w = writer_open(small);
    sdm_event e;
    sdm_mapped *m = mapped(&p, &w, 0, NULL);
    add_events(&w, 3);
    if (way < 2) writer_set_state(&w, SDM_MAP_ENDED);
    if (way == 1) {
      expect_events(m, 1, 3);
      EQUAL(sdm_mapped_next(m, &e), 0); /* the demand stream has not told the result yet */
      EQUAL(sdm_mapped_wait(m, 1000), 0);
    }
    struct frame f = expect_request(&p, FRAME_REQUEST_STREAM, "{\"map\":true,\"position\":0}", NULL);
    if (way == 2) put_error(&p, f.id, 0x201, "the program failed");
    struct buffer out = {0};
    frame_plain(&out, f.id, FRAME_PAYLOAD, FLAG_COMPLETE);
    put(&p, &out);
    if (way != 1) expect_events(m, 1, 3); /* an end comes after the events before it */
    EQUAL(next_mapped(m, &e), way == 2 ? -EIO : -ENODATA);
    SAYS(p.c, way == 2 ? "the program failed" : "the stream has ended");
    EQUAL(sdm_mapped_next_batch(m, &e, 1), way == 2 ? -EIO : -ENODATA);
    sdm_mapped_unref(m);
    writer_close(&w);
    put_away(&p);
  }
}

static void lose(struct peer *p, sdm_mapped *m) {
  close(p->socket);
  while (sdm_is_connected(p->c) == 1) CHECK(sdm_process(p->c) >= 0);
  while (sdm_is_connected(p->c) == 0) CHECK(sdm_mapped_wait(m, 20000) >= 0);
  take_socket(p);
}

/* The daemon lives: the region goes on, and only the demand is made again. The reader notes that it waits where the reply says. */
static void lost_connection(void) {
  struct peer p = connected();
  struct writer w = writer_open(small);
  sdm_options o = SDM_OPTIONS_INIT;
  o.window = 100;
  sdm_mapped *m = mapped(&p, &w, 0, &o);
  uint32_t credit;
  add_events(&w, 20);
  expect_events(m, 1, 8); /* others are copied already */
  lose(&p, m);
  struct frame f = expect_request(&p, FRAME_REQUEST_RESPONSE, "{\"map\":true,\"from\":20}", NULL);
  add_events(&w, 1);
  expect_events(m, 9, 21);
  writer_change_page(&w);
  put_map(&p, f.id, &w, 20, "0");
  EQUAL(sdm_mapped_wait(m, 30000), 0);
  EQUAL(atomic_load(w.waiting), 1);
  expect_request(&p, FRAME_REQUEST_STREAM, "{\"map\":true,\"position\":20}", &credit);
  EQUAL(credit, 101);
  add_events(&w, 1);
  expect_events(m, 22, 22);
  lose(&p, m); /* it is killed now, in the middle of a batch; another process begins with its events, but for the last one */
  writer_put(&w, "never", 5);
  f = expect_request(&p, FRAME_REQUEST_RESPONSE, "{\"map\":true,\"from\":22}", NULL);
  struct writer next = writer_open((struct shape){.slots = 8, .ring_bytes = 4096, .generation = 2, .epoch = 8, .id = 21});
  add_events(&next, 1);
  put_map(&p, f.id, &next, 1, "0");
  next.id = 30;
  add_events(&next, 2);
  expect_events(m, 31, 32);
  sdm_mapped_unref(m);
  writer_close(&w);
  writer_close(&next);
  put_away(&p);
}

/* Events that are read after the request have to be excluded from the next region: it is asked for again. */
static void late_reply(void) {
  struct peer p = connected();
  struct writer w = writer_open(small);
  sdm_event e;
  sdm_mapped *m = mapped(&p, &w, 0, NULL);
  lose(&p, m);
  struct frame f = expect_request(&p, FRAME_REQUEST_RESPONSE, "{\"map\":true,\"from\":\"replay\"}", NULL);
  add_events(&w, 4);
  expect_events(m, 1, 2);
  struct writer next = writer_open((struct shape){.slots = 8, .ring_bytes = 4096, .generation = 2, .epoch = 8, .id = 2});
  add_events(&next, 4);
  put_map(&p, f.id, &next, 0, "null");
  expect_events(m, 3, 4);
  EQUAL(sdm_mapped_next(m, &e), 0);
  f = expect_request(&p, FRAME_REQUEST_RESPONSE, "{\"map\":true,\"from\":4}", NULL);
  put_map(&p, f.id, &next, 2, "0");
  expect_events(m, 5, 6);
  put_error(&p, 5, 0x203, "streamd is stopping");
  EQUAL(sdm_mapped_wait(m, 30000), 0);
  sdm_mapped_unref(m);
  writer_close(&w);
  writer_close(&next);
  put_away(&p);
}

/* Of many maps that are asked for at once the daemon refuses some, which are asked for again. */
static void busy_daemon(void) {
  struct peer p = connected();
  struct writer w = writer_open(small);
  sdm_mapped *m = mapped(&p, &w, 0, NULL);
  add_events(&w, 2);
  expect_events(m, 1, 2);
  expect_request(&p, FRAME_REQUEST_RESPONSE, "{\"map\":true,\"from\":\"replay\"}", NULL);
  writer_set_state(&w, SDM_MAP_REPLACED);
  struct writer next = writer_open((struct shape){.slots = 8, .ring_bytes = 4096, .generation = 2, .epoch = 8, .id = 2});
  for (int i = 0; i < 2; i++) {
    EQUAL(sdm_mapped_wait(m, 200000), 0);
    struct frame f = expect_request(&p, FRAME_REQUEST_RESPONSE, "{\"map\":true,\"from\":2}", NULL);
    put_error(&p, f.id, 0x202, "uid 0 has 32 maps that it has not received, with 32 of 64 left");
  }
  EQUAL(sdm_mapped_wait(m, 200000), 0);
  struct frame f = expect_request(&p, FRAME_REQUEST_RESPONSE, "{\"map\":true,\"from\":2}", NULL);
  add_events(&next, 1);
  put_map(&p, f.id, &next, 0, "0");
  expect_events(m, 3, 3);
  sdm_mapped_unref(m);
  writer_close(&w);
  writer_close(&next);
  put_away(&p);
}

/* A restart withdraws a reply that is on its way, and the demand: the map is asked for again on the same connection. */
static void withdrawn(uint32_t code, const char *sentence) {
  struct peer p = connected();
  struct writer w = writer_open(small);
  add_events(&w, 2);
  sdm_mapped *m = mapped(&p, &w, 0, NULL);
  expect_events(m, 1, 2);
  expect_request(&p, FRAME_REQUEST_RESPONSE, "{\"map\":true,\"from\":\"replay\"}", NULL);
  writer_set_state(&w, SDM_MAP_REPLACED);
  EQUAL(sdm_mapped_wait(m, 200000), 0);
  struct frame f = expect_request(&p, FRAME_REQUEST_RESPONSE, "{\"map\":true,\"from\":2}", NULL);
  put_error(&p, f.id, code, sentence);
  EQUAL(sdm_mapped_wait(m, 300000), 0);
  f = expect_request(&p, FRAME_REQUEST_RESPONSE, "{\"map\":true,\"from\":2}", NULL);
  struct writer next = writer_open((struct shape){.slots = 8, .ring_bytes = 4096, .generation = 2, .epoch = 8, .id = 2});
  add_events(&next, 1);
  put_map(&p, f.id, &next, 0, "0");
  expect_events(m, 3, 3);
  sdm_mapped_unref(m);
  writer_close(&w);
  writer_close(&next);
  put_away(&p);
}

static void not_restored(void) {
  struct peer p = connected();
  struct writer w = writer_open(small);
  sdm_options o = SDM_OPTIONS_INIT;
  sdm_event e;
  o.reconnect = false;
  add_events(&w, 3);
  sdm_mapped *m = mapped(&p, &w, 0, &o);
  close(p.socket);
  EQUAL(sdm_process(p.c), -ECONNRESET);
  expect_events(m, 1, 3);
  EQUAL(next_mapped(m, &e), -ECONNRESET);
  sdm_mapped_unref(m);
  writer_close(&w);
  p.socket = -1;
  put_away(&p);
}

/* A child that releases its copy does not disturb the parent. */
static void forks(void) {
  struct peer p = connected();
  struct writer w = writer_open(small);
  add_events(&w, 2);
  sdm_mapped *m = mapped(&p, &w, 0, NULL);
  expect_events(m, 1, 1);
  pid_t child = fork();
  if (child == 0) {
    sdm_mapped_unref(m);
    sdm_unref(p.c);
    _exit(0);
  }
  int status = 1;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  uint8_t bytes[4096];
  ssize_t count = recv(p.socket, bytes, sizeof bytes, 0); /* SETUP and two requests: no CANCEL */
  size_t at = 0, frames = 0;
  for (; count > 0 && at < (size_t)count; frames++) at += 3 + (size_t)number_at(bytes + at, 3);
  EQUAL(frames, 3);
  add_events(&w, 1);
  expect_events(m, 2, 3);
  sdm_mapped_unref(m);
  writer_close(&w);
  put_away(&p);
}

/* --- sdm_map() --- */

static void refusals(void) {
  const struct { uint32_t code; const char *sentence; int result; } cases[] = {
      {0x202, "no stream named \"quotes\"", -ENOENT},
      {0x202, "uid 1000 may not read \"quotes\"", -EACCES},
      {0x204, "\"quotes\" is not mapped", -EOPNOTSUPP},
      {0x204, "\"quotes\" cannot be mapped over TCP", -EOPNOTSUPP},
      {0x204, "no event has the id 9 yet", -EINVAL},
      {0x301, "lagged: 3 events lost", -ENOBUFS},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    struct peer p = connected();
    sdm_mapped *m = NULL;
    struct buffer out = {0};
    frame_error(&out, 1, cases[i].code, cases[i].sentence);
    put_with(&p, &out, NULL, 0);
    EQUAL(sdm_map(p.c, &m, "quotes", NULL), cases[i].result);
    SAYS(p.c, cases[i].sentence);
    CHECK(!m);
    put_away(&p);
  }
  struct peer p = connected();
  sdm_mapped *m = NULL;
  sdm_options o = SDM_OPTIONS_INIT;
  o.where = "{}";
  EQUAL(sdm_map(p.c, &m, "quotes", &o), -EINVAL);
  o = (sdm_options)SDM_OPTIONS_INIT;
  o.marker = true;
  EQUAL(sdm_map(p.c, &m, "quotes", &o), -EINVAL);
  o = (sdm_options)SDM_OPTIONS_INIT;
  o.from = SDM_FROM_STATE;
  EQUAL(sdm_map(p.c, &m, "quotes", &o), -EINVAL);
  EQUAL(sdm_map(p.c, &m, "", NULL), -EINVAL);
  EQUAL(sdm_map(p.c, NULL, "quotes", NULL), -EINVAL);
  sdm_set_timeout(p.c, 30000);
  EQUAL(sdm_map(p.c, &m, "quotes", NULL), -ETIMEDOUT);
  const uint8_t *content;
  size_t size;
  sent(&p, FRAME_CANCEL, &content, &size);
  put_away(&p);
}

int main(int count, char **words) {
  CHECK(count == 2);
  listen_at(words[1]);
  reads();
  large();
  demand();
  lag();
  generations();
  refused_generation();
  ends();
  lost_connection();
  late_reply();
  busy_daemon();
  withdrawn(0x203, "streamd restarts");
  withdrawn(0x203u << 16 | SDM_REASON_RESTARTING, "");
  withdrawn(0x202u << 16 | SDM_REASON_NO_DESCRIPTORS, "");
  not_restored();
  forks();
  refusals();
  hostile_regions();
  hostile_contents();
  hostile_replies();
  foreign_descriptors();
  stop_listening();
  return 0;
}

/* The library against the daemon of peer.h: what violates the protocol, what is lost and resumed, and the sentences that tell
 * refusals apart. */
#include "peer.h"

#include <netinet/in.h>
#include <poll.h>
#include <unistd.h>

/* --- violations --- */

static void add_http(struct buffer *b) { buffer_append(b, "HTTP/1.1 400 Bad Request\r\n\r\n", 28); }
static void add_short(struct buffer *b) { buffer_append(b, "\0\0\5\0\0\0\0\0", 8); }
static void add_even(struct buffer *b) { put_event(b, 2, 1, NULL, 0, "x"); }
static void add_unmade(struct buffer *b) { put_event(b, 3, 1, NULL, 0, "x"); }
static void add_negative(struct buffer *b) { put_event(b, 0x80000001, 1, NULL, 0, "x"); }
static void add_long_metadata(struct buffer *b) { put_frame(b, 1, FRAME_PAYLOAD, FLAG_NEXT | FLAG_METADATA, "\xff\xff\xff----------------", 19); }
static void add_cut_metadata(struct buffer *b) { put_frame(b, 1, FRAME_PAYLOAD, FLAG_NEXT | FLAG_METADATA, "\0\0", 2); }
static void add_no_metadata(struct buffer *b) { put_frame(b, 1, FRAME_PAYLOAD, FLAG_NEXT, "data", 4); }
static void add_odd_metadata(struct buffer *b) { put_event(b, 1, 1, "1234567", 7, "x"); }
static void add_too_many(struct buffer *b) { for (uint64_t i = 1; i <= 5; i++) put_event(b, 1, i, NULL, 0, "x"); }
static void add_nothing(struct buffer *b) { put_frame(b, 1, FRAME_PAYLOAD, 0, "", 0); }
static void add_late_metadata(struct buffer *b) {
  put_frame(b, 1, FRAME_PAYLOAD, FLAG_NEXT | FLAG_FOLLOWS, "data", 4);
  put_event(b, 1, 1, NULL, 0, "x");
}
static void add_setup(struct buffer *b) { frame_setup(b, NULL); }
static void add_zero_credit(struct buffer *b) { frame_number(b, 1, FRAME_REQUEST_N, 0); }
static void add_short_error(struct buffer *b) { put_frame(b, 0, FRAME_ERROR, 0, "abc", 3); }
static void add_short_keepalive(struct buffer *b) { put_frame(b, 0, FRAME_KEEPALIVE, 0, "1234567", 7); }
static void add_large(struct buffer *b) {
  char *part = calloc(1, 8 << 20);
  for (int i = 0; i < 9; i++) put_frame(b, 1, FRAME_PAYLOAD, FLAG_NEXT | FLAG_FOLLOWS, part, 8 << 20);
  free(part);
}

static void violations(void) {
  const struct { void (*add)(struct buffer *); const char *sentence; } cases[] = {
      {add_http, "a frame has the id of a request that was not made"},
      {add_short, "a frame has fewer than 6 bytes"},
      {add_even, "a frame has the id of a request that was not made"},
      {add_unmade, "a frame has the id of a request that was not made"},
      {add_negative, "a frame has the id of a request that was not made"},
      {add_long_metadata, "the metadata of a payload is longer than its frame"},
      {add_cut_metadata, "a payload ends inside the length of its metadata"},
      {add_no_metadata, "the metadata of an event has an unexpected length"},
      {add_odd_metadata, "the metadata of an event has an unexpected length"},
      {add_too_many, "the daemon has sent more events than were requested"},
      {add_nothing, "a payload has neither a value nor an end"},
      {add_late_metadata, "a fragment has metadata after data"},
      {add_setup, "a frame has a type that a server does not send"},
      {add_zero_credit, "a REQUEST_N is out of range"},
      {add_short_error, "an ERROR has no code"},
      {add_short_keepalive, "a KEEPALIVE is malformed"},
      {add_large, "an event has more than 64 MiB"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    struct peer p = connected();
    sdm_subscription *s = subscribed(&p, true, 4);
    struct buffer out = {0};
    cases[i].add(&out);
    put(&p, &out);
    sdm_event e;
    int result;
    while ((result = next_of(p.c, s, &e)) == 1) {}
    EQUAL(result, -EPROTO);
    SAYS(p.c, cases[i].sentence);
    EQUAL(sdm_process(p.c), -EPROTO);
    EQUAL(sdm_is_connected(p.c), -EPROTO);
    EQUAL(sdm_wait(p.c, 0), 1);
    const uint8_t *content;
    size_t size;
    sent(&p, FRAME_ERROR, &content, &size);
    CHECK(number_at(content, 4) == 0x101 && size == 4 + strlen(cases[i].sentence));
    sdm_subscription_unref(s);
    put_away(&p);
  }
}

/* --- any split --- */

static void splits(void) {
  struct peer p = connected();
  sdm_options o = SDM_OPTIONS_INIT;
  o.marker = true;
  o.where = "{\"/a\":1}";
  sdm_subscription *s = NULL;
  EQUAL(sdm_subscribe(p.c, &s, "quotes", &o), 0);
  EQUAL(sdm_request(s, 100), 0);
  struct buffer out = {0};
  put_event(&out, 1, 1, "\0\0\0\0\0\0\0\3\0", 9, "one");
  put_event(&out, 1, 9, "\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0\6\0", 17, "two");
  put_frame(&out, 1, FRAME_PAYLOAD, FLAG_NEXT | FLAG_FOLLOWS | FLAG_METADATA, "\0\0\x0a\0\0\0\0\0\0\0\x0b\0\0", 13);
  put_frame(&out, 1, FRAME_PAYLOAD, FLAG_FOLLOWS | FLAG_METADATA, "\0\0\x0f\0\0\0\0\0\7\0\0\0\0\0\0\0\0\0th", 20);
  put_frame(&out, 1, FRAME_PAYLOAD, FLAG_FOLLOWS, "re", 2);
  put_frame(&out, 0, FRAME_METADATA_PUSH, FLAG_METADATA, "x", 1);
  put_frame(&out, 1, FRAME_PAYLOAD, FLAG_COMPLETE | FLAG_NEXT, "e", 1);
  for (size_t i = 0; i < buffer_size(&out); i++) put_bytes(&p, buffer_content(&out) + i, 1);
  sdm_event events[8], e;
  EQUAL(sdm_next_batch(s, events, 8), 3);
  CHECK(is_text(&events[0], "one") && events[0].left_out == 3 && events[0].gap == 0 && events[0].time == 1001);
  CHECK(is_text(&events[1], "two") && events[1].left_out == 1 && events[1].gap == 6);
  CHECK(is_text(&events[2], "three") && events[2].id == 11 && events[2].time == 7);
  EQUAL(sdm_next(s, &e), -ENODATA);
  buffer_clear(&out);
  sdm_subscription_unref(s);
  put_away(&p);
}

/* --- losses --- */

static void expect_request(struct peer *p, const char *data, uint32_t credit) {
  const uint8_t *content;
  size_t size;
  sent(p, FRAME_REQUEST_STREAM, &content, &size);
  EQUAL(number_at(content, 4), credit);
  size_t metadata = (size_t)number_at(content + 4, 3);
  CHECK(size - 7 - metadata == strlen(data) && memcmp(content + 7 + metadata, data, strlen(data)) == 0);
}

static void losses(void) {
  struct peer p = connected();
  sdm_subscription *s = subscribed(&p, true, 10);
  expect_request(&p, "{\"from\":\"replay\",\"gaps\":true}", 10);
  struct buffer out = {0};
  sdm_event e;
  for (uint64_t i = 1; i <= 4; i++) put_event(&out, 1, i, NULL, 0, "x");
  buffer_append(&out, "\0\0\x20\0\0", 5); /* a frame that ends with the connection */
  put(&p, &out);
  EQUAL(sdm_next(s, &e), 1);
  for (unsigned round = 0; round < 3; round++) {
    close(p.socket);
    while (sdm_process(p.c) > 0) {}
    EQUAL(sdm_is_connected(p.c), 0);
    uint64_t start = now_usec();
    while (sdm_is_connected(p.c) == 0) {
      CHECK(sdm_wait(p.c, PATIENCE) == 1);
      CHECK(sdm_process(p.c) >= 0);
    }
    uint64_t delay = now_usec() - start;
    CHECK(delay > 90000 && delay < 3000000);
    take_socket(&p);
    expect_request(&p, "{\"from\":4,\"gaps\":true}", 6); /* the events that arrived are kept, and not repeated */
  }
  for (uint64_t i = 3; i <= 6; i++) put_event(&out, 1, i, NULL, 0, "x"); /* 3 and 4 again */
  put(&p, &out);
  for (uint64_t i = 2; i <= 6; i++) {
    EQUAL(sdm_next(s, &e), 1);
    EQUAL(e.id, i);
  }
  const uint8_t *content;
  size_t size;
  sent(&p, FRAME_REQUEST_N, &content, &size);
  EQUAL(number_at(content, 4), 2);
  sdm_subscription_unref(s);
  sent(&p, FRAME_CANCEL, &content, &size);
  put_away(&p);
}

/* A subscription without credit has nothing to do after a stop, and so wakes nobody. */
static void stopped_without_credit(void) {
  struct peer p = connected();
  sdm_subscription *s = subscribed(&p, true, 1);
  struct buffer out = {0};
  sdm_event e;
  put_event(&out, 1, 1, NULL, 0, "x");
  put(&p, &out);
  EQUAL(sdm_next(s, &e), 1);
  put_error(&p, 1, 0x203, "streamd is stopping");
  int turns = 0;
  for (uint64_t end = now_usec() + 400000; now_usec() < end; turns++) {
    EQUAL(sdm_is_connected(p.c), 1);
    if (sdm_wait(p.c, 50000) == 1) CHECK(sdm_process(p.c) >= 0);
  }
  CHECK(turns < 50);
  EQUAL(sdm_request(s, 2), 0);
  const uint8_t *content;
  size_t size;
  sent(&p, FRAME_REQUEST_STREAM, &content, &size);
  expect_request(&p, "{\"from\":1,\"gaps\":true}", 2);
  sdm_subscription_unref(s);
  put_away(&p);
}

/* sdm_wait() ignores what only a poll loop has to be woken for; afterwards the loop is woken nevertheless. */
static void wait_then_poll(void) {
  struct peer p = connected();
  sdm_options o = SDM_OPTIONS_INIT;
  o.window = 2;
  sdm_subscription *s = NULL;
  EQUAL(sdm_subscribe(p.c, &s, "quotes", &o), 0);
  struct buffer out = {0};
  sdm_event e;
  for (uint64_t i = 1; i <= 2; i++) put_event(&out, 1, i, NULL, 0, "x");
  put(&p, &out);
  EQUAL(sdm_wait(p.c, 20000), 0);
  for (int i = 0; i < 2; i++) EQUAL(sdm_next(s, &e), 1);
  struct pollfd one = {.fd = sdm_get_fd(p.c), .events = POLLIN};
  EQUAL(poll(&one, 1, 100), 1);
  sdm_process(p.c);
  const uint8_t *content;
  size_t size;
  sent(&p, FRAME_REQUEST_N, &content, &size);
  sdm_subscription_unref(s);
  put_away(&p);
}

/* What arrives for a subscription while another call waits: a poll loop is woken to take it, or its end. */
static void flush_then_poll(void) {
  for (int ends = 0; ends < 2; ends++) {
    struct peer p = connected();
    sdm_subscription *s = subscribed(&p, true, 4);
    sdm_publisher *q;
    EQUAL(sdm_publisher_new(p.c, &q, "notes", "me"), 0);
    struct buffer out = {0};
    sdm_event e;
    if (ends) put_frame(&out, 1, FRAME_PAYLOAD, FLAG_COMPLETE, "", 0);
    else put_event(&out, 1, 1, NULL, 0, "x");
    EQUAL(send(p.socket, buffer_content(&out), buffer_size(&out), 0), buffer_size(&out));
    EQUAL(sdm_flush(q, 0), -ETIMEDOUT);
    struct pollfd one = {.fd = sdm_get_fd(p.c), .events = POLLIN};
    EQUAL(poll(&one, 1, 50), 1);
    EQUAL(sdm_process(p.c), 0);
    EQUAL(sdm_next(s, &e), ends ? -ENODATA : 1);
    EQUAL(poll(&one, 1, 0), 0);
    buffer_clear(&out);
    sdm_publisher_unref(q);
    sdm_subscription_unref(s);
    put_away(&p);
  }
}

static void closes(void) {
  const struct { uint32_t code; const char *sentence; int result; } cases[] = {
      {0x001, "the first frame is no SETUP", -EPROTO},
      {0x003, "uid 7 has 9 connections already (max_connections_per_user)", -EDQUOT},
      {0x003, "the configuration is invalid", -ECONNREFUSED},
      {0x101, "a frame is malformed", -EPROTO},
      {0x101, "uid 7 has more than 9 bytes of unprocessed data (max_input_per_user)", -EDQUOT},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    struct peer p = connected();
    sdm_subscription *s = subscribed(&p, true, 4);
    put_error(&p, 0, cases[i].code, cases[i].sentence);
    sdm_event e;
    EQUAL(next_of(p.c, s, &e), cases[i].result);
    SAYS(p.c, cases[i].sentence);
    sdm_subscription_unref(s);
    put_away(&p);
  }
  struct peer p = connected();
  sdm_subscription *s = subscribed(&p, true, 4), *t = subscribed(&p, false, 4);
  put_error(&p, 0, 0x102, "streamd is stopping");
  sdm_event e;
  EQUAL(sdm_is_connected(p.c), 0);
  EQUAL(next_of(p.c, t, &e), -ECONNRESET);
  SAYS(p.c, "streamd is stopping");
  EQUAL(sdm_next(s, &e), 0);
  sdm_subscription_unref(s);
  sdm_subscription_unref(t);
  close(p.socket);
  sdm_unref(p.c);
}

static void sentences(void) {
  const struct { uint32_t code; const char *sentence; int result; } cases[] = {
      {0x201, "the program ended", -EIO},
      {0x202, "no stream named \"quotes\"", -ENOENT},
      {0x202, "no stream has a name of 300 bytes", -ENOENT},
      {0x202, "too many views of \"$stats\"", -EDQUOT},
      {0x202, "uid 1000 may not read \"quotes\"", -EACCES},
      {0x202, "uid 1000 may not write \"quotes\"; to admit it, set write = [\"uid:1000\"]", -EACCES},
      {0x202, "\"quotes\" does not accept values", -EOPNOTSUPP},
      {0x202, "\"quotes\" has no space: values of other publishers wait in it", -EDQUOT},
      {0x202, "uid 1000 has 48 named publishers of \"quotes\", with 16 of 64 left", -EDQUOT},
      {0x203, "\"quotes\" is no longer served", -ECANCELED},
      {0x204, "value 3: a value of 9 bytes is too large for \"quotes\", whose limit is 8 bytes", -EMSGSIZE},
      {0x204, "value 3: its fragments exceed the limit of 1048576 bytes for incomplete requests", -EMSGSIZE},
      {0x204, "the stream has no keys, and so no state", -EINVAL},
      {0x301, "lagged: 412 events lost", -ENOBUFS},
      {0x301, "stalled \"quotes\" for 60.0 seconds, 16 events behind", -ENOBUFS},
      {0x999, "another code", -EIO},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    struct peer p = connected();
    sdm_subscription *s = subscribed(&p, true, 4);
    put_error(&p, 1, cases[i].code, cases[i].sentence);
    sdm_event e;
    EQUAL(next_of(p.c, s, &e), cases[i].result);
    SAYS(p.c, cases[i].sentence);
    EQUAL(sdm_is_connected(p.c), 1);
    sdm_subscription_unref(s);
    put_away(&p);
  }
  struct peer p = connected();
  sdm_subscription *s = subscribed(&p, true, 4);
  /* a line feed, C1, two bidirectional controls, a tag */
  put_error(&p, 1, 0x201, "one\nline\xc2\x9b\xe2\x80\xae\xe2\x81\xa6\xf3\xa0\x81\x81 \xc3\xa4 \xff \xe2\x82");
  sdm_event e;
  EQUAL(next_of(p.c, s, &e), -EIO);
  SAYS(p.c, "one line     \xc3\xa4 ? ??");
  sdm_subscription_unref(s);
  put_away(&p);
}

/* --- KEEPALIVE --- */

static void keepalive(void) {
  struct peer p = connected();
  const uint8_t *content;
  size_t size;
  struct buffer out = {0};
  sdm_subscription *s = subscribed(&p, true, 4);
  frame_keepalive(&out, true, (const uint8_t *)"ping", 4);
  put(&p, &out);
  sent(&p, FRAME_KEEPALIVE, &content, &size);
  CHECK(size == 12 && memcmp(content + 8, "ping", 4) == 0);
  for (int i = 0; i < 5; i++) { /* the library sends its own, and an answer keeps the connection */
    struct frame f = sent(&p, FRAME_KEEPALIVE, &content, &size);
    CHECK(f.flags & FLAG_RESPOND);
    frame_keepalive(&out, false, NULL, 0);
    put(&p, &out);
  }
  EQUAL(sdm_is_connected(p.c), 1);
  while (sdm_is_connected(p.c) == 1) { /* without an answer it is lost */
    CHECK(sdm_wait(p.c, PATIENCE) == 1);
    CHECK(sdm_process(p.c) >= 0);
  }
  sdm_subscription_unref(s);
  put_away(&p);
}

/* A daemon that asks for answers and does not read them is given up. */
static void flood(void) {
  struct peer p = connected();
  sdm_subscription *s = subscribed(&p, false, 4);
  static uint8_t data[1 << 20];
  for (int i = 0; i < 48 && sdm_is_connected(p.c) == 1; i++) {
    struct buffer out = {0};
    frame_keepalive(&out, true, data, sizeof data);
    put(&p, &out);
    buffer_clear(&out);
  }
  sdm_event e;
  EQUAL(next_of(p.c, s, &e), -ECONNRESET);
  SAYS(p.c, "the daemon does not read");
  sdm_subscription_unref(s);
  put_away(&p);
}

/* A daemon that does not stop sending delays no time limit: once the time is over, what it has sent is not read on. */
static void chatter(void) {
  struct peer p = connected();
  struct buffer out = {0};
  sdm_publisher *q;
  EQUAL(sdm_publisher_new(p.c, &q, "notes", "me"), 0);
  for (int i = 0; i < 10000; i++) frame_keepalive(&out, false, NULL, 0);
  CHECK(buffer_size(&out) > READ_BYTES);
  EQUAL(send(p.socket, buffer_content(&out), buffer_size(&out), MSG_DONTWAIT), buffer_size(&out));
  EQUAL(sdm_flush(q, 0), -ETIMEDOUT);
  EQUAL(sdm_wait(p.c, 0), 1);
  EQUAL(sdm_process(p.c), 1);
  buffer_clear(&out);
  sdm_publisher_unref(q);
  put_away(&p);
}

/* A program that closes descriptors which are not its own gets errors, and no call that never returns. */
static void closed_descriptors(void) {
  struct peer p = connected();
  sdm_event e;
  sdm_set_timeout(p.c, 1000000);
  sdm_process(p.c);
  close(sdm_get_fd(p.c));
  EQUAL(sdm_wait(p.c, 1000000), -EBADF);
  EQUAL(sdm_get(p.c, "quotes", &e), -EBADF);
  put_away(&p);
}

/* While no daemon listens at a port of this host, the kernel may give that port to the connecting socket itself. */
static void own_peer(void) {
  struct peer p = connected();
  sdm_subscription *s = subscribed(&p, true, 1);
  close(p.socket);
  while (sdm_is_connected(p.c) == 1) sdm_process(p.c);
  struct sockaddr_in own = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t size = sizeof own;
  int alone = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  CHECK(bind(alone, (struct sockaddr *)&own, size) == 0 && getsockname(alone, (struct sockaddr *)&own, &size) == 0);
  CHECK(connect(alone, (struct sockaddr *)&own, size) == 0);
  p.c->state = CONNECTING;
  p.c->socket = alone;
  p.c->connect_until = UINT64_MAX;
  CHECK(sdm_process(p.c) >= 0);
  EQUAL(sdm_is_connected(p.c), 0);
  p.socket = -1;
  sdm_subscription_unref(s);
  put_away(&p);
}

int main(int count, char **words) {
  CHECK(count == 2);
  listen_at(words[1]);
  violations();
  splits();
  losses();
  stopped_without_credit();
  wait_then_poll();
  flush_then_poll();
  closes();
  too_large();
  sentences();
  numbers();
  room();
  first_values();
  command_results();
  command_arguments();
  command_given_up();
  command_requests();
  command_over_loss();
  command_over_restart();
  command_without_connection();
  publisher_survives();
  reasons_of_ends();
  reasons_of_closes();
  announces();
  keepalive();
  flood();
  chatter();
  closed_descriptors();
  own_peer();
  stop_listening();
  return 0;
}

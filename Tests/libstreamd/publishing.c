/* Publishers of the library against the daemon of peer.h. */
#include "peer.h"

#include <poll.h>
#include <unistd.h>

/* A first value over `max_request` ends its publisher, and is a loss for others. */
void too_large(void) {
  struct peer p = connected();
  sdm_publisher *q;
  sdm_subscription *s = subscribed(&p, true, 4);
  EQUAL(sdm_publisher_new(p.c, &q, "notes", NULL), 0);
  EQUAL(sdm_publish(q, "value", 5), 0);
  put_error(&p, 0, 0x101, "the fragments up to request 3 exceed the limit of 1048576 bytes");
  EQUAL(sdm_flush(q, PATIENCE), -EMSGSIZE);
  EQUAL(sdm_is_connected(p.c), 0);
  sdm_event e;
  EQUAL(sdm_next(s, &e), 0);
  sdm_publisher_unref(q);
  sdm_subscription_unref(s);
  put_away(&p);
}

static void put_numbers(struct peer *p, uint64_t confirmed, uint64_t next) {
  struct buffer content = {0}, out = {0};
  buffer_put(&content, confirmed, 8);
  if (next) buffer_put(&content, next, 8);
  put_frame(&out, 1, FRAME_PAYLOAD, FLAG_NEXT, buffer_content(&content), buffer_size(&content));
  frame_number(&out, 1, FRAME_REQUEST_N, 8);
  put(p, &out);
  buffer_clear(&content);
}

void numbers(void) {
  struct peer p = connected();
  sdm_publisher *q;
  const uint8_t *content;
  size_t size;
  uint64_t number = 0;
  EQUAL(sdm_publisher_new(p.c, &q, "notes", "me"), 0);
  for (int i = 0; i < 3; i++) EQUAL(sdm_publish(q, "value", 5), 0);
  sent(&p, FRAME_REQUEST_CHANNEL, &content, &size);
  CHECK(size > 10 && memcmp(content + size - 10, "\0\0\0\0\0\0\0\1me", 10) == 0);
  put_numbers(&p, 40, 42); /* of a former run: 41 waits for space */
  EQUAL(sdm_confirmed(q, &number), 0);
  EQUAL(number, 40);
  for (int i = 0; i < 3; i++) sent(&p, FRAME_PAYLOAD, &content, &size);
  put_numbers(&p, 42, 0);
  EQUAL(sdm_confirmed(q, &number), 0);
  EQUAL(number, 42);
  close(p.socket);
  while (sdm_is_connected(p.c) == 1) sdm_process(p.c);
  while (sdm_is_connected(p.c) == 0) {
    CHECK(sdm_wait(p.c, PATIENCE) == 1);
    sdm_process(p.c);
  }
  take_socket(&p);
  sent(&p, FRAME_REQUEST_CHANNEL, &content, &size);
  CHECK(memcmp(content + size - 10, "\0\0\0\0\0\0\0\x2bme", 10) == 0);
  put_numbers(&p, 43, 44);
  sent(&p, FRAME_PAYLOAD, &content, &size); /* the last value alone */
  CHECK(size == 5);
  put_numbers(&p, 44, 0);
  EQUAL(sdm_flush(q, 0), 0);
  put_numbers(&p, 45, 0);
  EQUAL(sdm_flush(q, 0), -EPROTO);
  SAYS(p.c, "the daemon confirms a value that was not sent");
  sdm_publisher_unref(q);
  put_away(&p);

  const struct { uint64_t confirmed, next; int result; } cases[] = {
      {0, 0, -EPROTO}, {5, 5, -EPROTO}, {0, (UINT64_C(1) << 62) + 1, -EPROTO}, {UINT64_MAX, UINT64_MAX, -EPROTO}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    p = connected();
    EQUAL(sdm_publisher_new(p.c, &q, "notes", "me"), 0);
    put_numbers(&p, cases[i].confirmed, cases[i].next);
    EQUAL(sdm_flush(q, PATIENCE), cases[i].result);
    sdm_publisher_unref(q);
    put_away(&p);
  }
}

/* Reads all that the library has sent. */
static size_t drain(struct peer *p) {
  static char bytes[1 << 20];
  size_t all = 0;
  ssize_t count;
  while ((count = recv(p->socket, bytes, sizeof bytes, MSG_DONTWAIT)) > 0) all += (size_t)count;
  return all;
}

/* Values wait for room in the output, which another call than sdm_process() then sends: the rest makes the descriptor readable. */
void room(void) {
  struct peer p = connected();
  sdm_publisher *q;
  int size = 200 << 10;
  CHECK(setsockopt(p.c->socket, SOL_SOCKET, SO_SNDBUF, &size, sizeof size) == 0); /* more than the output has room for */
  EQUAL(sdm_publisher_new(p.c, &q, "notes", NULL), 0);
  enum { VALUES = 200, BYTES = 10000 };
  static char value[BYTES];
  EQUAL(sdm_publish(q, value, BYTES), 0);
  struct buffer out = {0};
  frame_number(&out, 1, FRAME_REQUEST_N, 1000);
  put(&p, &out);
  for (int i = 1; i < VALUES; i++) EQUAL(sdm_publish(q, value, BYTES), 0);
  CHECK(q->unsent > 10);
  size_t all = drain(&p);
  CHECK(buffer_size(&p.c->output) > OUTPUT_ROOM);
  EQUAL(sdm_publish(q, value, BYTES), 0);
  while (all < VALUES * BYTES) {
    all += drain(&p);
    if (all < VALUES * BYTES) EQUAL(sdm_wait(p.c, 100000), 1);
    CHECK(sdm_process(p.c) >= 0);
  }
  sdm_publisher_unref(q);
  put_away(&p);
}

/* First values, which go with their requests, wait for room as well: no number of them is a daemon that does not read. */
void first_values(void) {
  struct peer p = connected();
  enum { PUBLISHERS = 8, BYTES = 5 << 20 };
  sdm_publisher *publishers[PUBLISHERS];
  char *value = calloc(1, BYTES);
  CHECK(value);
  for (int i = 0; i < PUBLISHERS; i++) {
    EQUAL(sdm_publisher_new(p.c, &publishers[i], "notes", NULL), 0);
    EQUAL(sdm_publish(publishers[i], value, BYTES), 0);
    CHECK(sdm_process(p.c) >= 0);
    EQUAL(sdm_is_connected(p.c), 1);
  }
  struct buffer out = {0};
  size_t all = 0;
  while (all < (size_t)PUBLISHERS * BYTES) {
    all += drain(&p);
    frame_keepalive(&out, false, NULL, 0); /* a sign of life */
    put(&p, &out);
    CHECK(buffer_size(&p.c->output) < OUTPUT_LIMIT / 2);
  }
  for (int i = 0; i < PUBLISHERS; i++) sdm_publisher_unref(publishers[i]);
  free(value);
  put_away(&p);
}

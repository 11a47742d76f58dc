/* Checks of subscriptions: where they start, credit, what events have, and refusals. */
#include "client.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>


void starts(void) {
  publish("notes", 5, "a%d");
  sdm *c = connected();
  sdm_event e;
  sdm_subscription *s = subscribed(c, "notes", from(SDM_FROM_REPLAY, 0, 10));
  EQUAL(next_of(c, s, &e), 1);
  CHECK(is_text(&e, "a3")); /* the stream's replay is 3 */
  uint64_t id = e.id, time = e.time;
  expect_run(c, s, "a%d", 4, 5);
  sdm_subscription_unref(s);

  s = subscribed(c, "notes", from(SDM_FROM_LATEST, 0, 10));
  expect_run(c, s, "a%d", 5, 5);
  sdm_subscription_unref(s);
  s = subscribed(c, "notes", from(SDM_FROM_ID, id, 10));
  expect_run(c, s, "a%d", 4, 5);
  sdm_subscription_unref(s);
  s = subscribed(c, "notes", from(SDM_FROM_TIME, time, 10));
  EQUAL(next_of(c, s, &e), 1);
  CHECK(e.time >= time && e.id <= id); /* events of one microsecond have one time */
  sdm_subscription_unref(s);
  s = subscribed(c, "notes", from(SDM_FROM_AGO, UINT64_C(3600000000), 10));
  expect_run(c, s, "a%d", 1, 5);
  sdm_subscription_unref(s);
  s = subscribed(c, "notes", from(SDM_FROM_LAST, 4, 10));
  expect_run(c, s, "a%d", 2, 5);
  sdm_subscription_unref(s);
  s = subscribed(c, "notes", from(SDM_FROM_LAST, UINT64_MAX, 10));
  expect_run(c, s, "a%d", 1, 5);
  sdm_subscription_unref(s);
  sdm_options none = from(SDM_FROM_LAST, 0, 10);
  EQUAL(sdm_subscribe(c, &s, "notes", &none), -EINVAL);
  s = subscribed(c, "notes", from(SDM_FROM_AGO, 1, 10));
  CHECK(is_quiet(c, s));
  sdm_subscription_unref(s);
  s = subscribed(c, "notes", from(SDM_FROM_NEW, 0, 10));
  CHECK(is_quiet(c, s));
  publish("notes", 1, "new%d");
  expect_run(c, s, "new%d", 1, 1);
  sdm_subscription_unref(s);
  sdm_unref(c);
}

void pattern(void) {
  publish("rooms/a", 1, "a%d");
  sdm *c = connected();
  sdm_event e;
  sdm_subscription *s = subscribed(c, "rooms/*", from(SDM_FROM_REPLAY, 0, 10));
  EQUAL(next_of(c, s, &e), 1);
  CHECK(is_text(&e, "a1") && e.stream && strcmp(e.stream, "rooms/a") == 0 && e.id > 0);
  publish("rooms/b", 2, "b%d");
  for (int i = 1; i <= 2; i++) {
    EQUAL(next_of(c, s, &e), 1);
    CHECK(e.stream && strcmp(e.stream, "rooms/b") == 0 && e.data && e.gap == 0);
    CHECK(e.position > 0 && e.position <= e.time);
  }
  uint64_t position = e.position;
  sdm_subscription_unref(s);
  publish("rooms/a", 1, "c%d");
  s = subscribed(c, "rooms/*", from(SDM_FROM_ID, position, 10));
  do EQUAL(next_of(c, s, &e), 1);
  while (strcmp(e.stream, "rooms/b") == 0); /* the events of that time come again */
  CHECK(is_text(&e, "c1") && strcmp(e.stream, "rooms/a") == 0);
  sdm_subscription_unref(s);
  sdm_unref(c);
}

void state(void) {
  publish("quotes", 3, "{\"symbol\":\"S%d\",\"round\":1}");
  publish("quotes", 2, "{\"symbol\":\"S%d\",\"round\":2}");
  sdm *c = connected();
  sdm_subscription *s = subscribed(c, "quotes", from(SDM_FROM_STATE, 0, 3));
  expect_run(c, s, "{\"symbol\":\"S%d\",\"round\":1}", 3, 3);
  expect_run(c, s, "{\"symbol\":\"S%d\",\"round\":2}", 1, 2);
  CHECK(is_quiet(c, s)); /* the marker that ends the state is not delivered */
  publish("quotes", 5, "{\"symbol\":\"S%d\",\"round\":3}");
  expect_run(c, s, "{\"symbol\":\"S%d\",\"round\":3}", 1, 5);
  ask("kill");
  publish("quotes", 5, "{\"symbol\":\"S%d\",\"round\":4}");
  expect_run(c, s, "{\"symbol\":\"S%d\",\"round\":4}", 1, 5); /* resumed after the state */
  sdm_subscription_unref(s);
  sdm_unref(c);
}

void credit(void) {
  publish("notes", 3, "c%d");
  sdm *c = connected();
  sdm_event e;
  sdm_subscription *s = subscribed(c, "notes", from(SDM_FROM_REPLAY, 0, 0));
  CHECK(is_quiet(c, s));
  EQUAL(sdm_request(s, 0), -EINVAL);
  EQUAL(sdm_request(s, 2), 0);
  expect_run(c, s, "c%d", 1, 2);
  CHECK(is_quiet(c, s));
  EQUAL(sdm_request(s, 1), 0);
  expect_run(c, s, "c%d", 3, 3);
  EQUAL(sdm_request(s, SDM_UNLIMITED), 0);
  publish("notes", 5000, "d%d");
  expect_run(c, s, "d%d", 1, 5000);
  CHECK(is_quiet(c, s));
  EQUAL(sdm_next(s, &e), 0);
  EQUAL(sdm_next(s, NULL), -EINVAL);
  sdm_subscription_unref(s);
  sdm_unref(c);
}

/* The loop of a program with descriptors of its own: poll, process, take. */
void poll_loop(void) {
  sdm *c = connected();
  int descriptor = sdm_get_fd(c);
  CHECK((fcntl(descriptor, F_GETFD) & FD_CLOEXEC) != 0);
  EQUAL(sdm_get_events(c), POLLIN);
  sdm_subscription *s = subscribed(c, "notes", from(SDM_FROM_NEW, 0, 4));
  CHECK(is_quiet(c, s));
  publish("notes", 3000, "p%d");
  int count = 0, turns = 0;
  while (count < 3000) {
    struct pollfd one = {.fd = descriptor, .events = POLLIN};
    EQUAL(poll(&one, 1, 20000), 1);
    CHECK(sdm_process(c) >= 0);
    turns++;
    sdm_event e;
    while (sdm_next(s, &e) == 1) {
      char text[16];
      snprintf(text, sizeof text, "p%d", ++count);
      CHECK(is_text(&e, text));
    }
  }
  CHECK(turns < 6000);
  /* Without work the descriptor is quiet, also if events are not taken. */
  publish("notes", 8, "q%d");
  uint64_t wakes = 0;
  for (int i = 0; i < 40; i++) {
    struct pollfd one = {.fd = descriptor, .events = POLLIN};
    if (poll(&one, 1, 10) == 1) wakes++;
    CHECK(sdm_process(c) >= 0);
  }
  CHECK(wakes < 20);
  EQUAL(sdm_wait(c, 1000), 0);
  expect_run(c, s, "q%d", 1, 8);
  EQUAL(sdm_get_fd(c), descriptor);
  sdm_subscription_unref(s);
  sdm_unref(c);
}

void batches(void) {
  publish("notes", 3, "b%d");
  sdm *c = connected();
  sdm_subscription *s = subscribed(c, "notes", from(SDM_FROM_REPLAY, 0, 20000));
  sdm_event events[64], e;
  EQUAL(next_of(c, s, &e), 1);
  EQUAL(sdm_next_batch(s, events, 0), -EINVAL);
  int count = 0;
  while (count < 2) { /* a busy daemon may send them one by one */
    int got = sdm_next_batch(s, events, 64);
    CHECK(got >= 0);
    if (!got) CHECK(sdm_wait(c, PATIENCE) == 1);
    sdm_process(c);
    count += got;
  }
  EQUAL(count, 2);
  publish("notes", 10000, "batch %d");
  count = 0;
  while (count < 10000) {
    int got = sdm_next_batch(s, events, 64);
    CHECK(got >= 0 && got <= 64);
    if (!got) CHECK(sdm_wait(c, PATIENCE) == 1);
    sdm_process(c); /* what the batch has stays as it is */
    for (int i = 0; i < got; i++) {
      char text[32];
      snprintf(text, sizeof text, "batch %d", ++count);
      CHECK(is_text(&events[i], text));
    }
  }
  sdm_subscription_unref(s);
  sdm_unref(c);
}

void gaps(void) {
  publish("brief", 1, "first%d");
  sdm *c = connected();
  sdm_event e;
  sdm_options failing = from(SDM_FROM_LATEST, 0, 1);
  failing.on_lag = SDM_ON_LAG_FAIL;
  failing.window = 0;
  sdm_options latest = failing;
  latest.on_lag = SDM_ON_LAG_LATEST;
  sdm_subscription *s = subscribed(c, "brief", from(SDM_FROM_LATEST, 0, 0)), *t = subscribed(c, "brief", failing),
                   *u = subscribed(c, "brief", latest);
  sdm_subscription *all[] = {s, t, u};
  for (int i = 0; i < 3; i++) {
    EQUAL(sdm_request(all[i], 1), 0);
    expect_run(c, all[i], "first%d", 1, 1);
  }
  publish("brief", 20, "g%d"); /* the buffer has 4 */
  for (int i = 0; i < 3; i++) EQUAL(sdm_request(all[i], 10), 0);
  EQUAL(next_of(c, s, &e), 1);
  EQUAL(e.gap, 16);
  CHECK(is_text(&e, "g17"));
  expect_run(c, s, "g%d", 18, 20);
  EQUAL(next_of(c, t, &e), -ENOBUFS);
  SAYS(c, "lagged: 16 events lost");
  EQUAL(sdm_next(t, &e), -ENOBUFS);
  EQUAL(sdm_request(t, 1), -EBADF);
  EQUAL(next_of(c, u, &e), 1);
  EQUAL(e.gap, 19);
  for (int i = 0; i < 3; i++) sdm_subscription_unref(all[i]);
  sdm_unref(c);
}

void filters(void) {
  sdm *c = connected();
  sdm_event e;
  sdm_options o = from(SDM_FROM_NEW, 0, 2);
  o.where = " {\"/n\": {\"ge\": 8}} ";
  sdm_subscription *s = subscribed(c, "notes", o);
  CHECK(is_quiet(c, s));
  publish("notes", 9, "{\"n\":%d}");
  EQUAL(next_of(c, s, &e), 1);
  CHECK(is_text(&e, "{\"n\":8}"));
  EQUAL(e.left_out, 7);
  expect_run(c, s, "{\"n\":%d}", 9, 9);
  ask("kill");
  publish("notes", 9, "{\"n\":%d}");
  EQUAL(next_of(c, s, &e), 1);
  CHECK(is_text(&e, "{\"n\":8}"));
  EQUAL(e.gap, 0);
  sdm_subscription_unref(s);
  const char *wrong[] = {"", "[]", "{\"/n\":1},\"from\":{}", "{\"/n\":1", "{\"/n\":\"}"};
  for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
    o.where = wrong[i];
    EQUAL(sdm_subscribe(c, &s, "notes", &o), -EINVAL);
  }
  o.where = "{\"n\":1}"; /* no JSON pointer */
  s = subscribed(c, "notes", o);
  EQUAL(next_of(c, s, &e), -EINVAL);
  CHECK(strlen(sdm_error(c)) > 10);
  sdm_subscription_unref(s);
  sdm_unref(c);
}

void markers(void) {
  publish("notes", 3, "m%d");
  sdm *c = connected();
  sdm_event e;
  sdm_options o = from(SDM_FROM_REPLAY, 0, 10);
  o.marker = true;
  sdm_subscription *s = subscribed(c, "notes", o);
  expect_run(c, s, "m%d", 1, 2);
  EQUAL(next_of(c, s, &e), 1);
  uint64_t id = e.id;
  EQUAL(next_of(c, s, &e), 1);
  EQUAL(e.kind, SDM_MARKER);
  EQUAL(e.id, id);
  EQUAL(e.size, 0);
  CHECK(e.data != NULL);
  sdm_subscription_unref(s);
  sdm_unref(c);
}

void end_of_stream(void) {
  sdm *c = connected();
  sdm_event e;
  sdm_subscription *s = subscribed(c, "count", from(SDM_FROM_REPLAY, 0, 100));
  for (int i = 0; i < 3; i++) EQUAL(next_of(c, s, &e), 1);
  for (int i = 0; i < 3; i++) EQUAL(next_of(c, s, &e), -ENODATA);
  EQUAL(sdm_request(s, 1), -EBADF);
  sdm_subscription_unref(s);
  sdm_unref(c);
}

/* The sentences that tell the causes of REJECTED apart: WIRE.md, "error | cause". */
void refusals(void) {
  sdm *c = connected();
  sdm_event e;
  char sentence[128];
  EQUAL(sdm_get(c, "nothing", &e), -ENOENT);
  SAYS(c, "no stream named \"nothing\"");
  snprintf(sentence, sizeof sentence, "uid %d may not read \"private\"", (int)getuid());
  EQUAL(sdm_get(c, "private", &e), -EACCES);
  SAYS(c, sentence);
  sdm_subscription *s = subscribed(c, "private", from(SDM_FROM_REPLAY, 0, 1));
  EQUAL(next_of(c, s, &e), -EACCES);
  SAYS(c, sentence);
  sdm_subscription_unref(s);
  sdm_publisher *p;
  EQUAL(sdm_publisher_new(c, &p, "guarded", "x"), 0);
  EQUAL(sdm_flush(p, PATIENCE), -EACCES);
  snprintf(sentence, sizeof sentence, "uid %d may not write \"guarded\"; to admit it, add \"uid:", (int)getuid());
  CHECK(strncmp(sdm_error(c), sentence, strlen(sentence)) == 0);
  sdm_publisher_unref(p);
  EQUAL(sdm_publisher_new(c, &p, "count", "x"), 0);
  EQUAL(sdm_flush(p, PATIENCE), -EOPNOTSUPP);
  SAYS(c, "with the source timer, not publish, \"count\" does not accept values");
  EQUAL(sdm_publish(p, "x", 1), -EBADF);
  EQUAL(sdm_flush(p, 0), -EOPNOTSUPP);
  sdm_publisher_unref(p);
  s = subscribed(c, "notes", from(SDM_FROM_ID, UINT64_C(1) << 62, 1));
  EQUAL(next_of(c, s, &e), -EINVAL);
  sdm_subscription_unref(s);
  s = subscribed(c, "notes", from(SDM_FROM_STATE, 0, 1));
  EQUAL(next_of(c, s, &e), -EINVAL);
  SAYS(c, "the stream has no keys, and so no state");
  sdm_subscription_unref(s);
  sdm_subscription *many[8];
  for (int i = 0; i < 8; i++) many[i] = subscribed(c, "notes", from(SDM_FROM_NEW, 0, 1));
  EQUAL(sdm_get(c, "notes", &e), -EDQUOT); /* max_requests_per_connection is 8 */
  for (int i = 0; i < 8; i++) sdm_subscription_unref(many[i]);
  sdm_unref(c);
}

void arguments(void) {
  sdm *c = NULL;
  const char *wrong[] = {"", "relative", "unix:relative", "http://x", "tcp:", "tcp:host", "tcp:1.2.3.4:0", "tcp:1.2.3.4:65536",
                         "tcp:::1:80", "tcp:[::1:80", "tcp:host:http", "host", "host:0", "a/b:80", "a b:80", "[host]:80", "::1:80",
                         "udp:host:80"};
  for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) EQUAL(sdm_connect(&c, wrong[i]), -EINVAL);
  EQUAL(sdm_connect(&c, "/nothing/there"), -ENOENT);
  CHECK(c == NULL);
  setenv("STREAMD_SOCKET", address, 1);
  EQUAL(sdm_connect(&c, NULL), 0);
  sdm_subscription *s = NULL;
  sdm_publisher *p = NULL;
  char name[300];
  memset(name, 'x', sizeof name);
  name[256] = 0;
  EQUAL(sdm_subscribe(c, &s, name, NULL), -EINVAL);
  EQUAL(sdm_subscribe(c, &s, "", NULL), -EINVAL);
  name[49] = 0;
  EQUAL(sdm_publisher_new(c, &p, "notes", name), -EINVAL);
  EQUAL(sdm_publisher_new(c, &p, "notes", ""), -EINVAL);
  struct { sdm_options o; char more[8]; } larger = {SDM_OPTIONS_INIT, {0}};
  larger.o.size = sizeof larger;
  EQUAL(sdm_subscribe(c, &s, "notes", &larger.o), 0);
  sdm_subscription_unref(s);
  larger.more[3] = 1;
  EQUAL(sdm_subscribe(c, &s, "notes", &larger.o), -EINVAL);
  larger.o.size = 0;
  EQUAL(sdm_subscribe(c, &s, "notes", &larger.o), -EINVAL);
  larger.o.size = sizeof(size_t);
  larger.o.from = (sdm_from)99; /* beyond the size */
  EQUAL(sdm_subscribe(c, &s, "notes", &larger.o), 0);
  sdm_subscription_unref(s);
  larger.o.size = sizeof larger.o;
  EQUAL(sdm_subscribe(c, &s, "notes", &larger.o), -EINVAL);
  EQUAL(sdm_is_connected(c), 1);
  EQUAL(sdm_next(NULL, NULL), -EINVAL);
  CHECK(sdm_unref(NULL) == NULL && sdm_subscription_unref(NULL) == NULL && sdm_publisher_unref(NULL) == NULL);
  sdm_ref(c);
  CHECK(sdm_unref(c) == NULL);
  EQUAL(sdm_is_connected(c), 1);
  sdm_unrefp(&c);
}

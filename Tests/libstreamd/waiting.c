/* Checks of calls that wait, of losses, and of publishers. */
#include "client.h"

#include <signal.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

static void on_alarm(int number) { (void)number; }

/* Calls the handler every `usec` from now on, so that a call that begins late is interrupted, too; 0: no more. */
static void set_alarm(long usec) {
  struct sigaction action = {.sa_handler = on_alarm};
  sigaction(SIGALRM, &action, NULL);
  struct itimerval timer = {.it_value.tv_usec = usec, .it_interval.tv_usec = usec};
  setitimer(ITIMER_REAL, &timer, NULL);
}

void waits(void) {
  sdm *c = connected();
  sdm_event e;
  CHECK(sdm_process(c) >= 0);
  EQUAL(sdm_wait(c, 0), 0);
  EQUAL(sdm_wait(c, 30000), 0);
  set_alarm(30000);
  EQUAL(sdm_wait(c, UINT64_MAX), -EINTR);
  set_alarm(0);
  EQUAL(sdm_set_timeout(c, 30000), 0);
  EQUAL(sdm_get(c, "never", &e), -ETIMEDOUT);
  EQUAL(sdm_set_timeout(c, UINT64_MAX), 0);
  set_alarm(30000);
  EQUAL(sdm_get(c, "never", &e), -EINTR);
  set_alarm(0);
  publish("notes", 1, "w%d");
  EQUAL(sdm_get(c, "notes", &e), 0);
  CHECK(is_text(&e, "w1") && e.id && e.time && !e.gap);
  sdm_publisher *p;
  EQUAL(sdm_publisher_new(c, &p, "full", NULL), 0);
  /* Nobody reads the lossless stream: it takes 4 values, then none. */
  sdm_subscription *s = subscribed(c, "full", from(SDM_FROM_NEW, 0, 1));
  CHECK(is_quiet(c, s));
  int count = 0;
  while (sdm_publish(p, "value", 5) == 0) {
    count++;
    if (count % 100 == 0) sdm_process(c);
  }
  CHECK(count >= 4096 && count < 9000);
  EQUAL(sdm_publish(p, "value", 5), -EAGAIN);
  EQUAL(sdm_flush(p, 0), -ETIMEDOUT);
  set_alarm(30000);
  EQUAL(sdm_flush(p, UINT64_MAX), -EINTR);
  set_alarm(0);
  EQUAL(sdm_request(s, SDM_UNLIMITED), 0);
  for (int i = 0; i < count; i++) EQUAL(next_of(c, s, &e), 1);
  EQUAL(sdm_flush(p, PATIENCE), 0);
  uint64_t number = 0;
  EQUAL(sdm_confirmed(p, &number), 0);
  EQUAL(number, count);
  sdm_publisher_unref(p);
  sdm_subscription_unref(s);
  sdm_unref(c);
}

/* A reader that takes nothing costs bounded memory, and delays no other call. */
static void read_nothing(uint32_t credit, int published, size_t limit) {
  sdm *c = connected();
  sdm_event e;
  sdm_subscription *s = subscribed(c, "pages", from(SDM_FROM_NEW, 0, 0));
  EQUAL(sdm_request(s, credit), 0);
  CHECK(is_quiet(c, s));
  sdm *d = connected();
  sdm_publisher *p;
  EQUAL(sdm_publisher_new(d, &p, "pages", NULL), 0);
  enum { SIZE = 100000 };
  static char page[SIZE];
  for (int i = 0; i < published; i++) {
    memset(page, 'a' + i % 26, SIZE);
    int result;
    while ((result = sdm_publish(p, page, SIZE)) == -EAGAIN) EQUAL(sdm_flush(p, PATIENCE), 0);
    EQUAL(result, 0);
    sdm_process(c);
  }
  EQUAL(sdm_flush(p, PATIENCE), 0);
  for (int idle = 0; idle < 20;) { /* until nothing more is read */
    bool works = sdm_wait(c, 10000) == 1 && sdm_process(c) > 0;
    idle = works ? 0 : idle + 1;
  }
  uint64_t seen = 0, last_seen = 0;
  size_t untaken = 0;
  while (sdm_next(s, &e) == 1) untaken += e.size, seen += 1 + e.gap, last_seen = e.id;
  CHECK(untaken > limit / 4 && untaken < limit);
  EQUAL(sdm_get(c, "pages", &e), 0); /* the events before its reply are kept */
  EQUAL(e.size, SIZE);
  EQUAL(((const char *)e.data)[SIZE - 1], 'a' + (published - 1) % 26);
  uint64_t last = e.id;
  e.id = last_seen;
  while (e.id < last) {
    EQUAL(next_of(c, s, &e), 1);
    seen += 1 + e.gap;
  }
  EQUAL(seen, published);
  sdm_publisher_unref(p);
  sdm_subscription_unref(s);
  sdm_unref(c);
  sdm_unref(d);
}

/* Nothing is taken during sdm_get(), so no credit is renewed. */
static void get_reads_what_has_credit(void) {
  sdm *c = connected();
  sdm_event e;
  sdm_subscription *s = subscribed(c, "notes", from(SDM_FROM_NEW, 0, 50));
  CHECK(is_quiet(c, s));
  publish("notes", 300, "b%d");
  EQUAL(sdm_set_timeout(c, 500000), 0);
  EQUAL(sdm_get(c, "never", &e), -ETIMEDOUT);
  int count = 0;
  while (sdm_next(s, &e) == 1) count++;
  EQUAL(count, 50);
  sdm_subscription_unref(s);
  sdm_unref(c);
}

void bounded(void) {
  get_reads_what_has_credit();
  read_nothing(SDM_UNLIMITED, 300, 16 << 20); /* by credit */
  read_nothing(1000000, 800, 70 << 20);       /* by not reading */
}

static void resume(const char *loss) {
  publish("notes", 3, "r%d");
  sdm *c = connected();
  sdm_event e;
  int descriptor = sdm_get_fd(c);
  sdm_subscription *s = subscribed(c, "notes", from(SDM_FROM_REPLAY, 0, 0));
  EQUAL(sdm_request(s, 6), 0);
  expect_run(c, s, "r%d", 1, 3); /* 3 remain */
  sdm_options o = from(SDM_FROM_NEW, 0, 5);
  o.reconnect = false;
  sdm_subscription *t = subscribed(c, "notes", o);
  CHECK(is_quiet(c, t));
  ask(loss);
  publish("notes", 6, "s%d");
  expect_run(c, s, "s%d", 1, 3);
  EQUAL(sdm_is_connected(c), 1);
  EQUAL(sdm_get_fd(c), descriptor);
  CHECK(is_quiet(c, s));
  EQUAL(next_of(c, t, &e), strcmp(loss, "restart") == 0 ? -ECANCELED : -ECONNRESET);
  sdm_subscription_unref(t);
  EQUAL(sdm_request(s, 10), 0);
  expect_run(c, s, "s%d", 4, 6);
  sdm_subscription_unref(s);
  sdm_unref(c);
}

void resume_over_kill(void) { resume("kill"); }
void resume_over_stop(void) { resume("restart"); }
void resume_over_loss(void) { resume("cut"); }

void gap_over_loss(void) {
  publish("brief", 4, "r%d");
  sdm *c = connected();
  sdm_event e;
  sdm_subscription *s = subscribed(c, "brief", from(SDM_FROM_LATEST, 0, 100));
  expect_run(c, s, "r%d", 4, 4);
  ask("block");
  CHECK(sdm_wait(c, PATIENCE) == 1);
  CHECK(sdm_process(c) >= 0);
  EQUAL(sdm_is_connected(c), 0);
  ask("publish brief 20");
  ask("admit");
  EQUAL(next_of(c, s, &e), 1);
  EQUAL(e.gap, 16);
  sdm_subscription_unref(s);
  sdm_unref(c);
}

void lost_without_reconnect(void) {
  sdm *c = connected();
  sdm_event e;
  sdm_options o = from(SDM_FROM_NEW, 0, 5);
  o.reconnect = false;
  sdm_subscription *s = subscribed(c, "notes", o), *idle = NULL;
  EQUAL(sdm_subscribe(c, &idle, "notes", &(sdm_options){.size = sizeof(sdm_options), .reconnect = false}), 0);
  CHECK(is_quiet(c, s));
  ask("cut");
  EQUAL(next_of(c, s, &e), -ECONNRESET);
  EQUAL(next_of(c, idle, &e), -ECONNRESET);
  EQUAL(sdm_process(c), -ECONNRESET);
  EQUAL(sdm_is_connected(c), -ECONNRESET);
  EQUAL(sdm_get(c, "notes", &e), -EBADF);
  EQUAL(sdm_next(s, &e), -ECONNRESET);
  sdm_subscription_unref(s);
  sdm_subscription_unref(idle);
  sdm_unref(c);
}

/* A named publisher loses and repeats nothing over kills. */
void publish_over_kills(void) {
  sdm *c = connected();
  sdm_publisher *p, *q;
  EQUAL(sdm_publisher_new(c, &p, "kept", "sensor"), 0);
  uint64_t number = 99;
  EQUAL(sdm_confirmed(p, &number), -EAGAIN);
  EQUAL(sdm_flush(p, PATIENCE), 0);
  EQUAL(sdm_confirmed(p, &number), 0);
  EQUAL(number, 0);
  for (int i = 1; i <= 3000; i++) {
    char text[32];
    int size = snprintf(text, sizeof text, "k%d", i), result;
    while ((result = sdm_publish(p, text, (size_t)size)) == -EAGAIN) EQUAL(sdm_flush(p, PATIENCE), 0);
    EQUAL(result, 0);
    if (i % 1000 == 500) ask(i % 2000 == 500 ? "kill" : "cut");
  }
  EQUAL(sdm_flush(p, PATIENCE), 0);
  EQUAL(sdm_confirmed(p, &number), 0);
  EQUAL(number, 3000);
  EQUAL(sdm_publisher_new(c, &q, "kept", "sensor"), 0);
  EQUAL(sdm_flush(q, PATIENCE), -ECANCELED); /* another publisher has the name */
  sdm_publisher_unref(q);
  sdm_publisher_unref(p);
  sdm_unref(c);

  c = connected(); /* another process: it continues after the number */
  EQUAL(sdm_publisher_new(c, &p, "kept", "sensor"), 0);
  EQUAL(sdm_publish(p, "k3001", 5), 0);
  EQUAL(sdm_flush(p, PATIENCE), 0);
  EQUAL(sdm_confirmed(p, &number), 0);
  EQUAL(number, 3001);
  sdm_publisher_unref(p);
  sdm_subscription *s = subscribed(c, "kept", from(SDM_FROM_REPLAY, 0, 1000));
  expect_run(c, s, "k%d", 1, 3001);
  CHECK(is_quiet(c, s));
  sdm_subscription_unref(s);
  sdm_unref(c);
}

void publish_unnamed(void) {
  sdm *c = connected();
  sdm_publisher *p;
  sdm_event e;
  uint64_t number = 0;
  EQUAL(sdm_publisher_new(c, &p, "notes", NULL), 0);
  EQUAL(sdm_flush(p, 0), 0);
  EQUAL(sdm_confirmed(p, &number), -EAGAIN);
  static char large[300000];
  memset(large, 'x', sizeof large);
  for (int round = 1; round <= 3; round++) { /* each flush ends a request */
    EQUAL(sdm_publish(p, large, sizeof large), 0);
    EQUAL(sdm_publish(p, "", 0), 0); /* is confirmed, and no event */
    EQUAL(sdm_publish(p, "last", 4), 0);
    EQUAL(sdm_flush(p, PATIENCE), 0);
    EQUAL(sdm_confirmed(p, &number), 0);
    EQUAL(number, 3 * round);
  }
  sdm_subscription *s = subscribed(c, "notes", from(SDM_FROM_REPLAY, 0, 3));
  expect_run(c, s, "last", 0, 0);
  EQUAL(next_of(c, s, &e), 1);
  EQUAL(e.size, sizeof large);
  CHECK(memcmp(e.data, large, sizeof large) == 0);
  expect_run(c, s, "last", 0, 0);
  EQUAL(sdm_publish(p, large, (size_t)1 << 24), -EMSGSIZE);
  static char huge[2 << 20];
  EQUAL(sdm_publish(p, huge, sizeof huge), 0);
  EQUAL(sdm_flush(p, PATIENCE), -EMSGSIZE); /* over max_request */
  EQUAL(sdm_flush(p, PATIENCE), -EMSGSIZE);
  sdm_publisher_unref(p);
  EQUAL(sdm_get(c, "notes", &e), 0); /* the daemon has closed the connection, and the subscription restores it */
  EQUAL(sdm_publisher_new(c, &p, "notes", NULL), 0);
  EQUAL(sdm_publish(p, "one", 3), 0);
  ask("cut");
  EQUAL(sdm_flush(p, PATIENCE), -ECONNRESET);
  sdm_publisher_unref(p);
  EQUAL(sdm_get(c, "notes", &e), 0);
  sdm_subscription_unref(s);
  sdm_unref(c);
}

void tcp(void) {
  address = tcp_address;
  publish("open", 3, "t%d");
  sdm *c = connected();
  sdm_event e;
  sdm_subscription *s = subscribed(c, "open", from(SDM_FROM_REPLAY, 0, 2));
  expect_run(c, s, "t%d", 1, 3);
  EQUAL(sdm_get(c, "open", &e), 0);
  ask("kill");
  publish("open", 3, "u%d");
  expect_run(c, s, "u%d", 1, 3);
  sdm_subscription_unref(s);
  sdm_unref(c);
}

static sdm *connected_with(const char *secret) {
  sdm *c = NULL;
  EQUAL(sdm_connect_with_token(&c, strncmp(tcp_address, "tcp:", 4) == 0 ? tcp_address + 4 : tcp_address, secret), 0);
  return c;
}

/* A token gives access, also after a loss. Once it is not valid any more, the connection ends. */
void token(void) {
  sdm_event e;
  sdm *c = connected_with(NULL);
  EQUAL(sdm_get(c, "private", &e), -EACCES);
  CHECK(strstr(sdm_error(c), "may not read \"private\""));
  sdm_unref(c);
  c = connected_with("no-such-token-0123");
  EQUAL(sdm_get(c, "private", &e), -EACCES);
  CHECK(strcmp(sdm_error(c), "the token is not valid") == 0);
  sdm_unref(c);
  char too_long[1026] = {0};
  memset(too_long, 'a', sizeof too_long - 1);
  EQUAL(sdm_connect_with_token(&c, tcp_address, too_long), -EINVAL);
  EQUAL(sdm_connect_with_token(&c, tcp_address, ""), -EINVAL);

  c = connected_with("alice-0123456789");
  sdm_subscription *s = subscribed(c, "private", from(SDM_FROM_NEW, 0, 2));
  EQUAL(next_of(c, s, &e), 1);
  ask("kill");
  EQUAL(next_of(c, s, &e), 1);
  ask("revoke");
  int result;
  while ((result = next_of(c, s, &e)) == 1);
  EQUAL(result, -EACCES);
  CHECK(strcmp(sdm_error(c), "the token is not valid") == 0);
  sdm_subscription_unref(s);
  sdm_unref(c);
}

/* A child that releases its copies does not disturb the parent. */
void forks(void) {
  publish("notes", 3, "f%d");
  sdm *c = connected();
  sdm_publisher *p;
  sdm_subscription *s = subscribed(c, "notes", from(SDM_FROM_REPLAY, 0, 2));
  EQUAL(sdm_publisher_new(c, &p, "notes", "forker"), 0);
  expect_run(c, s, "f%d", 1, 1);
  pid_t child = fork();
  if (child == 0) {
    sdm_publisher_unref(p);
    sdm_subscription_unref(s);
    sdm_unref(c);
    _exit(0);
  }
  int status = 1;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  expect_run(c, s, "f%d", 2, 3);
  EQUAL(sdm_publish(p, "f4", 2), 0);
  EQUAL(sdm_flush(p, PATIENCE), 0);
  expect_run(c, s, "f%d", 4, 4);
  sdm_publisher_unref(p);
  sdm_subscription_unref(s);
  sdm_unref(c);
}

/* The program lets go of the connection first. */
void lifetime(void) {
  publish("notes", 3, "l%d");
  sdm *c = connected();
  sdm_subscription *s = subscribed(c, "notes", from(SDM_FROM_REPLAY, 0, 10));
  expect_run(c, s, "l%d", 1, 1);
  CHECK(sdm_subscription_ref(s) == s);
  sdm_unref(c);
  sdm_subscription_unref(s);
  expect_run(c, s, "l%d", 2, 3);
  sdm_subscription_unref(s);
}

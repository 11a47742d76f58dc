/* race WHAT SOCKET [COUNT]: a reader of a mapped stream beside a writer in another process, and what it measures.
 *
 *   torn      reads COUNT events of a writer at full speed, over a ring that is small, one event or a batch at a time: each is whole, and
 *             events and gaps together are all that were written
 *   wakes     waits COUNT times for an event: no wake-up is lost, with a waiting page and without one
 *   cleared   likewise, while another process clears the waiting page all the time: an event is found within about a second
 *   speed     prints events per second, and the times of wake-ups by futex and by a socket with epoll */
#include "content.h"
#include "mapping.h"

#include <signal.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static unsigned long long wanted;

static uint64_t now_nsec(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* The processor's time of this process: others may use the machine as well. */
static double busy_seconds(void) { return (double)clock() / CLOCKS_PER_SEC; }

/* --- a writer in another process --- */

static pid_t begin(void (*body)(struct writer *w), struct writer *w) {
  pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    body(w);
    _exit(0);
  }
  return child;
}

static void finish(pid_t child, int number) {
  int status;
  if (number) kill(child, number);
  CHECK(waitpid(child, &status, 0) == child && (number || status == 0));
}

/* Publishes batches of 1 to 16 events until it is killed. */
static void write_on(struct writer *w) {
  for (uint64_t batch = 1;; batch++) {
    for (uint64_t i = 0; i <= batch * 7 % 16; i++) write_next(w);
    writer_publish(w);
  }
}

/* The daemon of peer.h answers nothing, and so is lost after 90 s: there are several rounds. */
enum { ROUND = 1000000 };

static void read_torn(const char *name, struct shape shape, size_t batch, uint64_t count) {
  struct peer p = connected();
  struct writer w = writer_open(shape);
  sdm_mapped *m = mapped(&p, &w, 0, NULL);
  pid_t child = begin(write_on, &w);
  sdm_event events[1024];
  uint64_t read = 0, lost = 0, gaps = 0, last = 0, start = now_nsec();
  while (read < count && read < ROUND) {
    int found = batch ? sdm_mapped_next_batch(m, events, batch) : sdm_mapped_next(m, events);
    CHECK(found >= 0);
    if (!batch && found) found = 1;
    for (int i = 0; i < found; i++) {
      expect_whole(&events[i]);
      EQUAL(events[i].id, last + events[i].gap + 1);
      CHECK(i == 0 || events[i].gap == 0);
      lost += events[i].gap;
      gaps += events[i].gap != 0;
      last = events[i].id;
    }
    read += (uint64_t)found;
  }
  EQUAL(read + lost, last);
  double seconds = (double)(now_nsec() - start) / 1e9;
  finish(child, SIGKILL);
  printf("%s: %llu events read whole, %llu lost in %llu gaps, %.1f s\n", name, (unsigned long long)read, (unsigned long long)lost, (unsigned long long)gaps, seconds);
  sdm_mapped_unref(m);
  writer_close(&w);
  put_away(&p);
  if (count > read) read_torn(name, shape, batch, count - read);
}

static void torn(void) {
  struct shape shape = {.slots = 4096, .ring_bytes = 300000, .generation = 1, .has_page = true};
  read_torn("batches", shape, 1000, wanted * 6 / 10);
  shape.slots = 64;
  shape.ring_bytes = 8000;
  read_torn("a small ring", shape, 64, wanted * 3 / 10);
  read_torn("one by one", shape, 0, wanted / 20);
  shape.slots = 4;
  shape.ring_bytes = 1024;
  read_torn("a tiny ring", shape, 4, wanted / 100); /* nearly all are overwritten first */
}

/* --- waits --- */

/* A page that both processes share: how many events the reader has taken, and when the last one was written. */
static struct shared {
  _Atomic(uint64_t) taken, written_at;
} *shared;

/* Writes an event after each one that was taken, after a pause that differs, so that it comes at any moment of the reader's wait. */
static void write_after_reads(struct writer *w) {
  for (uint64_t count = 0;; count++) {
    while (atomic_load(&shared->taken) < count) {}
    for (uint64_t end = now_nsec() + count * 7919 % 30000; now_nsec() < end;) {}
    atomic_store(&shared->written_at, now_nsec());
    write_next(w);
    writer_publish(w);
  }
}

static void clear_page(struct writer *w) {
  for (;;) atomic_store(w->waiting, 0);
}

static int compare(const void *a, const void *b) {
  uint64_t one = *(const uint64_t *)a, other = *(const uint64_t *)b;
  return one < other ? -1 : one > other;
}

/* Returns the longest delay of an event; prints the quantiles. */
static uint64_t wait_for_events(const char *name, bool has_page, bool is_cleared, uint64_t count, void (*body)(struct writer *)) {
  struct peer p = connected();
  struct writer w = writer_open((struct shape){.slots = 64, .ring_bytes = 40000, .generation = 1, .has_page = has_page});
  sdm_mapped *m = mapped(&p, &w, 0, NULL);
  uint64_t *delays = calloc(count, sizeof *delays);
  atomic_store(&shared->taken, 0);
  pid_t child = begin(body, &w), clearing = is_cleared ? begin(clear_page, &w) : 0;
  for (uint64_t i = 0; i < count; i++) {
    sdm_event e;
    EQUAL(sdm_mapped_wait(m, PATIENCE), 1);
    EQUAL(sdm_mapped_next(m, &e), 1);
    delays[i] = now_nsec() - atomic_load(&shared->written_at);
    EQUAL(e.id, i + 1);
    expect_whole(&e);
    atomic_store(&shared->taken, i + 1);
  }
  if (clearing) finish(clearing, SIGKILL);
  finish(child, SIGKILL);
  qsort(delays, count, sizeof *delays, compare);
  uint64_t longest = delays[count - 1];
  printf("%s: %llu waits, p50 %.1f us, p99 %.1f us, longest %.1f ms\n", name, (unsigned long long)count, (double)delays[count / 2] / 1e3,
         (double)delays[count * 99 / 100] / 1e3, (double)longest / 1e6);
  free(delays);
  sdm_mapped_unref(m);
  writer_close(&w);
  put_away(&p);
  return longest;
}

/* A lost wake-up costs a second. */
static void wakes(void) {
  CHECK(wait_for_events("with a waiting page", true, false, wanted, write_after_reads) < 900000000);
  CHECK(wait_for_events("without a waiting page", false, false, wanted / 4, write_after_reads) < 900000000);
}

static void cleared(void) { CHECK(wait_for_events("with a page that is cleared", true, true, wanted, write_after_reads) < 3000000000); }

/* --- speed --- */

static void fill(struct writer *w, uint64_t count) {
  static const uint8_t data[112];
  while (w->id < count) {
    for (int i = 0; i < 100; i++) writer_put(w, data, sizeof data);
    writer_publish(w);
  }
}

static void write_small(struct writer *w) { fill(w, UINT64_MAX); }

/* Reads events of 112 bytes that are there: the position is set back after each round. */
static void measure_reads(const char *name, uint64_t held, size_t batch) {
  struct peer p = connected();
  struct writer w = writer_open((struct shape){.slots = 1 << 20, .ring_bytes = 256 << 20, .generation = 1, .has_page = true});
  fill(&w, held);
  sdm_mapped *m = mapped(&p, &w, 0, NULL);
  static sdm_event events[1024];
  uint64_t read = 0, bytes = 0, start = now_nsec(), end = start + 1000000000;
  double busy = -busy_seconds();
  while (now_nsec() < end) {
    int found;
    while ((found = batch ? sdm_mapped_next_batch(m, events, batch) : sdm_mapped_next(m, events)) > 0) {
      for (int i = 0; i < found; i++) bytes += events[i].size;
      read += (uint64_t)found;
    }
    m->position = m->base = m->granted = 0;
    m->granted = 1 << 20;
  }
  EQUAL(bytes, read * 112);
  busy += busy_seconds();
  printf("%s: %.1f million events/s, %.1f million per second of a processor\n", name, (double)read / (double)(now_nsec() - start) * 1e3,
         (double)read / busy / 1e6);
  sdm_mapped_unref(m);
  writer_close(&w);
  put_away(&p);
}

static void measure_beside_writer(void) {
  struct peer p = connected();
  struct writer w = writer_open((struct shape){.slots = 1 << 16, .ring_bytes = 16 << 20, .generation = 1, .has_page = true});
  sdm_mapped *m = mapped(&p, &w, 0, NULL);
  pid_t child = begin(write_small, &w);
  static sdm_event events[1024];
  uint64_t read = 0, lost = 0, start = now_nsec();
  double busy = -busy_seconds();
  while (now_nsec() < start + 2000000000) {
    int found = sdm_mapped_next_batch(m, events, 1000);
    if (found > 0) lost += events[0].gap;
    read += (uint64_t)found;
  }
  busy += busy_seconds();
  printf("beside a writer at full speed: %.1f million events/s, of %.1f million written; %.1f million per second of a processor\n",
         (double)read / (double)(now_nsec() - start) * 1e3, (double)(read + lost) / (double)(now_nsec() - start) * 1e3, (double)read / busy / 1e6);
  finish(child, SIGKILL);
  sdm_mapped_unref(m);
  writer_close(&w);
  put_away(&p);
}

/* Once all 300 us, so that the reader sleeps. */
static void write_seldom(struct writer *w) {
  for (;;) {
    usleep(300);
    atomic_store(&shared->written_at, now_nsec());
    write_next(w);
    writer_publish(w);
  }
}

static void measure_socket(uint64_t count) {
  int pair[2], epoll = epoll_create1(0);
  CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
  struct epoll_event event = {.events = EPOLLIN};
  CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, pair[0], &event) == 0);
  pid_t child = fork();
  if (child == 0) prctl(PR_SET_PDEATHSIG, SIGKILL);
  for (uint64_t time; child == 0;) {
    usleep(300);
    time = now_nsec();
    CHECK(send(pair[1], &time, 8, 0) == 8);
  }
  uint64_t *delays = calloc(count, sizeof *delays), time;
  for (uint64_t i = 0; i < count; i++) {
    CHECK(epoll_wait(epoll, &event, 1, -1) == 1 && recv(pair[0], &time, 8, 0) == 8);
    delays[i] = now_nsec() - time;
  }
  finish(child, SIGKILL);
  qsort(delays, count, sizeof *delays, compare);
  printf("by a socket and epoll: p50 %.1f us, p99 %.1f us\n", (double)delays[count / 2] / 1e3, (double)delays[count * 99 / 100] / 1e3);
  free(delays);
}

static void speed(void) {
  measure_reads("10,000 events in a loop, batches of 1,000", 10000, 1000);
  measure_reads("1,000,000 events in a loop, batches of 1,000", 1000000, 1000);
  measure_reads("1,000,000 events in a loop, one by one", 1000000, 0);
  measure_beside_writer();
  wait_for_events("by futex", true, false, 5000, write_seldom);
  measure_socket(5000);
}

int main(int count, char **words) {
  static const struct { const char *name; void (*run)(void); } checks[] = {
      {"torn", torn}, {"wakes", wakes}, {"cleared", cleared}, {"speed", speed},
  };
  CHECK(count >= 3);
  wanted = count > 3 ? strtoull(words[3], NULL, 10) : 100000;
  shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  listen_at(words[2]);
  for (size_t i = 0; i < sizeof checks / sizeof checks[0]; i++)
    if (strcmp(checks[i].name, words[1]) == 0) checks[i].run();
  stop_listening();
  return 0;
}

/* map SOCKET READERS [spare]: reads the stream `b`, which is mapped, with libstreamd: so many readers, each with a thread and a connection of its own, from the
 * next event on. Prints `ready`; then for each line of its input, a number of events, one line once every reader has come so far:
 *
 *   events read, missed and torn, of all readers; the microseconds of processor time of this process; the median and the 99th percentile, in nanoseconds,
 *   of the time from publishing to reading, of the events since the line before for which a reader had waited.
 *
 * The first bytes of an event are its number and the time at which it was published; number and id rise together, or the event is torn.
 *
 * With `spare`, the readers get the processor time that nobody else wants. */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <streamd.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { BATCH = 256, DATA = 64, OCTAVES = 48, STEPS = 16 };

struct reader {
  _Atomic uint64_t events, missed, torn;
  _Atomic uint32_t times[OCTAVES * STEPS]; /* of a logarithmic scale */
};

static const char *path;
static _Atomic int ready;

static uint64_t now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

static void stop(const char *sentence) {
  fprintf(stderr, "map: %s\n", sentence);
  exit(1);
}

static void add(_Atomic uint64_t *count, uint64_t more) {
  atomic_store_explicit(count, atomic_load_explicit(count, memory_order_relaxed) + more, memory_order_relaxed);
}

static void note(struct reader *r, uint64_t nanoseconds) {
  int octave = 63 - __builtin_clzll(nanoseconds | STEPS);
  int place = octave * STEPS + (int)(nanoseconds >> (octave - 4)) % STEPS;
  if (place < OCTAVES * STEPS) atomic_fetch_add_explicit(&r->times[place], 1, memory_order_relaxed);
}

static uint64_t word(const sdm_event *e, size_t offset) {
  uint64_t word;
  memcpy(&word, (const char *)e->data + offset, sizeof word);
  return word;
}

static sdm_mapped *open_map(sdm *c) {
  sdm_options o = SDM_OPTIONS_INIT;
  sdm_mapped *m = NULL;
  o.from = SDM_FROM_NEW;
  o.window = SDM_UNLIMITED;
  int result;
  while ((result = sdm_map(c, &m, "b", &o)) == -EDQUOT) usleep(1000); /* others are on their way */
  if (result < 0) stop(sdm_error(c));
  return m;
}

static void *read_all(void *argument) {
  struct reader *r = argument;
  sdm *c = NULL;
  if (sdm_connect(&c, path) < 0) stop("no connection");
  sdm_mapped *m = open_map(c);
  atomic_fetch_add(&ready, 1);
  uint64_t last = 0, distance = 0;
  int result = 0;
  bool has_waited = false;
  while (result >= 0) {
    sdm_event events[BATCH];
    result = sdm_mapped_next_batch(m, events, BATCH);
    if (result > 0 && has_waited) note(r, now() - word(events, 8));
    has_waited = result == 0;
    if (has_waited) result = sdm_mapped_wait(m, UINT64_MAX);
    if (has_waited || result < 0) continue;
    uint64_t torn = 0, missed = 0;
    for (int i = 0; i < result; i++) {
      if (!last) distance = events[i].id - word(&events[i], 0);
      torn += events[i].size != DATA || events[i].id - word(&events[i], 0) != distance ||
              (last && events[i].id != last + events[i].gap + 1);
      missed += events[i].gap;
      last = events[i].id;
    }
    add(&r->torn, torn);
    add(&r->missed, missed);
    add(&r->events, (uint64_t)result);
  }
  stop(sdm_error(c));
  return NULL;
}

/* The time within which this share of `count` events was read. */
static uint64_t percentile(const uint64_t *times, uint64_t count, double share) {
  uint64_t sum = 0;
  for (int place = 0; place < OCTAVES * STEPS; place++) {
    sum += times[place];
    if (count && (double)sum >= share * (double)count) return (uint64_t)(STEPS + place % STEPS) << (place / STEPS - 4);
  }
  return 0;
}

static void tell(struct reader *readers, int count) {
  uint64_t events = 0, missed = 0, torn = 0, waits = 0, times[OCTAVES * STEPS] = {0};
  for (struct reader *r = readers; r < readers + count; r++) {
    events += r->events;
    missed += r->missed;
    torn += r->torn;
    for (int place = 0; place < OCTAVES * STEPS; place++) {
      uint32_t more = atomic_exchange_explicit(&r->times[place], 0, memory_order_relaxed);
      times[place] += more;
      waits += more;
    }
  }
  struct rusage used;
  getrusage(RUSAGE_SELF, &used);
  long long micro = (long long)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1000000 + used.ru_utime.tv_usec + used.ru_stime.tv_usec;
  printf("%llu %llu %llu %lld %llu %llu\n", (unsigned long long)events, (unsigned long long)missed, (unsigned long long)torn, micro,
         (unsigned long long)percentile(times, waits, 0.5), (unsigned long long)percentile(times, waits, 0.99));
  fflush(stdout);
}

/* As a session of its own, with the least weight among sessions (sched(7), "The autogroup feature"), and within it. */
static void yield(void) {
  setsid();
  FILE *group = fopen("/proc/self/autogroup", "w");
  if (group) {
    fputs("19", group);
    fclose(group);
  }
  setpriority(PRIO_PROCESS, 0, 19);
}

int main(int words, char **word_at) {
  int count = words == 3 || words == 4 ? atoi(word_at[2]) : 0;
  if (count < 1) return 64;
  if (words == 4) yield();
  path = word_at[1];
  struct reader *readers = calloc((size_t)count, sizeof *readers);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, 256 << 10);
  for (int i = 0; i < count; i++) {
    pthread_t thread;
    if (!readers || pthread_create(&thread, &attributes, read_all, &readers[i]) != 0) stop("no thread");
  }
  while (atomic_load(&ready) < count) usleep(1000);
  puts("ready");
  fflush(stdout);
  char line[32];
  while (fgets(line, sizeof line, stdin)) {
    uint64_t wanted = strtoull(line, NULL, 10);
    for (int i = 0; i < count; i++) {
      while (readers[i].events + readers[i].missed < wanted) usleep(100);
    }
    tell(readers, count);
  }
  _exit(0);
}

/* read SOCKET COUNT: reads so many stored events of the stream `b` with libstreamd, and prints the seconds that it took. */
#include <stdio.h>
#include <stdlib.h>
#include <streamd.h>
#include <time.h>

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

int main(int count, char **words) {
  sdm *c = NULL;
  sdm_subscription *s = NULL;
  sdm_options options = SDM_OPTIONS_INIT;
  options.from = SDM_FROM_LAST;
  options.since = count == 3 ? strtoull(words[2], NULL, 10) : 0;
  if (count != 3 || sdm_connect(&c, words[1]) < 0) return 64;
  double start = now();
  int result = sdm_subscribe(c, &s, "b", &options);
  if (result == 0) result = sdm_request(s, SDM_UNLIMITED);
  uint64_t left = options.since, last = 0;
  while (result >= 0 && left) {
    sdm_event events[256];
    while (left && (result = sdm_next_batch(s, events, 256)) > 0) {
      for (int i = 0; i < result && left; i++, left--) {
        if (events[i].gap || events[i].size != 64 || (last && events[i].id != last + 1)) return 1;
        last = events[i].id;
      }
    }
    if (result < 0 || !left) break;
    if (sdm_process(c) == 0) sdm_wait(c, UINT64_MAX);
  }
  if (result < 0) fprintf(stderr, "%s\n", sdm_error(c));
  else printf("%.6f\n", now() - start);
  sdm_subscription_unref(s);
  sdm_unref(c);
  return result < 0;
}

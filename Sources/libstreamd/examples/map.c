/* map STREAM: prints ids and events of a mapped stream (map = true), from its replay on.
 *
 *     cc -o map map.c $(pkg-config --cflags --libs streamd) */
#include <stdio.h>
#include <streamd.h>
#include <string.h>

int main(int argc, char **argv) {
  sdm *connection = NULL;
  sdm_mapped *mapped = NULL;
  sdm_event events[256];
  if (argc < 2) {
    fprintf(stderr, "usage: map STREAM\n");
    return 64;
  }
  int result = sdm_connect(&connection, NULL);
  if (result < 0) {
    fprintf(stderr, "streamd: %s\n", strerror(-result));
    return 1;
  }
  result = sdm_map(connection, &mapped, argv[1], NULL);
  while (result >= 0) {
    result = sdm_mapped_next_batch(mapped, events, 256);
    for (int i = 0; i < result; i++) {
      if (events[i].gap) fprintf(stderr, "events were lost before the next one\n");
      printf("%llu %.*s\n", (unsigned long long)events[i].id, (int)events[i].size, (const char *)events[i].data);
    }
    if (result == 0) {
      fflush(stdout);
      result = sdm_mapped_wait(mapped, UINT64_MAX);
    }
  }
  if (result < 0) fprintf(stderr, "%s: %s\n", argv[1], sdm_error(connection));
  sdm_mapped_unref(mapped);
  sdm_unref(connection);
  return 1; /* a stream that has ended is an error as well */
}

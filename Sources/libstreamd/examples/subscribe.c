/* subscribe STREAM [COUNT]: prints ids and events of a stream, from its replay on.
 *
 *     cc -o subscribe subscribe.c $(pkg-config --cflags --libs streamd) */
#include <stdio.h>
#include <stdlib.h>
#include <streamd.h>
#include <string.h>

int main(int argc, char **argv) {
  sdm *connection = NULL;
  sdm_subscription *subscription = NULL;
  if (argc < 2) {
    fprintf(stderr, "usage: subscribe STREAM [COUNT]\n");
    return 64;
  }
  long left = argc > 2 ? atol(argv[2]) : -1;
  int result = sdm_connect(&connection, NULL);
  if (result < 0) {
    fprintf(stderr, "streamd: %s\n", strerror(-result));
    return 1;
  }
  sdm_options options = SDM_OPTIONS_INIT;
  options.window = 256;
  result = sdm_subscribe(connection, &subscription, argv[1], &options);
  while (result >= 0 && left != 0) {
    sdm_event event;
    result = sdm_next(subscription, &event);
    if (result > 0) {
      if (event.gap) fprintf(stderr, "events were lost before the next one\n");
      printf("%llu %.*s\n", (unsigned long long)event.id, (int)event.size, (const char *)event.data);
      left--;
    } else if (result == 0) {
      fflush(stdout);
      sdm_wait(connection, UINT64_MAX);
      sdm_process(connection);
    }
  }
  if (result < 0) fprintf(stderr, "%s: %s\n", argv[1], sdm_error(connection));
  sdm_subscription_unref(subscription);
  sdm_unref(connection);
  return result < 0;
}

/* poll STREAM: prints events of a stream, from its replay on, until a line is entered.
 *
 *     cc -o poll poll.c $(pkg-config --cflags --libs streamd) */
#include <poll.h>
#include <stdio.h>
#include <streamd.h>
#include <string.h>
#include <unistd.h>

/* Prints what has arrived. 0, or how the subscription has ended. */
static int take(sdm_subscription *subscription) {
  sdm_event events[64];
  int count;
  while ((count = sdm_next_batch(subscription, events, 64)) > 0)
    for (int i = 0; i < count; i++) printf("%.*s\n", (int)events[i].size, (const char *)events[i].data);
  fflush(stdout);
  return count;
}

int main(int argc, char **argv) {
  sdm *connection = NULL;
  sdm_subscription *subscription = NULL;
  sdm_options options = SDM_OPTIONS_INIT;
  if (argc < 2) {
    fprintf(stderr, "usage: poll STREAM\n");
    return 64;
  }
  int result = sdm_connect(&connection, NULL);
  if (result < 0) {
    fprintf(stderr, "streamd: %s\n", strerror(-result));
    return 1;
  }
  options.window = 256;
  result = sdm_subscribe(connection, &subscription, argv[1], &options);
  struct pollfd ready[] = {{.fd = sdm_get_fd(connection), .events = (short)sdm_get_events(connection)},
                           {.fd = STDIN_FILENO, .events = POLLIN}};
  while (result >= 0 && !ready[1].revents && poll(ready, 2, -1) > 0) {
    if (ready[0].revents) sdm_process(connection); /* its error is also that of the subscription */
    result = take(subscription);
  }
  if (result < 0) fprintf(stderr, "%s: %s\n", argv[1], sdm_error(connection));
  sdm_subscription_unref(subscription);
  sdm_unref(connection);
  return result < 0;
}

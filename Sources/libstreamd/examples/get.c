/* get STREAM: prints the newest event of a stream.
 *
 *     cc -o get get.c $(pkg-config --cflags --libs streamd) */
#include <stdio.h>
#include <streamd.h>
#include <string.h>

int main(int argc, char **argv) {
  sdm *connection = NULL;
  sdm_event event;
  if (argc < 2) {
    fprintf(stderr, "usage: get STREAM\n");
    return 64;
  }
  int result = sdm_connect(&connection, NULL);
  if (result < 0) {
    fprintf(stderr, "streamd: %s\n", strerror(-result));
    return 1;
  }
  sdm_set_timeout(connection, 10000000); /* 10 s */
  result = sdm_get(connection, argv[1], &event);
  if (result == 0) printf("%.*s\n", (int)event.size, (const char *)event.data);
  else fprintf(stderr, "%s: %s\n", argv[1], sdm_error(connection));
  sdm_unref(connection);
  return result < 0;
}

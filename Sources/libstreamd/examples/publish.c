/* publish STREAM: publishes the lines of its input, and returns when all are in the stream.
 *
 *     cc -o publish publish.c $(pkg-config --cflags --libs streamd) */
#include <errno.h>
#include <stdio.h>
#include <streamd.h>
#include <string.h>

int main(int argc, char **argv) {
  sdm *connection = NULL;
  sdm_publisher *publisher = NULL;
  char line[4096];
  if (argc < 2) {
    fprintf(stderr, "usage: publish STREAM\n");
    return 64;
  }
  int result = sdm_connect(&connection, NULL);
  if (result < 0) {
    fprintf(stderr, "streamd: %s\n", strerror(-result));
    return 1;
  }
  result = sdm_publisher_new(connection, &publisher, argv[1], NULL);
  while (result >= 0 && fgets(line, sizeof line, stdin)) {
    size_t size = strcspn(line, "\n");
    while ((result = sdm_publish(publisher, line, size)) == -EAGAIN && sdm_flush(publisher, UINT64_MAX) == 0) {}
  }
  if (result >= 0 || result == -EBADF) result = sdm_flush(publisher, UINT64_MAX);
  if (result < 0) fprintf(stderr, "%s: %s\n", argv[1], sdm_error(connection));
  sdm_publisher_unref(publisher);
  sdm_unref(connection);
  return result < 0;
}

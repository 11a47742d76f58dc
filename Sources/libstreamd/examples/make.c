/* make STREAM: makes a stream of a template, and returns when it is there.
 *
 *     cc -o make make.c $(pkg-config --cflags --libs streamd) */
#include <stdio.h>
#include <streamd.h>
#include <string.h>

int main(int argc, char **argv) {
  sdm *connection = NULL;
  sdm_command *command = NULL;
  if (argc < 2) {
    fprintf(stderr, "usage: make STREAM\n");
    return 64;
  }
  int result = sdm_connect(&connection, NULL);
  if (result < 0) {
    fprintf(stderr, "streamd: %s\n", strerror(-result));
    return 1;
  }
  result = sdm_make(connection, &command, argv[1]);
  if (result == 0) result = sdm_command_wait(command, UINT64_MAX);
  if (result < 0) fprintf(stderr, "%s: %s\n", argv[1], sdm_error(connection));
  sdm_command_unref(command);
  sdm_unref(connection);
  return result < 0;
}

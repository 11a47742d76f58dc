/* A daemon of the last release sends no reasons: its sentences tell. Nothing else in the library compares a sentence of the daemon. */
#include "internal.h"

#include <stdlib.h>

static bool is(const char *sentence, const char *text) { return strcmp(sentence, text) == 0; }

static bool has(const char *sentence, const char *text) { return strstr(sentence, text) != NULL; }

static bool begins(const char *sentence, const char *start) { return strncmp(sentence, start, strlen(start)) == 0; }

static bool ends(const char *sentence, const char *end) {
  size_t size = strlen(sentence), wanted = strlen(end);
  return size >= wanted && strcmp(sentence + size - wanted, end) == 0;
}

static int of_rejection(const char *s) {
  if (begins(s, "no stream named \"") || begins(s, "no stream has a name of ")) return SDM_REASON_NO_STREAM;
  if (has(s, " may not read \"")) return SDM_REASON_MAY_NOT_READ;
  if (has(s, " may not write \"")) return SDM_REASON_MAY_NOT_WRITE;
  if (ends(s, " does not accept values")) return SDM_REASON_TAKES_NO_VALUES;
  if (has(s, " maps that it has not received, ")) return SDM_REASON_TOO_MANY_MAPS;
  if (is(s, "the system does not pass descriptors at present")) return SDM_REASON_NO_DESCRIPTORS;
  return 0;
}

static int of_cancellation(const char *s) {
  if (is(s, "streamd is stopping")) return SDM_REASON_STOPPING;
  if (is(s, "streamd is restarting") || begins(s, "streamd restarts")) return SDM_REASON_RESTARTING;
  if (is(s, "an operator has ended this connection")) return SDM_REASON_KICKED;
  if (begins(s, "token \"") && ends(s, " is not valid any more")) return SDM_REASON_TOKEN_REMOVED;
  if (begins(s, "another publisher to ")) return SDM_REASON_NAME_IN_USE;
  if (has(s, " was changed before it had stored all values")) return SDM_REASON_VALUES_LOST;
  if (ends(s, " is no longer served")) return SDM_REASON_REMOVED;
  if (ends(s, " no longer accepts values")) return SDM_REASON_TAKES_NO_MORE_VALUES;
  if (ends(s, " is not mapped any more")) return SDM_REASON_MAP_REMOVED;
  return ends(s, "\" has ended") ? SDM_REASON_ENDED : 0;
}

static int of_invalidity(const char *s) {
  if (begins(s, "no event has the id ") || begins(s, "no event has the position ")) return SDM_REASON_UNKNOWN_POSITION;
  if (has(s, " is too large for \"") || has(s, ": its fragments exceed the limit of ")) return SDM_REASON_TOO_LARGE;
  if (ends(s, " is not mapped")) return SDM_REASON_NOT_MAPPED;
  return has(s, " cannot be mapped over ") ? SDM_REASON_NOT_MAPPABLE : 0;
}

static int of_refusal(const char *s) {
  if (is(s, "the token is not valid")) return SDM_REASON_INVALID_TOKEN;
  if (has(s, "(max_connections")) return SDM_REASON_TOO_MANY_CONNECTIONS;
  return begins(s, "streamd cannot start: ") ? SDM_REASON_NOT_CONFIGURED : 0;
}

static const char too_large[] = "the fragments up to request ";

int reason_of_last_release(uint32_t code, const char *s) {
  switch (code) {
    case 0x003: return of_refusal(s);
    case 0x101: return begins(s, too_large) ? SDM_REASON_REQUEST_TOO_LARGE : has(s, "(max_") ? SDM_REASON_TOO_MUCH_INPUT : 0;
    case 0x102: case 0x203: return of_cancellation(s);
    case 0x201: return SDM_REASON_FAILED;
    case 0x202: return of_rejection(s);
    case 0x204: return of_invalidity(s);
    case 0x301: return SDM_REASON_LAGGED;
    default: return 0;
  }
}

uint32_t request_of_last_release(const char *s) { return (uint32_t)strtoul(s + sizeof too_large - 1, NULL, 10); }

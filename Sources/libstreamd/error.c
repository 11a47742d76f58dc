/* Sentences, and the errno of what a daemon refuses. */
#include "internal.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int fail(sdm *c, int code, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  char text[ERROR_BYTES];
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  copy_sentence(c->error, sizeof c->error, (const uint8_t *)text, strlen(text));
  return code;
}

/* The length of the UTF-8 sequence at p, of at most `size` bytes; 0: it is none. */
static size_t sequence(const uint8_t *p, size_t size) {
  if (p[0] < 0x80) return 1;
  size_t length = p[0] >= 0xf0 ? 4 : p[0] >= 0xe0 ? 3 : 2;
  if (p[0] < 0xc2 || p[0] > 0xf4 || length > size) return 0;
  for (size_t i = 1; i < length; i++)
    if ((p[i] & 0xc0) != 0x80) return 0;
  bool overlong = (p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xf0 && p[1] < 0x90);
  bool outside = (p[0] == 0xed && p[1] > 0x9f) || (p[0] == 0xf4 && p[1] > 0x8f);
  return overlong || outside ? 0 : length;
}

/* Control characters become spaces, and what is no UTF-8 question marks. */
void copy_sentence(char *to, size_t capacity, const uint8_t *text, size_t size) {
  size_t end = 0;
  for (size_t i = 0; i < size;) {
    size_t length = sequence(text + i, size - i);
    if (end + (length ? length : 1) >= capacity) break;
    if (length > 1) memcpy(to + end, text + i, length);
    else to[end] = length == 0 ? '?' : text[i] < 0x20 || text[i] == 0x7f ? ' ' : (char)text[i];
    end += length ? length : 1;
    i += length ? length : 1;
  }
  to[end] = 0;
}

static bool begins(const char *text, const char *start) { return strncmp(text, start, strlen(start)) == 0; }

/* Whether the sentence contains `words "stream"`. */
static bool says(const char *sentence, const char *words, const char *stream) {
  char text[NAME_LIMIT + 64];
  snprintf(text, sizeof text, "%s \"%s\"", words, stream);
  return strstr(sentence, text) != NULL;
}

/* REJECTED has several causes, which its sentence tells: see WIRE.md, "error | cause". */
static int errno_of_rejection(const char *sentence, const char *stream) {
  if (begins(sentence, "no stream named \"") || begins(sentence, "no stream has a name of ")) return -ENOENT;
  char refused[NAME_LIMIT + 64];
  snprintf(refused, sizeof refused, "\"%s\" does not accept values", stream);
  if (strcmp(sentence, refused) == 0) return -EOPNOTSUPP;
  if (says(sentence, " may not read", stream) || says(sentence, " may not write", stream)) return -EACCES;
  return -EDQUOT;
}

static bool is_unmapped(const char *sentence, const char *stream) {
  char text[2][NAME_LIMIT + 64];
  snprintf(text[0], sizeof text[0], "\"%s\" is not mapped", stream);
  snprintf(text[1], sizeof text[1], "\"%s\" cannot be mapped over TCP", stream);
  return strcmp(sentence, text[0]) == 0 || strcmp(sentence, text[1]) == 0;
}

int errno_of_refusal(uint32_t code, const char *sentence, const char *stream) {
  switch (code) {
    case 0x201: return -EIO;
    case 0x202: return errno_of_rejection(sentence, stream);
    case 0x203: return -ECANCELED;
    case 0x204:
      if (strstr(sentence, " is too large for \"") || strstr(sentence, ": its fragments exceed the limit of "))
        return -EMSGSIZE;
      return is_unmapped(sentence, stream) ? -EOPNOTSUPP : -EINVAL;
    case 0x301: return -ENOBUFS;
    default: return -EIO;
  }
}

/* Of an ERROR for the whole connection. 0: a loss, which a new connection may resolve. */
int errno_of_close(uint32_t code, const char *sentence) {
  switch (code) {
    case 0x003:
      if (strcmp(sentence, "the token is not valid") == 0) return -EACCES;
      return strstr(sentence, "(max_connections") ? -EDQUOT : -ECONNREFUSED;
    case 0x101: return strstr(sentence, "(max_") ? -EDQUOT : -EPROTO;
    case 0x102: return 0;
    default: return -EPROTO;
  }
}

/* Whether a request was cancelled because the daemon stops: its stream is there again after a start. */
bool is_stop(const char *sentence) {
  return strcmp(sentence, "streamd is stopping") == 0 || strcmp(sentence, "streamd is restarting") == 0;
}

/* The last error: its sentence and its reason. */
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
  c->error_reason = 0;
  return code;
}

int fail_over(sdm *c, int code, const char *format) {
  fail(c, code, format, c->reason);
  c->error_reason = c->close_reason;
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

SDM_PUBLIC const char *sdm_error(const sdm *c) { return c ? c->error : ""; }

SDM_PUBLIC int sdm_reason(const sdm *c) { return c ? c->error_reason : 0; }

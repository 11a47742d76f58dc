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

/* Characters that display as something other than themselves: control characters, format characters such as bidirectional
   controls and zero-width characters, and separators of lines. The daemon escapes the same set. */
static const struct {
  uint32_t first, last;
} deceptive[] = {
    {0x0000, 0x001f}, {0x007f, 0x009f}, {0x00ad, 0x00ad}, {0x0600, 0x0605}, {0x061c, 0x061c}, {0x06dd, 0x06dd},
    {0x070f, 0x070f}, {0x0890, 0x0891}, {0x08e2, 0x08e2}, {0x180e, 0x180e}, {0x200b, 0x200f}, {0x2028, 0x202e},
    {0x2060, 0x2064}, {0x2066, 0x206f}, {0xfeff, 0xfeff}, {0xfff9, 0xfffb}, {0x110bd, 0x110bd}, {0x110cd, 0x110cd},
    {0x13430, 0x1343f}, {0x1bca0, 0x1bca3}, {0x1d173, 0x1d17a}, {0xe0001, 0xe0001}, {0xe0020, 0xe007f},
};

static bool is_deceptive(const uint8_t *p, size_t length) {
  uint32_t c = length == 1 ? p[0] : p[0] & (0x7f >> length);
  for (size_t i = 1; i < length; i++) c = c << 6 | (p[i] & 0x3f);
  for (size_t i = 0; i < sizeof deceptive / sizeof *deceptive && deceptive[i].first <= c; i++)
    if (c <= deceptive[i].last) return true;
  return false;
}

/* Characters that could control a terminal become spaces, and what is no UTF-8 question marks. */
void copy_sentence(char *to, size_t capacity, const uint8_t *text, size_t size) {
  size_t end = 0;
  for (size_t i = 0; i < size;) {
    size_t length = sequence(text + i, size - i);
    bool is_shown = length > 0 && !is_deceptive(text + i, length);
    size_t room = is_shown ? length : 1;
    if (end + room >= capacity) break;
    if (is_shown) memcpy(to + end, text + i, length);
    else to[end] = length == 0 ? '?' : ' ';
    end += room;
    i += length ? length : 1;
  }
  to[end] = 0;
}

SDM_PUBLIC const char *sdm_error(const sdm *c) { return c ? c->error : ""; }

SDM_PUBLIC int sdm_reason(const sdm *c) { return c ? c->error_reason : 0; }

#include "internal.h"

#include <stdlib.h>
#include <string.h>

uint8_t *buffer_reserve(struct buffer *b, size_t size) {
  if (b->failed) return NULL;
  if (b->start == b->end) b->start = b->end = 0;
  if (size <= b->capacity - b->end && b->bytes) return b->bytes + b->end;
  size_t content = buffer_size(b);
  if (b->bytes && size <= b->capacity - content && b->start >= b->capacity / 2) {
    memmove(b->bytes, b->bytes + b->start, content);
    b->start = 0;
    b->end = content;
    return b->bytes + content;
  }
  size_t capacity = b->capacity ? b->capacity : 256;
  while (capacity - content < size) {
    if (capacity > SIZE_MAX / 2) goto failed;
    capacity *= 2;
  }
  uint8_t *bytes = malloc(capacity);
  if (!bytes) goto failed;
  if (content) memcpy(bytes, b->bytes + b->start, content);
  free(b->bytes);
  *b = (struct buffer){.bytes = bytes, .end = content, .capacity = capacity};
  return bytes + content;
failed:
  b->failed = true;
  return NULL;
}

void buffer_append(struct buffer *b, const void *bytes, size_t size) {
  if (!size) return;
  uint8_t *end = buffer_reserve(b, size);
  if (!end) return;
  memcpy(end, bytes, size);
  b->end += size;
}

void buffer_consume(struct buffer *b, size_t size) {
  b->start += size;
  if (b->start == b->end) b->start = b->end = 0;
}

void buffer_clear(struct buffer *b) {
  free(b->bytes);
  *b = (struct buffer){0};
}

void buffer_put(struct buffer *b, uint64_t number, unsigned bytes) {
  uint8_t text[8];
  for (unsigned i = 0; i < bytes; i++) text[i] = (uint8_t)(number >> (8 * (bytes - 1 - i)));
  buffer_append(b, text, bytes);
}

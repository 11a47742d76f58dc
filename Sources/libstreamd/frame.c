/* The frames of RSocket 1.0 that a client sends and receives: "Framing Protocol" and "Frame Types". */
#include "internal.h"

#include <string.h>

/* Reads the metadata and data of a PAYLOAD. */
static const char *read_payload(struct frame *f, const uint8_t *bytes, size_t size) {
  if (f->flags & FLAG_METADATA) {
    if (size < 3) return "a payload ends inside the length of its metadata";
    f->metadata_size = (size_t)number_at(bytes, 3);
    if (f->metadata_size > size - 3) return "the metadata of a payload is longer than its frame";
    f->metadata = bytes + 3;
    bytes += 3 + f->metadata_size;
    size -= 3 + f->metadata_size;
  }
  f->data = bytes;
  f->size = size;
  return NULL;
}

const char *frame_read(struct frame *f, const uint8_t *bytes, size_t size) {
  if (size < 6) return "a frame has fewer than 6 bytes";
  unsigned head = (unsigned)number_at(bytes + 4, 2);
  *f = (struct frame){.id = (uint32_t)number_at(bytes, 4), .type = head >> 10, .flags = head & 0x3ff};
  bytes += 6;
  size -= 6;
  f->data = bytes;
  f->size = size;
  switch (f->type) {
    case FRAME_PAYLOAD: return f->id ? read_payload(f, bytes, size) : "a payload has no stream id";
    case FRAME_REQUEST_N:
      if (size < 4 || !f->id) return "a REQUEST_N is malformed";
      f->number = (uint32_t)number_at(bytes, 4);
      return f->number && f->number <= CREDIT_UNLIMITED ? NULL : "a REQUEST_N is out of range";
    case FRAME_ERROR:
      if (size < 4) return "an ERROR has no code";
      f->number = (uint32_t)number_at(bytes, 4);
      f->data = bytes + 4;
      f->size = size - 4;
      return NULL;
    case FRAME_KEEPALIVE:
      if (size < 8 || f->id) return "a KEEPALIVE is malformed";
      f->data = bytes + 8;
      f->size = size - 8;
      return NULL;
    case FRAME_CANCEL: return f->id ? NULL : "a CANCEL has no stream id";
    case FRAME_METADATA_PUSH: return NULL;
    default: return f->flags & FLAG_IGNORE ? NULL : "a frame has a type that a server does not send";
  }
}

/* Puts length, id, type and flags of a frame with `size` more bytes. */
static void put_head(struct buffer *out, uint32_t id, enum frame_type type, unsigned flags, size_t size) {
  buffer_put(out, size + 6, 3);
  buffer_put(out, id, 4);
  buffer_put(out, (uint64_t)type << 10 | flags, 2);
}

static void put_text(struct buffer *out, const char *text, unsigned length_bytes) {
  buffer_put(out, strlen(text), length_bytes);
  buffer_append(out, text, strlen(text));
}

static const char composite[] = "message/x.rsocket.composite-metadata.v0", json[] = "application/json";
/* The data of SETUP: this client knows the daemon's reasons. */
static const char announcement[] = "{\"reasons\":true}";
static const char publisher_type[] = "message/x.streamd.publisher.v0";

/* The metadata has one entry, of the well-known authentication type 0x7c with the top bit: the type bearer, and the token. */
void frame_setup(struct buffer *out, const char *token) {
  size_t entry = token ? 1 + strlen(token) : 0, metadata = token ? 3 + 4 + entry : 0;
  size_t data = sizeof announcement - 1;
  put_head(out, 0, FRAME_SETUP, token ? FLAG_METADATA : 0, 12 + 1 + sizeof composite - 1 + 1 + sizeof json - 1 + metadata + data);
  buffer_put(out, 0x00010000, 4); /* version 1.0 */
  buffer_put(out, SDM_KEEPALIVE_USEC / 1000, 4);
  buffer_put(out, SDM_LIFETIME_USEC / 1000, 4);
  put_text(out, composite, 1);
  put_text(out, json, 1);
  if (token) {
    buffer_put(out, 4 + entry, 3);
    buffer_put(out, 0xfc, 1);
    buffer_put(out, entry, 3);
    buffer_put(out, 0x81, 1);
    buffer_append(out, token, entry - 1);
  }
  buffer_append(out, announcement, data);
}

void frame_keepalive(struct buffer *out, bool respond, const uint8_t *data, size_t size) {
  put_head(out, 0, FRAME_KEEPALIVE, respond ? FLAG_RESPOND : 0, 8 + size);
  buffer_put(out, 0, 8); /* the position of resumption, which is not supported */
  buffer_append(out, data, size);
}

void frame_number(struct buffer *out, uint32_t id, enum frame_type type, uint32_t number) {
  put_head(out, id, type, 0, 4);
  buffer_put(out, number, 4);
}

void frame_plain(struct buffer *out, uint32_t id, enum frame_type type, unsigned flags) {
  put_head(out, id, type, flags, 0);
}

void frame_error(struct buffer *out, uint32_t id, uint32_t code, const char *sentence) {
  size_t size = strlen(sentence);
  put_head(out, id, FRAME_ERROR, 0, 4 + size);
  buffer_put(out, code, 4);
  buffer_append(out, sentence, size);
}

/* The well-known id of the routing type, 0x7e, with the top bit; then the publisher's entry, whose type has no id. */
static void put_metadata(struct buffer *out, const struct route *route) {
  size_t name = strlen(route->stream);
  buffer_put(out, 0xfe, 1);
  buffer_put(out, name + 1, 3);
  put_text(out, route->stream, 1);
  if (!route->publisher) return;
  buffer_put(out, sizeof publisher_type - 2, 1); /* one less than the length */
  buffer_append(out, publisher_type, sizeof publisher_type - 1);
  buffer_put(out, 8 + strlen(route->publisher), 3);
  buffer_put(out, route->number, 8);
  buffer_append(out, route->publisher, strlen(route->publisher));
}

/* Puts the PAYLOADs that continue a value, from the byte at `start` on. */
static void put_rest(struct buffer *out, uint32_t id, const uint8_t *data, size_t start, size_t size) {
  while (start < size) {
    size_t part = size - start < FRAGMENT_BYTES ? size - start : FRAGMENT_BYTES;
    put_head(out, id, FRAME_PAYLOAD, FLAG_NEXT | (start + part < size ? FLAG_FOLLOWS : 0), part);
    buffer_append(out, data + start, part);
    start += part;
  }
}

void frame_request(struct buffer *out, uint32_t id, enum frame_type type, uint32_t credit, const struct route *route,
                   const void *data, size_t size) {
  size_t metadata = 4 + 1 + strlen(route->stream);
  if (route->publisher) metadata += sizeof publisher_type + 3 + 8 + strlen(route->publisher);
  size_t number = type == FRAME_REQUEST_RESPONSE ? 0 : 4;
  size_t part = size < FRAGMENT_BYTES - 1024 ? size : FRAGMENT_BYTES - 1024; /* beside the metadata */
  put_head(out, id, type, FLAG_METADATA | (part < size ? FLAG_FOLLOWS : 0), number + 3 + metadata + part);
  if (number) buffer_put(out, credit, 4);
  buffer_put(out, metadata, 3);
  put_metadata(out, route);
  buffer_append(out, data, part);
  put_rest(out, id, data, part, size);
}

void frame_value(struct buffer *out, uint32_t id, const void *data, size_t size) {
  if (size) put_rest(out, id, data, 0, size);
  else frame_plain(out, id, FRAME_PAYLOAD, FLAG_NEXT);
}

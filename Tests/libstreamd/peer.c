#include "peer.h"

#include <poll.h>
#include <sys/un.h>
#include <unistd.h>

static char path[108];
static int listening;

void listen_at(const char *at) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  snprintf(path, sizeof path, "%s", at);
  memcpy(address.sun_path, path, strlen(path));
  listening = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  unlink(path);
  CHECK(bind(listening, (struct sockaddr *)&address, sizeof address) == 0 && listen(listening, 8) == 0);
}

void take_socket(struct peer *p) {
  struct pollfd one = {.fd = listening, .events = POLLIN};
  CHECK(poll(&one, 1, 10000) == 1);
  p->socket = accept4(listening, NULL, NULL, SOCK_CLOEXEC);
  CHECK(p->socket >= 0);
  buffer_clear(&p->input);
}

struct peer connected(void) {
  struct peer p = {0};
  EQUAL(sdm_connect(&p.c, path), 0);
  take_socket(&p);
  return p;
}

void put_away(struct peer *p) {
  close(p->socket);
  buffer_clear(&p->input);
  sdm_unref(p->c);
}

void put_bytes(struct peer *p, const void *bytes, size_t size) {
  for (size_t sent = 0; sent < size;) {
    ssize_t count = send(p->socket, (const char *)bytes + sent, size - sent, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (count < 0 && errno != EAGAIN) return; /* the library has closed */
    if (count > 0) sent += (size_t)count;
    while (sdm_process(p->c) > 0) {}
  }
}

void put(struct peer *p, struct buffer *out) {
  put_bytes(p, buffer_content(out), buffer_size(out));
  buffer_clear(out);
}

void put_frame(struct buffer *out, uint32_t id, unsigned type, unsigned flags, const void *content, size_t size) {
  buffer_put(out, size + 6, 3);
  buffer_put(out, id, 4);
  buffer_put(out, type << 10 | flags, 2);
  buffer_append(out, content, size);
}

void put_event(struct buffer *out, uint32_t id, uint64_t number, const void *more, size_t more_size, const char *data) {
  struct buffer content = {0};
  buffer_put(&content, 16 + more_size, 3);
  buffer_put(&content, number, 8);
  buffer_put(&content, 1000 + number, 8);
  buffer_append(&content, more, more_size);
  buffer_append(&content, data, strlen(data));
  put_frame(out, id, FRAME_PAYLOAD, FLAG_NEXT | FLAG_METADATA, buffer_content(&content), buffer_size(&content));
  buffer_clear(&content);
}

void put_error(struct peer *p, uint32_t id, uint32_t code, const char *sentence) {
  struct buffer out = {0};
  frame_error(&out, id, code, sentence);
  put(p, &out);
}

struct frame sent(struct peer *p, unsigned type, const uint8_t **content, size_t *size) {
  for (;;) {
    const uint8_t *bytes = buffer_content(&p->input);
    size_t have = buffer_size(&p->input), length = have >= 3 ? (size_t)number_at(bytes, 3) : SIZE_MAX;
    if (have >= 3 && length <= have - 3) {
      struct frame f = {.id = (uint32_t)number_at(bytes + 3, 4), .type = (unsigned)number_at(bytes + 7, 2) >> 10,
                        .flags = (unsigned)number_at(bytes + 7, 2) & 0x3ff};
      *content = bytes + 9;
      *size = length - 6;
      p->input.start += 3 + length; /* the bytes stay where they are */
      if (f.type == type) return f;
      continue;
    }
    struct pollfd one = {.fd = p->socket, .events = POLLIN};
    while (poll(&one, 1, 10) == 0) CHECK(sdm_process(p->c) > INT32_MIN);
    uint8_t *room = buffer_reserve(&p->input, 65536);
    ssize_t count = recv(p->socket, room, 65536, 0);
    CHECK(count > 0);
    p->input.end += (size_t)count;
  }
}

sdm_subscription *subscribed(struct peer *p, bool reconnect, uint32_t credit) {
  sdm_subscription *s = NULL;
  sdm_options o = SDM_OPTIONS_INIT;
  o.reconnect = reconnect;
  EQUAL(sdm_subscribe(p->c, &s, "quotes", &o), 0);
  EQUAL(sdm_request(s, credit), 0);
  return s;
}

void stop_listening(void) { close(listening); }

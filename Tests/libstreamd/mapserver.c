/* mapserver SOCKET: plays a daemon with one mapped stream, "quotes", for tests of clients. Obeys lines of its standard input, and replies "ok":
 *
 *   add COUNT            events whose text is "event ID"
 *   fill COUNT SIZE      events of SIZE bytes, in batches
 *   replace LOST         a new generation, before which LOST events were lost
 *   end                  the stream completes
 *   refuse COUNT         the next requests for the map, as a daemon with too many maps on their way
 *   cut                  closes all connections */
#include "internal.h"
#include "writer.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { CLIENTS = 64 };

static struct client {
  int socket; /* -1: none */
  uint32_t demand;
  struct buffer input, output;
} clients[CLIENTS];
static struct shape shape = {.slots = 1 << 17, .ring_bytes = 32 << 20, .generation = 1, .epoch = 1, .has_page = true};
static struct writer writer;
static bool has_ended;
static unsigned long long refusals; /* to come */

static void send_all(struct client *c, const int *descriptors, size_t count) {
  union {
    struct cmsghdr head;
    char bytes[CMSG_SPACE(2 * sizeof(int))];
  } control = {0};
  struct iovec part = {buffer_content(&c->output), buffer_size(&c->output)};
  struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
  if (count) {
    message.msg_control = control.bytes;
    message.msg_controllen = CMSG_SPACE(count * sizeof(int));
    control.head = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(count * sizeof(int))};
    memcpy(CMSG_DATA(&control.head), descriptors, count * sizeof(int));
  }
  if (part.iov_len && sendmsg(c->socket, &message, MSG_NOSIGNAL) < 0) shutdown(c->socket, SHUT_RDWR);
  buffer_clear(&c->output);
}

static void put_text(struct client *c, uint32_t id, unsigned flags, const char *text) {
  size_t size = strlen(text);
  buffer_put(&c->output, size + 6, 3);
  buffer_put(&c->output, id, 4);
  buffer_put(&c->output, FRAME_PAYLOAD << 10 | flags, 2);
  buffer_append(&c->output, text, size);
}

static uint64_t position_of(const char *from) {
  uint64_t left = UINT64_MAX; /* events from there on */
  if (strncmp(from, "\"new", 4) == 0) left = 0;
  else if (strncmp(from, "\"latest", 7) == 0) left = 1;
  else if (from[0] == '-') left = strtoull(from + 1, NULL, 10);
  else if (from[0] != '"') left = writer.id - strtoull(from, NULL, 10);
  return left < writer.end - writer.first ? writer.end - left : writer.first;
}

static void reply(struct client *c, uint32_t id, const char *stream, const char *request) {
  char text[300];
  send_all(c, NULL, 0);
  if (strcmp(stream, "quotes") != 0) {
    snprintf(text, sizeof text, strcmp(stream, "plain") == 0 ? "\"%s\" is not mapped" : "no stream named \"%s\"", stream);
    frame_error(&c->output, id, strcmp(stream, "plain") == 0 ? 0x204 : 0x202, text);
    send_all(c, NULL, 0);
    return;
  }
  if (refusals) {
    refusals--;
    frame_error(&c->output, id, 0x202, "uid 0 has 0 maps that it has not received, with 0 of 128 left");
    send_all(c, NULL, 0);
    return;
  }
  const char *from = strstr(request, "\"from\":");
  snprintf(text, sizeof text, "{\"version\":1,\"generation\":%llu,\"size\":%llu,\"position\":%llu,\"missed\":0}", (unsigned long long)shape.generation,
           (unsigned long long)writer.size, (unsigned long long)position_of(from ? from + 7 : "\"replay\""));
  put_text(c, id, FLAG_NEXT | FLAG_COMPLETE, text);
  send_all(c, (int[]){writer.region, writer.page}, 2);
}

/* Handles a frame without its length. */
static void handle(struct client *c, uint8_t *frame, size_t size) {
  uint32_t id = (uint32_t)number_at(frame, 4);
  unsigned head = (unsigned)number_at(frame + 4, 2), type = head >> 10;
  if (type == FRAME_KEEPALIVE && head & FLAG_RESPOND) frame_keepalive(&c->output, false, NULL, 0);
  if (type == FRAME_CANCEL && id == c->demand) c->demand = 0;
  if (type != FRAME_REQUEST_RESPONSE && type != FRAME_REQUEST_STREAM) return;
  uint8_t *metadata = frame + (type == FRAME_REQUEST_STREAM ? 13 : 9);
  size_t metadata_size = (size_t)number_at(metadata - 3, 3);
  char stream[256] = "", request[512] = "";
  memcpy(stream, metadata + 5, metadata[4]);
  memcpy(request, metadata + metadata_size, (size_t)(frame + size - metadata) - metadata_size);
  if (type == FRAME_REQUEST_RESPONSE) {
    reply(c, id, stream, request);
  } else {
    c->demand = id;
    if (has_ended) put_text(c, id, FLAG_COMPLETE, "");
  }
}

static void forget(struct client *c) {
  close(c->socket);
  buffer_clear(&c->input);
  buffer_clear(&c->output);
  *c = (struct client){.socket = -1};
}

static void receive(struct client *c) {
  ssize_t count = recv(c->socket, buffer_reserve(&c->input, 65536), 65536, 0);
  if (count <= 0) {
    forget(c);
    return;
  }
  c->input.end += (size_t)count;
  while (buffer_size(&c->input) >= 3) {
    size_t size = (size_t)number_at(buffer_content(&c->input), 3);
    if (buffer_size(&c->input) < 3 + size) break;
    handle(c, buffer_content(&c->input) + 3, size);
    buffer_consume(&c->input, 3 + size);
  }
  send_all(c, NULL, 0);
}

static void add(unsigned long long count) {
  for (; count > 0; count--) {
    char text[40];
    int size = snprintf(text, sizeof text, "event %llu", (unsigned long long)writer.id + 1);
    writer_add(&writer, text, (uint32_t)size);
  }
}

static void fill(unsigned long long count, unsigned long long size) {
  static char data[65536];
  for (unsigned long long i = 1; i <= count; i++) {
    writer_put(&writer, data, (uint32_t)(size < sizeof data ? size : sizeof data));
    if (i % 256 == 0 || i == count) writer_publish(&writer);
  }
}

static void replace(unsigned long long lost) {
  struct writer former = writer;
  shape.generation++;
  shape.position = former.end + lost;
  shape.id = former.id + lost;
  writer = writer_open(shape);
  writer_set_state(&former, SDM_MAP_REPLACED);
  writer_close(&former);
}

static void end_stream(void) {
  has_ended = true;
  writer_set_state(&writer, SDM_MAP_ENDED);
  for (struct client *c = clients; c < clients + CLIENTS; c++) {
    if (c->socket < 0 || !c->demand) continue;
    put_text(c, c->demand, FLAG_COMPLETE, "");
    send_all(c, NULL, 0);
  }
}

static void obey(const char *line) {
  char verb[16] = "";
  unsigned long long one = 0, two = 0;
  sscanf(line, "%15s %llu %llu", verb, &one, &two);
  if (strcmp(verb, "add") == 0) add(one);
  else if (strcmp(verb, "fill") == 0) fill(one, two);
  else if (strcmp(verb, "replace") == 0) replace(one);
  else if (strcmp(verb, "end") == 0) end_stream();
  else if (strcmp(verb, "refuse") == 0) refusals = one;
  else for (struct client *c = clients; c < clients + CLIENTS; c++) if (c->socket >= 0) forget(c);
  puts("ok");
  fflush(stdout);
}

static void accept_one(int listener) {
  struct client *c = clients;
  while (c->socket >= 0) c++;
  CHECK(c < clients + CLIENTS);
  c->socket = accept(listener, NULL, NULL);
}

int main(int count, char **words) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  CHECK(count == 2);
  snprintf(address.sun_path, sizeof address.sun_path, "%s", words[1]);
  int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  CHECK(bind(listener, (struct sockaddr *)&address, sizeof address) == 0 && listen(listener, 16) == 0);
  for (int i = 0; i < CLIENTS; i++) clients[i].socket = -1;
  writer = writer_open(shape);
  puts("ok");
  fflush(stdout);
  for (;;) {
    struct pollfd ready[2 + CLIENTS] = {{.fd = 0, .events = POLLIN}, {.fd = listener, .events = POLLIN}};
    for (int i = 0; i < CLIENTS; i++) ready[2 + i] = (struct pollfd){.fd = clients[i].socket, .events = POLLIN};
    CHECK(poll(ready, 2 + CLIENTS, -1) > 0);
    for (int i = 0; i < CLIENTS; i++)
      if (ready[2 + i].revents) receive(&clients[i]);
    if (ready[1].revents) accept_one(listener);
    char line[128];
    if (!ready[0].revents) continue;
    if (!fgets(line, sizeof line, stdin)) return 0;
    obey(line);
  }
}

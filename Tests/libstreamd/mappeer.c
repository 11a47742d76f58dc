#include "mapping.h"

#include <dirent.h>
#include <sys/socket.h>

void put_with(struct peer *p, struct buffer *out, const int *descriptors, int count) {
  union {
    struct cmsghdr head;
    char bytes[CMSG_SPACE(8 * sizeof(int))];
  } control = {0};
  struct iovec part = {buffer_content(out), buffer_size(out)};
  struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
  if (count) {
    descriptors_admit(p->c, true); /* the request may follow */
    message.msg_control = control.bytes;
    message.msg_controllen = CMSG_SPACE((size_t)count * sizeof(int));
    control.head = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN((size_t)count * sizeof(int))};
    memcpy(CMSG_DATA(&control.head), descriptors, (size_t)count * sizeof(int));
  }
  EQUAL(sendmsg(p->socket, &message, MSG_NOSIGNAL), buffer_size(out));
  buffer_clear(out);
}

void put_reply(struct peer *p, uint32_t id, const char *json, const int *descriptors, int count) {
  struct buffer out = {0};
  put_frame(&out, id, FRAME_PAYLOAD, FLAG_NEXT | FLAG_COMPLETE, json, strlen(json));
  put_with(p, &out, descriptors, count);
}

void put_map(struct peer *p, uint32_t id, const struct writer *w, uint64_t position, const char *missed) {
  char json[256];
  snprintf(json, sizeof json, "{\"version\":1,\"generation\":%llu,\"size\":%llu,\"position\":%llu,\"missed\":%s}",
           (unsigned long long)w->header->generation, (unsigned long long)w->header->region_bytes, (unsigned long long)position, missed);
  put_reply(p, id, json, (int[]){w->region, w->page}, w->page < 0 ? 1 : 2);
}

sdm_mapped *mapped(struct peer *p, const struct writer *w, uint64_t position, const sdm_options *o) {
  sdm_mapped *m = NULL;
  put_map(p, p->c->next_id, w, position, "0");
  EQUAL(sdm_map(p->c, &m, "quotes", o), 0);
  return m;
}

struct frame expect_request(struct peer *p, unsigned type, const char *data, uint32_t *credit) {
  const uint8_t *content;
  size_t size, number = type == FRAME_REQUEST_STREAM ? 4 : 0;
  struct frame f = sent(p, type, &content, &size);
  if (credit) *credit = (uint32_t)number_at(content, 4);
  size_t start = number + 3 + (size_t)number_at(content + number, 3);
  if (size - start != strlen(data) || memcmp(content + start, data, strlen(data)) != 0) {
    fprintf(stderr, "the request has %.*s, not %s\n", (int)(size - start), content + start, data);
    exit(1);
  }
  return f;
}

int next_mapped(sdm_mapped *m, sdm_event *e) {
  for (;;) {
    int result = sdm_mapped_next(m, e);
    if (result != 0) return result;
    EQUAL(sdm_mapped_wait(m, PATIENCE), 1);
  }
}

void add_events(struct writer *w, int count) {
  for (int i = 0; i < count; i++) {
    char text[32];
    int size = snprintf(text, sizeof text, "event %llu", (unsigned long long)w->id + 1);
    writer_add(w, text, (uint32_t)size);
  }
}

void expect_events(sdm_mapped *m, uint64_t first_id, uint64_t last_id) {
  for (uint64_t id = first_id; id <= last_id; id++) {
    char text[32];
    sdm_event e;
    snprintf(text, sizeof text, "event %llu", (unsigned long long)id);
    EQUAL(next_mapped(m, &e), 1);
    EQUAL(e.id, id);
    CHECK(is_text(&e, text) && e.time == 1000000 + id && e.kind == SDM_EVENT && e.left_out == 0);
    if (id > first_id) EQUAL(e.gap, 0);
  }
}

int open_descriptors(void) {
  DIR *folder = opendir("/proc/self/fd");
  int count = 0;
  while (readdir(folder)) count++;
  closedir(folder);
  return count;
}

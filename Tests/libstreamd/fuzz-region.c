/* Feeds a hostile region, and the reply that announces it, to the readers of mapped streams, without a daemon.
 *
 * The input is a program over a region that is well-formed at first, of 16 slots and a ring of 2,048 bytes with 10 events. Its first byte
 * chooses options; byte 1 the number of bytes of a reply that follow, or 0: the reply is right. Then each 4 bytes change the region
 * before another read: u16 where (beyond 4,608: a field of the header), and what is stored: a byte, and how. */
#include "writer.h"
#include "internal.h"

#include <unistd.h>

enum { STEPS = 200 };

/* As in fuzz.c: what is sent goes nowhere. */
static sdm *new_connection(void) {
  sdm *c = calloc(1, sizeof *c);
  CHECK(c);
  c->references = 1;
  c->process = -1;
  c->socket = c->epoll = c->timer = -1;
  c->state = OVER; /* nothing is processed */
  c->next_id = 1;
  return c;
}

static sdm_mapped *new_map(sdm *c, uint8_t options) {
  sdm_mapped *m = calloc(1, sizeof *m);
  CHECK(m && request_init(&m->ask, c, MAP, "quotes") == 0 && request_init(&m->demand, c, DEMAND, "quotes") == 0);
  m->c = sdm_ref(c);
  m->references = 1;
  m->passed[0] = m->passed[1] = -1;
  m->on_lag = options & 3;
  m->window = 16;
  m->reconnects = true;
  return m;
}

static void change(struct writer *w, const uint8_t *step) {
  uint64_t values[] = {step[2], (uint64_t)step[2] << 8, (uint64_t)step[2] << 24, (uint64_t)(int64_t)(int8_t)step[2], (uint64_t)step[2] << 56};
  uint64_t value = values[step[3] % 5], place = (uint64_t)(step[0] << 8 | step[1]);
  uint8_t *bytes = (uint8_t *)w->header, size = step[3] & 0x80 ? 8 : 4;
  static const uint16_t fields[] = {8, 16, 24, 32, 40, 48, 56, 64, 128, 192, 256, 260};
  if (place > 4608) place = fields[place % (sizeof fields / sizeof fields[0])];
  else if (step[3] & 0x40) place = 4096 + place % 2176;
  if (step[3] & 0x20) atomic_fetch_add(&w->header->end, 1);
  memcpy(bytes + place, &value, size);
}

static void read_some(sdm_mapped *m, uint8_t options) {
  sdm_event events[20];
  for (int i = 0; i < 3; i++) {
    int count = options & 4 ? sdm_mapped_next(m, events) : sdm_mapped_next_batch(m, events, 1 + options % 20);
    for (int k = 0; k < count; k++) {
      volatile uint8_t last = 0;
      CHECK(events[k].data && events[k].size < 2048 && events[k].kind == SDM_EVENT);
      if (events[k].size) last = ((const uint8_t *)events[k].data)[events[k].size - 1];
      (void)last;
    }
    if (count < 0) CHECK(sdm_error(m->c)[0] && sdm_mapped_next(m, events) == count);
    if (count <= 0) break;
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size < 2 || size < 2u + data[1]) return 0;
  struct writer w = writer_open((struct shape){.slots = 16, .ring_bytes = 2048, .generation = 3, .epoch = 7, .has_page = data[0] & 8});
  for (int i = 0; i < 10; i++) writer_add(&w, "twenty bytes of data", (uint32_t)(2 * i));
  sdm *c = new_connection();
  sdm_mapped *m = new_map(c, data[0]);
  char json[128];
  int length = snprintf(json, sizeof json, "{\"version\":1,\"generation\":3,\"size\":%llu,\"position\":%d}", (unsigned long long)w.header->region_bytes, data[0] >> 4);
  if (data[1]) map_reply(m, data + 2, data[1]);
  else map_reply(m, (const uint8_t *)json, (size_t)length);
  m->passed[0] = dup(w.region);
  if (w.page >= 0) m->passed[1] = dup(w.page);
  const uint8_t *step = data + 2 + data[1], *end = data + size;
  for (; end - step >= 4 && data[0] & 0x10; step += 4) { /* before it is mapped */
    change(&w, step);
    if (step[3] & 0x10) break;
  }
  m->asked_by_id = data[0] & 0x20;
  if (!m->has_reply || map_adopt(m) < 0) step = end;
  for (int i = 0; i < STEPS && end - step >= 4; step += 4, i++) {
    read_some(m, data[0]);
    change(&w, step);
  }
  if (m->region.bytes) read_some(m, data[0]);
  sdm_mapped_unref(m);
  sdm_unref(c);
  writer_close(&w);
  return 0;
}

/* Subscriptions: credit, untaken events, and where to resume.
 *
 * Untaken events are records in segments, copied there from the connection's input. A segment is released by the call
 * after the one that returned its last event, so that no event is allocated and none moves.
 *
 * Memory is bounded by credit. Credit of the program, and of `window`, is granted as it is. A demand without limit is granted
 * in parts: at most `rolling` events are open or untaken, at most 65,536, and about 8 MiB by the size of recent events. If
 * events become much larger than these, UNTAKEN_LIMIT stops the reading of the connection until some are taken. Calls that block read on, because what they wait for may
 * be behind the events; meanwhile nothing is taken, so what was requested before the call is the bound. */
#include "internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define UNLIMITED UINT64_MAX
enum { ROLLING_FIRST = 128, ROLLING_LEAST = 16, ROLLING_MOST = 65536, ROLLING_BYTES = 8 << 20, FIRST_SEGMENT_BYTES = 4 << 10, SPARE_SEGMENTS = 2 };

/* --- untaken events --- */

static size_t record_bytes(const struct record *r) {
  size_t size = r->size + (r->name_size ? r->name_size + 1 : 0);
  return sizeof *r + ((size + 7) & ~(size_t)7);
}

static struct segment *new_segment(sdm *c, bool is_first, size_t least) {
  size_t capacity = is_first ? FIRST_SEGMENT_BYTES : SEGMENT_BYTES;
  struct segment *segment = c->spare;
  if (!is_first && segment && least <= capacity) {
    c->spare = segment->next;
  } else {
    if (capacity < least) capacity = least;
    segment = malloc(sizeof *segment + capacity);
    if (!segment) return NULL;
    segment->capacity = capacity;
  }
  segment->next = NULL;
  segment->end = 0;
  return segment;
}

static void free_segment(sdm *c, struct segment *segment) {
  int spare = 0;
  for (struct segment *other = c->spare; other; other = other->next) spare++;
  if (segment->capacity != SEGMENT_BYTES || spare >= SPARE_SEGMENTS) {
    free(segment);
    return;
  }
  segment->next = c->spare;
  c->spare = segment;
}

static const char *keep(sdm_subscription *s, struct record record, const uint8_t *data, const uint8_t *name) {
  size_t bytes = record_bytes(&record);
  struct segment *last = s->last;
  if (!last || bytes > last->capacity - last->end) {
    last = new_segment(s->r.c, !last, bytes);
    if (!last) return no_memory;
    if (s->last) s->last->next = last;
    else s->first = s->read = last;
    s->last = last;
  }
  memcpy(last->bytes + last->end, &record, sizeof record);
  uint8_t *end = last->bytes + last->end + sizeof record;
  if (record.size) memcpy(end, data, record.size);
  if (record.name_size) {
    memcpy(end + record.size, name, record.name_size);
    end[record.size + record.name_size] = 0;
  }
  last->end += bytes;
  s->untaken++;
  s->r.c->has_news = true;
  s->untaken_bytes += bytes;
  s->r.c->untaken_bytes += bytes;
  if (bytes > s->largest) s->largest = bytes;
  return NULL;
}

/* Releases what the previous call has returned. */
static void release_taken(sdm_subscription *s) {
  while (s->first != s->read) {
    struct segment *next = s->first->next;
    free_segment(s->r.c, s->first);
    s->first = next;
  }
  if (s->untaken || !s->read) return;
  s->offset = 0;
  s->read->end = 0;
  if (s->read->capacity <= FIRST_SEGMENT_BYTES) return;
  free_segment(s->r.c, s->read);
  s->first = s->read = s->last = NULL;
}

/* Takes the next event, which must exist. Returns the bytes of its record. */
static inline size_t take(sdm_subscription *s, sdm_event *e) {
  while (s->offset == s->read->end) {
    s->read = s->read->next;
    s->offset = 0;
  }
  const uint8_t *bytes = s->read->bytes + s->offset;
  struct record record;
  memcpy(&record, bytes, sizeof record);
  *e = (sdm_event){.id = record.id, .time = record.time, .data = bytes + sizeof record, .size = record.size,
                   .gap = record.gap, .left_out = record.left_out, .kind = (uint32_t)record.kind, .position = record.position};
  if (record.name_size) e->stream = (const char *)e->data + record.size;
  size_t size = record_bytes(&record);
  s->offset += size;
  return size;
}

static uint32_t half_of_window(const sdm_subscription *s) { return s->window / 2 + (s->window & 1); }

/* Accounts for taken events. The next sdm_process() sends the credit that is due. */
static inline void did_take(sdm_subscription *s, uint32_t count, size_t bytes) {
  sdm *c = s->r.c;
  s->untaken -= count;
  s->untaken_bytes -= bytes;
  c->untaken_bytes -= bytes;
  c->taken += count;
  if (c->is_paused && c->untaken_bytes <= UNTAKEN_LIMIT / 2) c->is_due = true;
  if (s->demand == UNLIMITED) {
    if (s->open + s->untaken <= s->rolling / 2) c->is_due = true;
  } else if (s->window) {
    s->renewable += count;
    if (s->renewable < half_of_window(s)) return;
    s->demand += s->renewable;
    s->renewable = 0;
    c->is_due = true;
  }
}

SDM_PUBLIC int sdm_next(sdm_subscription *s, sdm_event *e) {
  if (!s) return -EINVAL;
  if (!e) return fail(s->r.c, -EINVAL, "sdm_next() needs an event to fill");
  release_taken(s);
  if (!s->untaken) return s->r.phase == ENDED ? outcome_of(&s->r) : 0;
  did_take(s, 1, take(s, e));
  return 1;
}

SDM_PUBLIC int sdm_next_batch(sdm_subscription *s, sdm_event *events, size_t n) {
  if (!s) return -EINVAL;
  if (!events || !n) return fail(s->r.c, -EINVAL, "sdm_next_batch() needs events to fill");
  release_taken(s);
  if (!s->untaken) return s->r.phase == ENDED ? outcome_of(&s->r) : 0;
  uint32_t count = n < s->untaken ? (uint32_t)n : s->untaken;
  if (count > INT32_MAX) count = INT32_MAX;
  size_t bytes = 0;
  for (uint32_t i = 0; i < count; i++) bytes += take(s, &events[i]);
  did_take(s, count, bytes);
  return (int)count;
}

bool subscription_awaits_reader(const sdm_subscription *s) {
  bool renews = s->window || s->demand == UNLIMITED;
  return s->r.phase != ENDED && renews && s->untaken && !s->open && (!s->demand || s->demand == UNLIMITED);
}

/* --- what the daemon sends --- */

static uint64_t sum(uint64_t a, uint64_t b) { return a > UINT64_MAX - b ? UINT64_MAX : a + b; }

/* Gives back the credit of a payload that is not delivered. */
static void refund(sdm_subscription *s) {
  if (s->demand != UNLIMITED) s->demand++;
  s->r.c->is_due = true;
}

/* Reads what WIRE.md, "Content of a payload" has. */
static const char *read_metadata(const sdm_subscription *s, struct record *record, const uint8_t *p, size_t size,
                                 const uint8_t **name) {
  bool has_kind = s->marker || s->hides_markers;
  size_t least = 16u + (s->filtered ? 8u : 0u) + (has_kind ? 1u : 0u);
  if (s->named) {
    size_t start = least + 8;
    if (!p || size < start + 9 || size != start + 9 + p[start + 8]) return "the metadata of an event has an unexpected length";
    record->position = number_at(p + start, 8);
    record->name_size = p[start + 8];
    *name = p + start + 9;
    size = start;
  }
  if (!p || (size != least && size != least + 8)) return "the metadata of an event has an unexpected length";
  record->id = number_at(p, 8);
  record->time = number_at(p + 8, 8);
  const uint8_t *next = p + 16;
  if (s->filtered) {
    record->left_out = number_at(next, 8);
    next += 8;
  }
  if (size == least + 8) {
    record->gap = number_at(next, 8);
    next += 8;
  }
  if (has_kind) record->kind = next[0];
  if (record->kind > SDM_MARKER) return "an event is of a kind that does not exist";
  return record->kind == SDM_MARKER && record->size ? "a marker has data" : NULL;
}

const char *subscription_payload(sdm_subscription *s, const uint8_t *metadata, size_t metadata_size,
                                 const uint8_t *data, size_t size) {
  struct record record = {.size = size};
  const uint8_t *name = NULL;
  const char *violation = read_metadata(s, &record, metadata, metadata_size, &name);
  if (violation) return violation;
  if (!s->open) return "the daemon has sent more events than were requested";
  s->open--;
  bool is_marker = record.kind == SDM_MARKER;
  if (s->resumed && !s->named && (record.id < s->resumed_after || (record.id == s->resumed_after && !is_marker))) {
    refund(s);
    return NULL;
  }
  if (!s->named || record.position) {
    s->position = s->named ? record.position : record.id;
    s->has_position = true;
  }
  if (is_marker) s->in_state = false;
  record.gap = sum(record.gap, s->hidden_gap);
  record.left_out = sum(record.left_out, s->hidden_left_out);
  bool is_hidden = is_marker && s->hides_markers;
  s->hidden_gap = is_hidden ? record.gap : 0;
  s->hidden_left_out = is_hidden ? record.left_out : 0;
  if (!is_hidden) return keep(s, record, data, name);
  refund(s);
  return NULL;
}

void subscription_complete(sdm_subscription *s) { request_end(&s->r, -ENODATA, "the stream has ended"); }

void subscription_error(sdm_subscription *s, const struct failure *f) {
  if (f->code == 0x203 && retry_of(f->reason) != NEVER && subscription_can_resume(s)) {
    subscription_resume(s);
    s->r.retry_at = now_usec() + 100000;
  } else {
    request_fail(&s->r, f);
  }
}

/* --- credit and the request --- */

/* The credit to grant now. */
static uint32_t due(sdm_subscription *s) {
  if (s->demand != UNLIMITED) return (uint32_t)s->demand;
  if (s->open + s->untaken > s->rolling / 2) return 0;
  if (s->largest) {
    uint64_t most = ROLLING_BYTES / s->largest;
    s->rolling = most < ROLLING_LEAST ? ROLLING_LEAST : most > ROLLING_MOST ? ROLLING_MOST : (uint32_t)most;
    s->largest /= 2; /* so that a large event is forgotten after some grants */
  }
  uint32_t used = s->open + s->untaken;
  return s->rolling > used ? s->rolling - used : 0;
}

void subscription_grant(sdm_subscription *s) {
  sdm *c = s->r.c;
  if (s->r.phase != OPEN && s->r.phase != READY) return;
  uint32_t credit = due(s);
  if (!credit) return;
  if (s->r.phase == READY) {
    char from[FROM_BYTES];
    if (s->has_position) snprintf(from, sizeof from, "%llu", (unsigned long long)s->position);
    else memcpy(from, s->from, sizeof from);
    char data[8192 + 128];
    int size = snprintf(data, sizeof data, "{\"from\":%s%s", from, s->options);
    uint32_t id = new_id(c);
    if (!id) {
      request_end(&s->r, -EDQUOT, "the connection has no request id left");
      return;
    }
    request_opened(&s->r, id);
    frame_request(&c->output, id, FRAME_REQUEST_STREAM, credit, &(struct route){.stream = s->r.stream}, data, (size_t)size);
  } else {
    frame_number(&c->output, s->r.id, FRAME_REQUEST_N, credit);
  }
  s->open += credit;
  if (s->demand != UNLIMITED) s->demand = 0;
}

/* A loss in a state cannot be resumed: its ids are no positions, and keys may be removed meanwhile. */
bool subscription_can_resume(const sdm_subscription *s) {
  return s->r.phase != ENDED && s->reconnects && !(s->in_state && s->has_position);
}

void subscription_resume(sdm_subscription *s) {
  request_closed(&s->r);
  if (s->r.phase == OPEN) s->r.phase = READY;
  if (s->demand != UNLIMITED) s->demand += s->open;
  s->open = 0;
  s->resumed = s->has_position;
  s->resumed_after = s->position;
}

/* --- options --- */

static int write_options(sdm *c, sdm_subscription *s, const sdm_options *o) {
  static const char *const lag[] = {"", ",\"on_lag\":\"skip\"", ",\"on_lag\":\"latest\"", ",\"on_lag\":\"fail\""};
  size_t capacity = 128 + (o->where ? strlen(o->where) : 0);
  s->options = malloc(capacity);
  if (!s->options) return fail(c, -ENOMEM, "no memory is left");
  snprintf(s->options, capacity, ",\"gaps\":true%s%s%s%s%s}", lag[o->on_lag], o->where ? ",\"where\":" : "",
           o->where ? o->where : "", s->marker || s->hides_markers ? ",\"marker\":true" : "", s->named ? ",\"names\":true" : "");
  return options_from(c, s->from, o);
}

/* --- the interface --- */

static void grant(sdm_subscription *s, uint64_t n) {
  if (s->demand != UNLIMITED) s->demand += n;
  if (n >= CREDIT_UNLIMITED || (s->demand != UNLIMITED && s->demand + s->open >= CREDIT_UNLIMITED)) s->demand = UNLIMITED;
  if (s->r.phase == IDLE) s->r.phase = READY;
  s->r.c->is_due = true;
  protocol_send(s->r.c);
  connection_flush(s->r.c);
}

SDM_PUBLIC int sdm_subscribe(sdm *c, sdm_subscription **ret, const char *stream, const sdm_options *o) {
  if (!c) return -EINVAL;
  if (!ret || !stream || !is_valid_name(stream, NAME_LIMIT)) return fail(c, -EINVAL, "a stream's name has 1 to 255 bytes");
  if (c->state == OVER) return fail_over(c, -EBADF, "the connection has ended: %s");
  sdm_options options;
  int result = options_read(c, o, &options);
  if (result < 0) return result;
  sdm_subscription *s = calloc(1, sizeof *s);
  if (!s) return fail(c, -ENOMEM, "no memory is left");
  s->window = options.window;
  s->reconnects = options.reconnect;
  s->marker = options.marker;
  s->filtered = options.where != NULL;
  s->named = strchr(stream, '*') != NULL;
  s->in_state = options.from == SDM_FROM_STATE;
  /* A marker is a position to resume from: events that were left out before a loss are not examined again, and a state has
   * an end. */
  s->hides_markers = s->reconnects && !s->marker && (s->filtered || s->in_state);
  s->rolling = ROLLING_FIRST;
  result = write_options(c, s, &options);
  if (result == 0) result = request_init(&s->r, c, SUBSCRIPTION, stream);
  if (result < 0) {
    free(s->options);
    free(s);
    return result;
  }
  *ret = s;
  if (s->window) grant(s, s->window);
  return 0;
}

SDM_PUBLIC int sdm_request(sdm_subscription *s, uint32_t n) {
  if (!s) return -EINVAL;
  if (!n) return fail(s->r.c, -EINVAL, "a request for 0 events");
  if (s->r.phase == ENDED) return fail(s->r.c, -EBADF, "the subscription has ended");
  grant(s, n);
  return 0;
}

void subscription_free(sdm_subscription *s) {
  s->r.c->untaken_bytes -= s->untaken_bytes;
  s->r.c->is_due = true; /* the connection may be paused */
  while (s->first) {
    struct segment *next = s->first->next;
    free_segment(s->r.c, s->first);
    s->first = next;
  }
  free(s->options);
}

SDM_PUBLIC sdm_subscription *sdm_subscription_ref(sdm_subscription *s) {
  if (s) s->r.references++;
  return s;
}

SDM_PUBLIC sdm_subscription *sdm_subscription_unref(sdm_subscription *s) {
  if (s && --s->r.references == 0) request_release(&s->r);
  return NULL;
}

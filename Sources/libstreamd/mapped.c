/* Mapped streams: the way to a region, and from one generation to the next.
 *
 * A map has two requests. `ask` is for a region (REQUEST_RESPONSE): first in sdm_map(), then after the last event of a region that was
 * replaced, and after each loss of the connection. `demand` is the credit upstream (REQUEST_STREAM), made again for each reply; its end
 * is that of the map, once the region's last event was taken. Both are members, so that a loss needs no memory.
 *
 * A reply of the same generation changes nothing but the demand and the waiting page. That of another one waits in `next` until the last event of `region`
 * was copied: nothing is written to the old region any more. */
#include "internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { READ_AHEAD = 256, WINDOW = 65536, LOOKS = 16, LONGEST_GRANT = 1 << 30, TICK_USEC = 1000000, SLICE_USEC = 20000 };

sdm_mapped *mapped_of(struct request *r) {
  size_t offset = r->kind == MAP ? offsetof(sdm_mapped, ask) : offsetof(sdm_mapped, demand);
  return (sdm_mapped *)(void *)((char *)r - offset);
}

/* --- the requests --- */

void map_send(sdm_mapped *m) {
  sdm *c = m->c;
  uint32_t id = new_id(c);
  if (!id) {
    request_end(&m->ask, -EDQUOT, "the connection has no request id left");
    return;
  }
  static const char *const lag[] = {"", ",\"on_lag\":\"skip\"", ",\"on_lag\":\"latest\"", ",\"on_lag\":\"fail\""};
  char data[128];
  m->asked_by_id = m->has_id;
  m->asked_id = m->id;
  if (m->has_id) snprintf(m->from, sizeof m->from, "%llu", (unsigned long long)m->id);
  m->asked_after_end = m->region.bytes && region_state(&m->region) == SDM_MAP_REPLACED;
  int size = snprintf(data, sizeof data, "{\"map\":true,\"from\":%s%s}", m->from, lag[m->on_lag]);
  request_opened(&m->ask, id);
  frame_request(&c->output, id, FRAME_REQUEST_RESPONSE, 0, &(struct route){.stream = m->ask.stream}, data, (size_t)size);
}

static void close_passed(sdm_mapped *m) {
  for (int i = 0; i < 2; i++) {
    if (m->passed[i] >= 0) close(m->passed[i]);
    m->passed[i] = -1;
  }
}

void map_reply(sdm_mapped *m, const uint8_t *data, size_t size) {
  close_passed(m);
  m->passed_error = descriptors_take(m->c, m->passed);
  request_closed(&m->ask);
  m->ask.phase = IDLE;
  m->has_reply = reply_read(&m->reply, data, size);
  if (!m->has_reply) request_end(&m->ask, -EPROTO, "the reply to a request for a map is malformed");
}

/* Asks soon again. */
static void ask_later(sdm_mapped *m) {
  request_closed(&m->ask);
  m->ask.phase = READY;
  m->ask.retry_at = now_usec() + 100000;
}

/* The daemon lives no more, and the demand stream with it. */
static void ask_next_daemon(sdm_mapped *m) {
  request_closed(&m->demand);
  m->demand.phase = IDLE;
  ask_later(m);
}

/* At a start and after a restart all maps are asked for at once, more than the daemon has on their way: others come first. Before the
 * first region, for 10 s: a client may never read. */
static bool may_wait(sdm_mapped *m) {
  uint64_t now = now_usec();
  if (!m->refused_since) m->refused_since = now;
  return m->region.bytes || now - m->refused_since < 10000000;
}

void map_error(sdm_mapped *m, const struct failure *f) {
  bool may_retry = retry_of(f->reason) != NEVER;
  if (f->code == 0x203 && may_retry && m->reconnects) ask_next_daemon(m);
  else if (f->code == 0x202 && may_retry && may_wait(m)) ask_later(m);
  else request_fail(&m->ask, f);
}

void demand_error(sdm_mapped *m, const struct failure *f) {
  if (f->code == 0x203 && retry_of(f->reason) != NEVER && m->reconnects) ask_next_daemon(m);
  else request_fail(&m->demand, f);
}

bool map_can_resume(const sdm_mapped *m) {
  bool asks = m->ask.phase == READY || m->ask.phase == OPEN;
  return m->reconnects && !m->outcome && (asks || (m->ask.phase == IDLE && m->demand.phase != ENDED));
}

/* Is called for both requests. */
void map_resume(sdm_mapped *m) {
  request_closed(&m->ask);
  request_closed(&m->demand);
  m->ask.phase = READY;
  m->demand.phase = IDLE;
}

/* The position after the last event that the program has taken. */
static uint64_t taken(const sdm_mapped *m) { return m->position - (m->copy.count - m->copy.next); }

/* The credit that is missing for a whole window beyond the last taken event. */
static uint64_t due(const sdm_mapped *m) {
  uint64_t wanted = taken(m) + m->window, granted = m->base + m->granted;
  return m->window >= CREDIT_UNLIMITED || wanted <= granted ? 0 : wanted - granted;
}

static bool is_due(const sdm_mapped *m) { return m->demand.phase == OPEN && due(m) >= m->window / 2 + (m->window & 1); }

void demand_send(sdm_mapped *m) {
  sdm *c = m->c;
  if (m->demand.phase == READY) {
    uint32_t id = new_id(c);
    if (!id) {
      request_end(&m->demand, -EDQUOT, "the connection has no request id left");
      return;
    }
    char data[64];
    int size = snprintf(data, sizeof data, "{\"map\":true,\"position\":%llu}", (unsigned long long)m->base);
    m->granted = 0;
    uint64_t credit = m->window >= CREDIT_UNLIMITED ? CREDIT_UNLIMITED : due(m);
    m->granted = credit < LONGEST_GRANT || credit == CREDIT_UNLIMITED ? credit : LONGEST_GRANT;
    request_opened(&m->demand, id);
    frame_request(&c->output, id, FRAME_REQUEST_STREAM, (uint32_t)m->granted, &(struct route){.stream = m->demand.stream}, data, (size_t)size);
  } else if (m->demand.phase == OPEN && (is_due(m) || (m->grants_all && due(m)))) {
    uint64_t credit = due(m) < LONGEST_GRANT ? due(m) : LONGEST_GRANT;
    m->granted += credit;
    frame_number(&c->output, m->demand.id, FRAME_REQUEST_N, (uint32_t)credit);
  }
}

/* Begins a demand stream at the position of the last reply, and only then ends the one before: upstream sees no pause. */
static void renew_demand(sdm_mapped *m) {
  uint32_t former = m->demand.phase == OPEN ? m->demand.id : 0;
  request_closed(&m->demand);
  m->base = m->reply.position;
  m->demand.phase = READY;
  protocol_send(m->c);
  if (former) frame_plain(&m->c->output, former, FRAME_CANCEL, 0);
  connection_flush(m->c);
}

/* --- the end --- */

static void leave(struct request *r) {
  if (r->phase == OPEN) frame_plain(&r->c->output, r->id, FRAME_CANCEL, 0);
  request_closed(r);
  r->phase = ENDED;
}

/* Ends the map: nothing more is read. */
static int end(sdm_mapped *m, int code, const char *sentence) {
  m->outcome = code;
  m->sentence = strdup(sentence ? sentence : strerror(-code));
  leave(&m->ask);
  leave(&m->demand);
  connection_flush(m->c);
  return code;
}

/* Likewise, as a request has ended. */
static int end_as(sdm_mapped *m, const struct request *r) {
  m->reason = r->reason;
  return end(m, r->outcome, r->sentence);
}

static int result_of(sdm_mapped *m) {
  fail(m->c, m->outcome, "%s", m->sentence ? m->sentence : strerror(-m->outcome));
  m->c->error_reason = m->reason;
  return m->outcome;
}

static int end_lagged(sdm_mapped *m, uint64_t lost) {
  char sentence[64] = "lagged: events lost";
  if (lost != SDM_GAP_UNKNOWN) snprintf(sentence, sizeof sentence, "lagged: %llu events lost", (unsigned long long)lost);
  m->reason = SDM_REASON_LAGGED;
  return end(m, -ENOBUFS, sentence);
}

/* --- generations --- */

static void add_gap(sdm_mapped *m, uint64_t lost) { m->gap = m->gap > UINT64_MAX - lost ? UINT64_MAX : m->gap + lost; }

/* Events between the id that was asked for and the position of the reply. */
static int count_missed(sdm_mapped *m) {
  m->gap = m->asked_by_id ? m->reply.missed : 0;
  return m->gap && m->on_lag == SDM_ON_LAG_FAIL ? end_lagged(m, m->gap) : 0;
}

/* Of a copy that is not empty. */
static uint64_t last_id(const struct copy *c) { return copied_event(c, c->count - 1 - c->next).id; }

/* Finds the id before the first event, so that the next generation continues there even if none has come. */
static void find_id(sdm_mapped *m) {
  uint64_t first, last;
  if (m->has_id || !m->position) return;
  if (region_copy(&m->region, m->position - 1, 1, &m->copy, &first, &last) == FOUND_EVENTS) {
    m->has_id = true;
    m->id = last_id(&m->copy);
  }
  m->copy.count = m->copy.next = 0;
}

/* Continues in `next`, after the last event of `region`. 1; 0: it has to ask for its place again; or the end. */
static int change_region(sdm_mapped *m) {
  bool same = m->next.epoch == m->region.epoch;
  if (!same && m->has_id && !(m->asked_by_id && m->asked_id == m->id)) { /* events were copied after the request */
    region_close(&m->next);
    m->ask.phase = READY;
    return 0;
  }
  region_close(&m->region);
  m->region = m->next;
  m->next = (struct region){0};
  m->awaits_end = false;
  int result = 0;
  if (!same) {
    m->position = m->reply.position;
    result = count_missed(m);
  } else if (m->reply.position > m->position) {
    uint64_t lost = m->reply.position - m->position;
    m->position = m->reply.position;
    add_gap(m, lost);
    if (m->on_lag == SDM_ON_LAG_FAIL) result = end_lagged(m, lost);
  }
  if (result < 0) return result;
  find_id(m);
  renew_demand(m);
  return 1;
}

int map_adopt(sdm_mapped *m) {
  if (!m->has_reply) return 0;
  m->has_reply = false;
  const char *why = "the reply to a request for a map has no descriptor";
  int result = m->passed_error ? m->passed_error : m->passed[0] < 0 ? -EPROTO : 0;
  if (m->passed_error) why = "this process has no room for the descriptors of a region";
  if (result == 0 && m->reply.version != SDM_MAP_VERSION) {
    why = "the layout of the region has another version";
    result = -EPROTO;
  }
  bool is_first = !m->region.bytes, is_same = !is_first && m->reply.generation == m->region.generation;
  if (result == 0 && is_same && m->asked_after_end) {
    why = "the daemon has passed a region again that it had replaced";
    result = -EPROTO;
  } else if (result == 0 && !is_same) {
    region_close(&m->next);
    result = region_open(is_first ? &m->region : &m->next, m->passed, m->reply.size, m->reply.generation, &why);
  } else if (result == 0) {
    result = region_take_page(&m->region, m->passed[1], &why);
  }
  close_passed(m);
  if (result < 0) return end(m, result, why);
  if (is_first) {
    m->position = m->reply.position;
    result = count_missed(m);
    if (result < 0) return result;
    find_id(m);
  }
  if (is_first || is_same) renew_demand(m);
  return 0;
}

/* --- reading --- */

static uint64_t coarse_usec(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

/* Whether the next step comes from the socket. */
static bool awaits_daemon(const sdm_mapped *m) { return m->ask.phase == READY || m->ask.phase == OPEN || m->awaits_end; }

/* Processes the connection if it is time, or if there is something to send or to receive. */
static void work(sdm_mapped *m) {
  if (m->outcome) return;
  uint64_t now = coarse_usec();
  bool is_tick = now - m->worked_at >= TICK_USEC;
  if (!is_tick && !awaits_daemon(m) && !is_due(m) && !m->has_reply) return;
  if (is_tick) m->worked_at = now;
  m->grants_all = is_tick;
  connection_tick(m->c, awaits_daemon(m));
  m->grants_all = false;
  map_adopt(m);
}

/* The reader was overtaken: the events from `first` up to `last` are held. 0, or the end. */
static int skip_lost(sdm_mapped *m, uint64_t first, uint64_t last) {
  if (m->on_lag == SDM_ON_LAG_FAIL) return end_lagged(m, first - m->position);
  uint64_t to = m->on_lag == SDM_ON_LAG_LATEST && last > first ? last - 1 : first;
  add_gap(m, to - m->position);
  m->position = to;
  return 0;
}

static int keep_copied(sdm_mapped *m) {
  if (m->copy.next && skip_lost(m, m->position + m->copy.next, 0) < 0) {
    m->copy.count = m->copy.next = 0;
    return m->outcome;
  }
  m->position += m->copy.count - m->copy.next;
  m->has_id = true;
  m->id = last_id(&m->copy);
  return 1;
}

/* Copies what is there. 1, 0: nothing, or the end. */
static int look(sdm_mapped *m, size_t most) {
  for (int attempt = 0; attempt < LOOKS; attempt++) {
    uint64_t first = 0, last = 0;
    int result = 0;
    switch (region_copy(&m->region, m->position, most, &m->copy, &first, &last)) {
      case FOUND_NOTHING: return 0;
      case FOUND_EVENTS:
        if (!m->copy.next || m->on_lag != SDM_ON_LAG_LATEST) return keep_copied(m);
        m->copy.count = m->copy.next = 0; /* it is found to be overtaken now */
        break;
      case FOUND_OVERTAKEN: result = skip_lost(m, first, last); break;
      case FOUND_AGAIN: break;
      case FOUND_TOO_LARGE: result = end(m, -EPROTO, "an event is larger than 1 GiB"); break;
      case FOUND_DAMAGE: result = end(m, -EPROTO, "the region is damaged"); break;
      case FOUND_NO_MEMORY: result = end(m, -ENOMEM, "no memory is left for an event"); break;
    }
    if (result < 0) return result;
  }
  return 0; /* the writer is faster: the next call may find more */
}

/* What follows the last event of a region in this state. 1: look again; 0: nothing yet; or the end. */
static int follow(sdm_mapped *m, uint32_t state, bool has_ended) {
  if (m->next.bytes) return change_region(m);
  if (m->ask.phase == ENDED) return end_as(m, &m->ask);
  if (state > SDM_MAP_ENDED) return end(m, -EPROTO, "the region is damaged");
  if (state != SDM_MAP_REPLACED && has_ended) return end_as(m, &m->demand);
  m->awaits_end = state == SDM_MAP_ENDED;
  if (state == SDM_MAP_REPLACED && m->ask.phase == IDLE) {
    m->ask.phase = READY;
    protocol_send(m->c);
    connection_flush(m->c);
  }
  return 0;
}

/* Whether copies are there: 1; 0: none now; a negative errno. */
static int fill(sdm_mapped *m, size_t most) {
  work(m);
  if (m->copy.next < m->copy.count) return 1;
  for (int turn = 0; turn < 2 && !m->outcome; turn++) {
    /* Both are seen before the end is: what precedes them is then found. */
    bool has_ended = m->demand.phase == ENDED;
    uint32_t state = region_state(&m->region);
    int result = look(m, most);
    if (result == 0 && region_end(&m->region) == m->position) result = follow(m, state, has_ended);
    if (result == 0) return 0;
    if (m->copy.next < m->copy.count) return 1;
  }
  return m->outcome ? result_of(m) : 0;
}

static void take(sdm_mapped *m, sdm_event *events, uint32_t count) {
  for (uint32_t i = 0; i < count; i++) {
    struct copied e = copied_event(&m->copy, i);
    events[i] = (sdm_event){.id = e.id, .time = e.time, .data = e.data, .size = e.size};
  }
  m->copy.next += count;
  events[0].gap = m->gap;
  m->gap = 0;
}

/* --- the interface --- */

/* Waits for the first region. */
static int open_first(sdm_mapped *m) {
  sdm *c = m->c;
  uint64_t until = deadline(c->timeout);
  int result = 0;
  m->ask.phase = READY;
  while (m->ask.phase != ENDED && !m->has_reply && result >= 0) {
    connection_work(c);
    if (m->ask.phase != ENDED && !m->has_reply) result = connection_wait(c, until);
  }
  connection_waited(c);
  m->worked_at = coarse_usec();
  if (result < 0) return result;
  if (!m->has_reply) return outcome_of(&m->ask);
  return map_adopt(m) < 0 ? result_of(m) : 0;
}

static int set_options(sdm_mapped *m, const sdm_options *given) {
  sdm_options o;
  int result = options_read(m->c, given, &o);
  if (result < 0) return result;
  if (o.where || o.marker || o.from == SDM_FROM_STATE) return fail(m->c, -EINVAL, "a map has no filter, no markers and no state");
  m->on_lag = o.on_lag;
  m->reconnects = o.reconnect;
  m->window = o.window ? o.window : WINDOW;
  m->has_id = o.from == SDM_FROM_ID;
  m->id = o.since;
  return options_from(m->c, m->from, &o);
}

SDM_PUBLIC int sdm_map(sdm *c, sdm_mapped **ret, const char *stream, const sdm_options *o) {
  if (!c) return -EINVAL;
  if (!ret || !stream || !is_valid_name(stream, NAME_LIMIT)) return fail(c, -EINVAL, "a stream's name has 1 to 255 bytes");
  if (c->state == OVER) return fail_over(c, -EBADF, "the connection has ended: %s");
  sdm_mapped *m = calloc(1, sizeof *m);
  if (!m) return fail(c, -ENOMEM, "no memory is left");
  m->c = c;
  m->references = 1;
  m->passed[0] = m->passed[1] = -1;
  int result = set_options(m, o);
  if (result == 0) result = request_init(&m->ask, c, MAP, stream);
  if (result == 0 && (result = request_init(&m->demand, c, DEMAND, stream)) < 0) request_remove(&m->ask);
  if (result < 0) {
    free(m);
    return result;
  }
  sdm_ref(c);
  result = open_first(m);
  if (result < 0) sdm_mapped_unref(m);
  else *ret = m;
  return result;
}

SDM_PUBLIC int sdm_mapped_next(sdm_mapped *m, sdm_event *e) {
  if (!m) return -EINVAL;
  if (!e) return fail(m->c, -EINVAL, "sdm_mapped_next() needs an event to fill");
  int result = fill(m, READ_AHEAD);
  if (result == 1) take(m, e, 1);
  return result;
}

SDM_PUBLIC int sdm_mapped_next_batch(sdm_mapped *m, sdm_event *events, size_t n) {
  if (!m) return -EINVAL;
  if (!events || !n) return fail(m->c, -EINVAL, "sdm_mapped_next_batch() needs events to fill");
  int result = fill(m, n);
  if (result < 1) return result;
  uint32_t count = m->copy.count - m->copy.next;
  if (count > n) count = (uint32_t)n;
  take(m, events, count);
  return (int)count;
}

/* Waits for the daemon or for the writer, at most for a second. */
static int sleep_until(sdm_mapped *m, uint64_t until) {
  uint64_t now = now_usec(), left = until > now ? until - now : 0;
  if (awaits_daemon(m)) {
    uint64_t most = region_state(&m->region) == SDM_MAP_LIVE ? SLICE_USEC : TICK_USEC;
    return connection_poll(m->c, now + (left < most ? left : most));
  }
  return region_wait(&m->region, m->position, left < TICK_USEC ? left : TICK_USEC);
}

SDM_PUBLIC int sdm_mapped_wait(sdm_mapped *m, uint64_t usec) {
  if (!m) return -EINVAL;
  uint64_t until = deadline(usec);
  for (;;) {
    work(m);
    if (m->copy.next < m->copy.count || m->outcome || region_end(&m->region) != m->position) return 1;
    if (fill(m, READ_AHEAD) != 0) return 1; /* an end is kept */
    int result = sleep_until(m, until);
    if (result < 0) return fail(m->c, result, "%s", strerror(-result));
    if (now_usec() >= until && region_end(&m->region) == m->position) return fill(m, READ_AHEAD) != 0;
  }
}

SDM_PUBLIC int sdm_mapped_get_generation(sdm_mapped *m, uint64_t *generation) {
  if (!m) return -EINVAL;
  if (!generation) return fail(m->c, -EINVAL, "sdm_mapped_get_generation() needs a number to fill");
  *generation = m->region.generation;
  return 0;
}

SDM_PUBLIC sdm_mapped *sdm_mapped_ref(sdm_mapped *m) {
  if (m) m->references++;
  return m;
}

SDM_PUBLIC sdm_mapped *sdm_mapped_unref(sdm_mapped *m) {
  if (!m || --m->references) return NULL;
  bool asks = request_remove(&m->ask);
  if (request_remove(&m->demand) || asks) connection_flush(m->c);
  close_passed(m);
  region_close(&m->region);
  region_close(&m->next);
  free(m->copy.bytes);
  free(m->sentence);
  sdm_unref(m->c);
  free(m);
  return NULL;
}

/* Requests, and the frames of the daemon for them. Nothing here calls connection.c, which calls this: what is to be sent stays in the
 * output, and what has to be sent at once is returned. */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

const char no_memory[] = "no memory is left for an event";

/* --- requests --- */

bool is_valid_name(const char *name, size_t limit) {
  size_t size = strnlen(name, limit + 1);
  return size > 0 && size <= limit;
}

int request_init(struct request *r, sdm *c, enum kind kind, const char *stream) {
  *r = (struct request){.c = c, .references = 1, .kind = kind, .stream = strdup(stream)};
  if (!r->stream) return fail(c, -ENOMEM, "no memory is left");
  r->previous = c->last_request; /* requests are sent again in the order in which they were made */
  if (r->previous) r->previous->next = r;
  else c->requests = r;
  c->last_request = r;
  if (kind == SUBSCRIPTION || kind == PUBLISHER || kind == COMMAND) c->references++; /* a get is the connection's own, and a map has one reference */
  return 0;
}

static struct request **bucket(sdm *c, uint32_t id) { return &c->buckets[id / 2 % BUCKETS]; }

struct request *request_with(sdm *c, uint32_t id) {
  struct request *r = *bucket(c, id);
  while (r && r->id != id) r = r->in_bucket;
  return r;
}

uint32_t new_id(sdm *c) {
  if (c->next_id > CREDIT_UNLIMITED) return 0;
  uint32_t id = c->next_id;
  c->next_id += 2;
  return id;
}

void request_opened(struct request *r, uint32_t id) {
  r->id = id;
  r->phase = OPEN;
  r->retry_at = 0;
  if (r->kind == MAP && r->c->asks++ == 0) descriptors_admit(r->c, true);
  r->in_bucket = *bucket(r->c, id);
  *bucket(r->c, id) = r;
}

void request_closed(struct request *r) {
  r->c->fragment_bytes -= buffer_size(&r->fragments);
  buffer_clear(&r->fragments);
  r->has_fragments = r->ends_with_fragments = false;
  r->fragment_metadata = 0;
  if (!r->id) return;
  if (r->kind == MAP && --r->c->asks == 0) descriptors_admit(r->c, false);
  struct request **place = bucket(r->c, r->id);
  while (*place != r) place = &(*place)->in_bucket;
  *place = r->in_bucket;
  r->id = 0;
}

void request_end(struct request *r, int code, const char *sentence) {
  request_closed(r);
  r->phase = ENDED;
  if (r->kind == SUBSCRIPTION) r->c->has_news = true;
  r->outcome = code;
  r->reason = 0;
  free(r->sentence);
  r->sentence = strdup(sentence);
}

void request_fail(struct request *r, const struct failure *f) {
  request_end(r, errno_of(f), f->sentence);
  r->reason = f->reason;
}

int outcome_of(struct request *r) {
  fail(r->c, r->outcome, "%s", r->sentence && r->sentence[0] ? r->sentence : strerror(-r->outcome));
  r->c->error_reason = r->reason;
  return r->outcome;
}

bool request_remove(struct request *r) {
  sdm *c = r->c;
  bool leaves = r->phase == OPEN && c->process == getpid();
  if (leaves && r->kind == PUBLISHER) publisher_leave((sdm_publisher *)r);
  else if (leaves) frame_plain(&c->output, r->id, FRAME_CANCEL, 0);
  request_closed(r);
  if (r->previous) r->previous->next = r->next;
  else c->requests = r->next;
  if (r->next) r->next->previous = r->previous;
  else c->last_request = r->previous;
  free(r->stream);
  free(r->sentence);
  return leaves;
}

/* --- the daemon's frames --- */

static const char *deliver(struct request *r, const uint8_t *metadata, size_t metadata_size, const uint8_t *data, size_t size) {
  switch (r->kind) {
    case SUBSCRIPTION: return subscription_payload((sdm_subscription *)r, metadata, metadata_size, data, size);
    case PUBLISHER: return publisher_payload((sdm_publisher *)r, data, size);
    case GET: return get_payload((struct get *)r, metadata, metadata_size, data, size);
    case COMMAND: command_reply((sdm_command *)r, data, size); break;
    case MAP: map_reply(mapped_of(r), data, size); break;
    case DEMAND: return "the demand of a map has got an event";
  }
  return NULL;
}

static void complete(struct request *r) {
  if (r->phase != OPEN) return;
  switch (r->kind) {
    case SUBSCRIPTION: subscription_complete((sdm_subscription *)r); break;
    case PUBLISHER: publisher_complete((sdm_publisher *)r); break;
    case GET: request_end(r, -ENODATA, "the stream has ended without an event"); break;
    case COMMAND: command_complete((sdm_command *)r); break;
    case MAP: case DEMAND: request_end(r, -ENODATA, "the stream has ended"); break;
  }
}

/* Adds a fragment: metadata comes first, then data. */
static const char *gather(struct request *r, const struct frame *f) {
  size_t so_far = buffer_size(&r->fragments), more = f->metadata_size + f->size;
  if (!r->has_fragments && r->kind == SUBSCRIPTION && !((sdm_subscription *)r)->open)
    return "the daemon has sent more events than were requested";
  if (r->kind == MAP || r->kind == DEMAND) return "a map has got a fragment";
  if (r->kind == COMMAND) return "a command has got a fragment";
  if (f->metadata_size && so_far > r->fragment_metadata) return "a fragment has metadata after data";
  if (so_far + more > EVENT_LIMIT) return "an event has more than 64 MiB";
  if (r->c->fragment_bytes + more > FRAGMENTS_LIMIT) return "too many bytes of partial events";
  r->has_fragments = true;
  buffer_append(&r->fragments, f->metadata, f->metadata_size);
  buffer_append(&r->fragments, f->data, f->size);
  if (r->fragments.failed) return no_memory;
  r->fragment_metadata += f->metadata_size;
  r->c->fragment_bytes += more;
  r->ends_with_fragments |= (f->flags & FLAG_COMPLETE) != 0;
  return NULL;
}

static const char *receive_payload(sdm *c, const struct frame *f) {
  struct request *r = request_with(c, f->id);
  if (!r) return NULL; /* it was released, and its CANCEL is on the way */
  bool completes = (f->flags & FLAG_COMPLETE) != 0;
  const char *violation = NULL;
  if ((f->flags & FLAG_FOLLOWS) || r->has_fragments) {
    violation = gather(r, f);
    if (violation || (f->flags & FLAG_FOLLOWS)) return violation;
    completes = r->ends_with_fragments;
    struct buffer whole = r->fragments;
    size_t metadata = r->fragment_metadata;
    c->fragment_bytes -= buffer_size(&whole);
    r->fragments = (struct buffer){0};
    r->has_fragments = r->ends_with_fragments = false;
    r->fragment_metadata = 0;
    const uint8_t *content = whole.bytes ? buffer_content(&whole) : (const uint8_t *)"";
    violation = deliver(r, content, metadata, content + metadata, buffer_size(&whole) - metadata);
    buffer_clear(&whole);
  } else if (f->flags & FLAG_NEXT) {
    violation = deliver(r, f->metadata, f->metadata_size, f->data, f->size);
  } else if (!completes) {
    return "a payload has neither a value nor an end";
  }
  if (!violation && completes) complete(r);
  return violation;
}

/* A first value over `max_request` ends the connection. The daemon has ended its request before; one of the last release only names it. The
 * others resume. */
static void end_too_large(sdm *c, const char *sentence) {
  struct request *r = request_with(c, request_of_last_release(sentence));
  if (r && r->kind == PUBLISHER) request_end(r, -EMSGSIZE, sentence);
  else c->close_code = -EPROTO;
}

static void receive_close(sdm *c, uint32_t code, const char *sentence) {
  struct failure f = failure_of(code, sentence);
  c->is_closed = true;
  c->close_code = errno_of_close(&f);
  c->close_reason = f.reason;
  /* The daemon may admit it later, unless its token is gone. */
  if (f.code == 0x003 && c->was_accepted && f.reason != SDM_REASON_INVALID_TOKEN) c->close_code = 0;
  memcpy(c->reason, sentence, ERROR_BYTES);
  if (code == 0x101 && f.reason == SDM_REASON_REQUEST_TOO_LARGE) end_too_large(c, sentence);
  if (!c->reason[0]) copy_sentence(c->reason, sizeof c->reason, (const uint8_t *)"the daemon has closed the connection", 36);
}

static bool can_resume(struct request *r);

static bool asks_upstream(const struct request *r) { return r->kind == COMMAND && ((const sdm_command *)r)->asks; }

/* A request for one value and a command are made again where others restore the connection. */
static void response_error(struct request *one, const struct failure *f) {
  bool resumes = false;
  for (struct request *r = one->c->requests; r; r = r->next) resumes |= can_resume(r);
  if (one->kind == COMMAND && command_is_done_by((sdm_command *)one, f)) {
    command_complete((sdm_command *)one);
    return;
  }
  if (!resumes || f->code != 0x203 || retry_of(f->reason) == NEVER || asks_upstream(one)) {
    request_fail(one, f);
    return;
  }
  request_closed(one);
  one->phase = READY;
  one->retry_at = now_usec() + 100000;
}

/* An ERROR for the connection is the last frame that is read. */
static void receive_error(sdm *c, const struct frame *f) {
  char sentence[ERROR_BYTES];
  copy_sentence(sentence, sizeof sentence, f->data, f->size);
  if (!f->id) {
    receive_close(c, f->number, sentence);
    return;
  }
  struct request *r = request_with(c, f->id);
  struct failure failure = failure_of(f->number, sentence);
  if (!r) return;
  switch (r->kind) {
    case SUBSCRIPTION: subscription_error((sdm_subscription *)r, &failure); break;
    case PUBLISHER: publisher_error((sdm_publisher *)r, &failure); break;
    case GET: case COMMAND: response_error(r, &failure); break;
    case MAP: map_error(mapped_of(r), &failure); break;
    case DEMAND: demand_error(mapped_of(r), &failure); break;
  }
}

static const char *receive_frame(sdm *c, const struct frame *f) {
  struct request *r;
  switch (f->type) {
    case FRAME_PAYLOAD: return receive_payload(c, f);
    case FRAME_KEEPALIVE:
      if (f->flags & FLAG_RESPOND) frame_keepalive(&c->output, false, f->data, f->size);
      return NULL;
    case FRAME_ERROR: receive_error(c, f); return NULL;
    case FRAME_REQUEST_N:
      r = request_with(c, f->id);
      if (r && r->kind == PUBLISHER) return publisher_credit((sdm_publisher *)r, f->number);
      return NULL;
    case FRAME_CANCEL:
      r = request_with(c, f->id);
      if (r && r->kind == PUBLISHER) request_end(r, -ECANCELED, "the daemon accepts no more values");
      return NULL;
    default: return NULL;
  }
}

static const char *check_id(const sdm *c, uint32_t id) {
  return id && (id % 2 == 0 || id >= c->next_id) ? "a frame has the id of a request that was not made" : NULL;
}

const char *protocol_receive(sdm *c) {
  const uint8_t *bytes = buffer_content(&c->input);
  size_t size = buffer_size(&c->input), offset = 0;
  const char *violation = NULL;
  while (size - offset >= 3 && !c->is_closed && !violation) {
    size_t length = (size_t)number_at(bytes + offset, 3);
    /* The id is checked before the whole frame is there: a peer that is no streamd may send a large length. */
    if (size - offset >= 7 && length >= 6) violation = check_id(c, (uint32_t)number_at(bytes + offset + 3, 4));
    if (violation || (length > size - offset - 3 && length >= 6)) break;
    struct frame f;
    c->frame_at = c->received - size + offset;
    violation = frame_read(&f, bytes + offset + 3, length);
    if (!violation) violation = receive_frame(c, &f);
    if (!violation && !c->is_closed) {
      c->was_accepted = true;
      c->losses = 0;
    }
    offset += 3 + length;
  }
  descriptors_keep(c, c->received - size + offset);
  if (!violation) buffer_consume(&c->input, offset);
  return violation;
}

void protocol_send(sdm *c) {
  if (c->state != CONNECTED) return;
  uint64_t now = 0;
  c->is_due = c->has_values = false;
  for (struct request *r = c->requests; r; r = r->next) {
    if (r->phase == READY && r->retry_at) {
      if (!now) now = now_usec();
      if (r->retry_at > now) continue;
      r->retry_at = 0; /* also if it has no credit, and is not sent: the timer would not stop */
    }
    switch (r->kind) {
      case SUBSCRIPTION: subscription_grant((sdm_subscription *)r); break;
      case PUBLISHER: publisher_send((sdm_publisher *)r); break;
      case GET: if (r->phase == READY) get_send((struct get *)r); break;
      case COMMAND: if (r->phase == READY) command_send((sdm_command *)r); break;
      case MAP: if (r->phase == READY) map_send(mapped_of(r)); break;
      case DEMAND: demand_send(mapped_of(r)); break;
    }
  }
}

/* --- the end of a connection --- */

static bool can_resume(struct request *r) {
  if (r->kind == MAP || r->kind == DEMAND) return map_can_resume(mapped_of(r));
  if (r->phase == ENDED) return false;
  if (r->kind == SUBSCRIPTION) return subscription_can_resume((const sdm_subscription *)r);
  return r->kind == PUBLISHER && ((const sdm_publisher *)r)->name;
}

static void note_end(sdm *c, const char *reason) {
  if (reason == c->reason) return; /* of the daemon's ERROR */
  copy_sentence(c->reason, sizeof c->reason, (const uint8_t *)reason, strlen(reason));
  c->close_reason = 0;
}

static void end_with_connection(struct request *r, int code) {
  request_end(r, code, r->c->reason);
  r->reason = r->c->close_reason;
}

void protocol_over(sdm *c, int code, const char *reason) {
  note_end(c, reason);
  c->state = OVER;
  c->outcome = code;
  for (struct request *r = c->requests; r; r = r->next)
    if (r->phase != ENDED) end_with_connection(r, code);
}

void protocol_lost(sdm *c, const char *reason) {
  bool resumes = false;
  for (struct request *r = c->requests; r; r = r->next) resumes |= can_resume(r);
  if (!resumes) {
    protocol_over(c, -ECONNRESET, reason);
    return;
  }
  note_end(c, reason);
  for (struct request *r = c->requests; r; r = r->next) {
    if (r->phase == ENDED) continue;
    if (r->phase == OPEN && asks_upstream(r)) {
      end_with_connection(r, -ECONNRESET);
    } else if (r->kind == GET || r->kind == COMMAND) {
      request_closed(r);
      r->phase = READY;
    } else if (!can_resume(r)) {
      end_with_connection(r, -ECONNRESET);
    } else if (r->kind == SUBSCRIPTION) {
      subscription_resume((sdm_subscription *)r);
    } else if (r->kind == MAP || r->kind == DEMAND) {
      map_resume(mapped_of(r));
    } else {
      publisher_resume((sdm_publisher *)r);
    }
  }
}

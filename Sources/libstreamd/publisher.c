/* Publishers: a queue of values, and how they are confirmed: see WIRE.md, "Credit" and "Named publishers".
 *
 * A named publisher keeps its values until the daemon confirms their numbers, and sends them again after a loss. Its
 * first reply tells at which number the name continues.
 *
 * For an unnamed publisher only the end of a request confirms its values. sdm_flush() therefore ends the request, and the
 * next value begins another one. */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>

enum { QUEUE_VALUES = 4096, QUEUE_BYTES = 8 << 20 };

/* How long a name may be in use by another connection: after a loss it may be this publisher's former one, which the daemon
 * has not given up yet. */
#define FIRST_PATIENCE_USEC UINT64_C(2000000)

static size_t value_size(const sdm_publisher *p, size_t offset) {
  uint32_t size;
  memcpy(&size, buffer_content(&p->queue) + offset, sizeof size);
  return size;
}

/* Drops values at the head of the queue. */
static void drop(sdm_publisher *p, uint64_t count) {
  while (count-- && p->kept) {
    size_t bytes = sizeof(uint32_t) + value_size(p, 0);
    buffer_consume(&p->queue, bytes);
    p->kept--;
    if (p->unsent_offset >= bytes) p->unsent_offset -= bytes;
    else p->unsent_offset = 0;
  }
  if (p->unsent > p->kept) p->unsent = p->kept;
}

/* Counts the first unsent value as sent. */
static void did_send(sdm_publisher *p) {
  p->unsent_offset += sizeof(uint32_t) + value_size(p, p->unsent_offset);
  p->unsent--;
  if (!p->name) drop(p, 1);
}

/* The number of the first value in the queue. */
static uint64_t first_number(const sdm_publisher *p) { return p->queued - p->kept + 1; }

static void drop_confirmed(sdm_publisher *p, uint64_t number) {
  if (number > p->confirmed) p->confirmed = number;
  if (number >= first_number(p)) drop(p, number - first_number(p) + 1);
}

/* --- what the daemon sends --- */

/* The first reply on a connection: all values up to `stored` are in the stream, and the daemon takes `next` next. */
static const char *greet(sdm_publisher *p, uint64_t stored, uint64_t next) {
  if (stored >= next || next > UINT64_C(1) << 62) return "the numbers of a publisher are out of range";
  if (!p->was_greeted) {
    p->queued = next - 1 + p->kept;
  } else if (next < first_number(p)) {
    return "the daemon wants a value that it has confirmed";
  } else if (next > p->queued + 1) {
    request_end(&p->r, -ECANCELED, "another publisher has used the name meanwhile");
    return NULL;
  } else if (!stored && p->confirmed && p->uncertain) {
    request_end(&p->r, -ECANCELED, "the stream has discarded the name: values that were sent may be in it or not");
    return NULL;
  }
  for (uint64_t number = first_number(p); number < next; number++) did_send(p);
  p->has_reply = p->is_greeted = p->was_greeted = true;
  p->canceled_at = 0;
  p->uncertain = 0;
  drop_confirmed(p, stored);
  return NULL;
}

const char *publisher_payload(sdm_publisher *p, const uint8_t *data, size_t size) {
  if (!p->name) return NULL; /* no values are expected, and none were requested */
  if (!p->is_greeted) {
    if (size != 16) return "the first reply to a publisher has not 16 bytes";
    return greet(p, number_at(data, 8), number_at(data + 8, 8));
  }
  if (size != 8) return "a confirmation has not 8 bytes";
  uint64_t number = number_at(data, 8);
  if (number > p->queued - p->unsent) return "the daemon confirms a value that was not sent";
  drop_confirmed(p, number);
  return NULL;
}

const char *publisher_credit(sdm_publisher *p, uint32_t credit) {
  p->credit += credit;
  if (!p->name) p->has_reply = true;
  return NULL;
}

void publisher_complete(sdm_publisher *p) {
  if (!p->is_completing) {
    request_end(&p->r, -ECANCELED, "the daemon has ended the request before the last value");
    return;
  }
  request_closed(&p->r);
  p->r.phase = p->unsent ? READY : IDLE;
  p->has_reply = true;
  p->is_flushing = p->is_completing = false;
  p->confirmed = p->queued - p->unsent;
}

/* Whether a named publisher tries again. A former connection may have the name. */
static bool may_retry(sdm_publisher *p, int reason) {
  if (reason != SDM_REASON_NAME_IN_USE) return retry_of(reason) != NEVER;
  uint64_t now = now_usec();
  if (!p->canceled_at) p->canceled_at = now;
  return now - p->canceled_at < (p->was_greeted ? SDM_LIFETIME_USEC : FIRST_PATIENCE_USEC);
}

void publisher_error(sdm_publisher *p, const struct failure *f) {
  if (f->code == 0x203 && p->name && may_retry(p, f->reason)) {
    publisher_resume(p);
    p->r.retry_at = now_usec() + 100000;
  } else {
    request_fail(&p->r, f);
  }
}

/* Every value that was not confirmed is to be sent again. */
void publisher_resume(sdm_publisher *p) {
  request_closed(&p->r);
  p->r.phase = READY;
  uint32_t sent = p->kept - p->unsent;
  if (sent > p->uncertain) p->uncertain = sent;
  p->unsent = p->kept;
  p->unsent_offset = 0;
  p->credit = 0;
  p->is_greeted = false;
}

/* --- what is sent --- */

static void open_request(sdm_publisher *p) {
  sdm *c = p->r.c;
  if (!p->name && !p->unsent) return;
  if (!p->name && buffer_size(&c->output) >= OUTPUT_ROOM) {
    c->has_values = true;
    return;
  }
  uint32_t id = new_id(c);
  if (!id) {
    request_end(&p->r, -EDQUOT, "the connection has no request id left");
    return;
  }
  request_opened(&p->r, id);
  p->credit = 0;
  struct route route = {p->r.stream, p->name, p->was_greeted ? first_number(p) : 1};
  if (p->name) {
    frame_request(&c->output, id, FRAME_REQUEST_CHANNEL, CREDIT_UNLIMITED, &route, NULL, 0);
  } else {
    const uint8_t *value = buffer_content(&p->queue) + p->unsent_offset;
    frame_request(&c->output, id, FRAME_REQUEST_CHANNEL, 1, &route, value + sizeof(uint32_t), value_size(p, p->unsent_offset));
    did_send(p);
  }
}

void publisher_send(sdm_publisher *p) {
  sdm *c = p->r.c;
  if (p->r.phase == READY) open_request(p);
  if (p->r.phase != OPEN || (p->name && !p->is_greeted) || p->is_completing) return;
  while (p->unsent && p->credit && buffer_size(&c->output) < OUTPUT_ROOM) {
    const uint8_t *value = buffer_content(&p->queue) + p->unsent_offset;
    frame_value(&c->output, p->r.id, value + sizeof(uint32_t), value_size(p, p->unsent_offset));
    did_send(p);
    p->credit--;
  }
  if (p->unsent && p->credit) c->has_values = true;
  if (!p->is_flushing || p->unsent) return;
  frame_plain(&c->output, p->r.id, FRAME_PAYLOAD, FLAG_COMPLETE);
  p->is_completing = true;
}

void publisher_leave(sdm_publisher *p) {
  if (p->is_completing) return;
  bool is_done = !p->unsent && (!p->name || p->is_greeted);
  if (is_done) frame_plain(&p->r.c->output, p->r.id, FRAME_PAYLOAD, FLAG_COMPLETE);
  else frame_plain(&p->r.c->output, p->r.id, FRAME_CANCEL, 0);
}

/* --- the interface --- */

SDM_PUBLIC int sdm_publisher_new(sdm *c, sdm_publisher **ret, const char *stream, const char *name) {
  if (!c) return -EINVAL;
  if (!ret || !stream || !is_valid_name(stream, NAME_LIMIT)) return fail(c, -EINVAL, "a stream's name has 1 to 255 bytes");
  if (name && !is_valid_name(name, 48)) return fail(c, -EINVAL, "a publisher's name has 1 to 48 bytes");
  if (c->state == OVER) return fail_over(c, -EBADF, "the connection has ended: %s");
  sdm_publisher *p = calloc(1, sizeof *p);
  char *copy = name ? strdup(name) : NULL;
  int result = !p || (name && !copy) ? fail(c, -ENOMEM, "no memory is left") : request_init(&p->r, c, PUBLISHER, stream);
  if (result < 0) {
    free(copy);
    free(p);
    return result;
  }
  p->name = copy;
  if (name) p->r.phase = READY;
  c->is_due = true;
  protocol_send(c);
  connection_flush(c);
  *ret = p;
  return 0;
}

static int fail_ended(sdm_publisher *p) {
  fail(p->r.c, -EBADF, "the publisher has ended: %s", p->r.sentence ? p->r.sentence : "");
  p->r.c->error_reason = p->r.reason;
  return -EBADF;
}

SDM_PUBLIC int sdm_publish(sdm_publisher *p, const void *data, size_t size) {
  if (!p) return -EINVAL;
  sdm *c = p->r.c;
  if (!data && size) return fail(c, -EINVAL, "a value of %zu bytes has no data", size);
  if (p->r.phase == ENDED) return fail_ended(p);
  if (size > VALUE_LIMIT) return fail(c, -EMSGSIZE, "a value of %zu bytes is larger than any request may be", size);
  if (p->kept >= QUEUE_VALUES || (p->kept && buffer_size(&p->queue) + size > QUEUE_BYTES))
    return fail(c, -EAGAIN, "the queue of values is full");
  uint32_t length = (uint32_t)size;
  if (!buffer_reserve(&p->queue, sizeof length + size)) {
    p->queue.failed = false;
    return fail(c, -ENOMEM, "no memory is left");
  }
  buffer_append(&p->queue, &length, sizeof length);
  buffer_append(&p->queue, data, size);
  p->kept++;
  p->unsent++;
  p->queued++;
  if (p->r.phase == IDLE) p->r.phase = READY;
  if (c->state == CONNECTED) {
    if (p->r.phase == OPEN || !p->r.retry_at) publisher_send(p);
    connection_flush(c);
  }
  return 0;
}

static bool is_flushed(const sdm_publisher *p) {
  if (p->name) return p->is_greeted && !p->kept;
  return !p->unsent && p->confirmed == p->queued;
}

static int flush(sdm_publisher *p, uint64_t usec) {
  sdm *c = p->r.c;
  uint64_t until = deadline(usec);
  while (p->r.phase != ENDED && !is_flushed(p)) {
    if (!p->name) p->is_flushing = true;
    c->is_due = true;
    connection_work(c);
    if (p->r.phase == ENDED || is_flushed(p)) break;
    int result = connection_wait(c, until);
    if (result < 0) return result;
  }
  return p->r.phase == ENDED ? outcome_of(&p->r) : 0;
}

SDM_PUBLIC int sdm_flush(sdm_publisher *p, uint64_t usec) {
  if (!p) return -EINVAL;
  int result = flush(p, usec);
  connection_waited(p->r.c);
  return result;
}

SDM_PUBLIC int sdm_confirmed(sdm_publisher *p, uint64_t *number) {
  if (!p) return -EINVAL;
  if (!number) return fail(p->r.c, -EINVAL, "sdm_confirmed() needs a place for the number");
  if (!p->has_reply) {
    if (p->r.phase == ENDED) return fail_ended(p);
    return fail(p->r.c, -EAGAIN, "the daemon has not replied yet");
  }
  *number = p->confirmed;
  return 0;
}

void publisher_free(sdm_publisher *p) {
  buffer_clear(&p->queue);
  free(p->name);
}

SDM_PUBLIC sdm_publisher *sdm_publisher_ref(sdm_publisher *p) {
  if (p) p->r.references++;
  return p;
}

SDM_PUBLIC sdm_publisher *sdm_publisher_unref(sdm_publisher *p) {
  if (p && --p->r.references == 0) request_release(&p->r);
  return NULL;
}

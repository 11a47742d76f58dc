/* Commands: REQUEST_RESPONSEs to `$control`, which make and end streams of templates, and requests for an upstream. */
#include "internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

/* {"VERB":"NAME"}; each byte of the name has six at most. */
static char *command_json(const char *verb, const char *name) {
  char *json = malloc(strlen(verb) + 6 * strlen(name) + sizeof "{\"\":\"\"}");
  if (!json) return NULL;
  char *end = json + sprintf(json, "{\"%s\":\"", verb);
  for (const char *p = name; *p; p++) {
    if ((unsigned char)*p < 0x20) {
      end += sprintf(end, "\\u%04x", (unsigned)*p);
      continue;
    }
    if (*p == '"' || *p == '\\') *end++ = '\\';
    *end++ = *p;
  }
  strcpy(end, "\"}");
  return json;
}

void command_send(sdm_command *k) {
  uint32_t id = new_id(k->r.c);
  if (!id) {
    request_end(&k->r, -EDQUOT, "the connection has no request id left");
    return;
  }
  k->repeats = k->was_sent;
  k->was_sent = true;
  request_opened(&k->r, id);
  frame_request(&k->r.c->output, id, FRAME_REQUEST_RESPONSE, 0, &(struct route){.stream = k->r.stream}, k->data, k->size);
}

void command_reply(sdm_command *k, const uint8_t *data, size_t size) {
  if (k->asks && size < sizeof k->answer) memcpy(k->answer, data, size);
  command_complete(k);
}

void command_complete(sdm_command *k) {
  k->is_done = true;
  request_end(&k->r, -ENODATA, "the command has taken effect");
}

/* A loss hides whether the first request has ended the stream. */
bool command_is_done_by(const sdm_command *k, const struct failure *f) {
  return k->repeats && k->is_forget && f->reason == SDM_REASON_NO_STREAM;
}

static int check(sdm *c, sdm_command **ret, const char *stream) {
  if (!c) return -EINVAL;
  if (!ret || !stream || !is_valid_name(stream, NAME_LIMIT)) return fail(c, -EINVAL, "a stream's name has 1 to 255 bytes");
  return c->state == OVER ? fail_over(c, -EBADF, "the connection has ended: %s") : 0;
}

/* data: freed with the command. */
static int command_begin(sdm *c, sdm_command **ret, const char *route, void *data, size_t size, bool is_forget, bool asks) {
  sdm_command *k = calloc(1, sizeof *k);
  int result = !k || !data ? fail(c, -ENOMEM, "no memory is left") : request_init(&k->r, c, COMMAND, route);
  if (result < 0) {
    free(data);
    free(k);
    return result;
  }
  k->data = data;
  k->size = size;
  k->is_forget = is_forget;
  k->asks = asks;
  k->r.phase = READY;
  c->is_due = true;
  protocol_send(c);
  connection_flush(c);
  *ret = k;
  return 0;
}

static int command_new(sdm *c, sdm_command **ret, bool is_forget, const char *stream) {
  int result = check(c, ret, stream);
  if (result < 0) return result;
  char *json = command_json(is_forget ? "forget" : "make", stream);
  return command_begin(c, ret, "$control", json, json ? strlen(json) : 0, is_forget, false);
}

SDM_PUBLIC int sdm_request_stream(sdm *c, sdm_command **ret, const char *stream, const void *data, size_t size) {
  int result = check(c, ret, stream);
  if (result < 0) return result;
  if (!data || !size) return fail(c, -EINVAL, "a request for an upstream is not empty");
  void *copy = malloc(size);
  if (copy) memcpy(copy, data, size);
  return command_begin(c, ret, stream, copy, size, false, true);
}

SDM_PUBLIC const char *sdm_command_stream(sdm_command *k) { return k && k->is_done && k->answer[0] ? k->answer : NULL; }

SDM_PUBLIC int sdm_make(sdm *c, sdm_command **ret, const char *stream) { return command_new(c, ret, false, stream); }

SDM_PUBLIC int sdm_forget(sdm *c, sdm_command **ret, const char *stream) { return command_new(c, ret, true, stream); }

static int command_wait(sdm_command *k, uint64_t until) {
  sdm *c = k->r.c;
  while (k->r.phase != ENDED) {
    connection_work(c);
    if (k->r.phase == ENDED) break;
    int result = connection_poll(c, until);
    /* Also if something has arrived: see connection_wait(). */
    if (result > 0 && until <= now_usec()) result = 0;
    if (result == 0) return 0;
    if (result < 0) return fail(c, result, "%s", strerror(-result));
  }
  return k->is_done ? 1 : outcome_of(&k->r);
}

SDM_PUBLIC int sdm_command_wait(sdm_command *k, uint64_t usec) {
  if (!k) return -EINVAL;
  int result = command_wait(k, deadline(usec));
  connection_waited(k->r.c);
  return result;
}

SDM_PUBLIC sdm_command *sdm_command_ref(sdm_command *k) {
  if (k) k->r.references++;
  return k;
}

SDM_PUBLIC sdm_command *sdm_command_unref(sdm_command *k) {
  if (k && --k->r.references == 0) request_release(&k->r);
  return NULL;
}

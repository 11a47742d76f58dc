/* sdm_get(): one REQUEST_RESPONSE, and the wait for its reply. */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

const char *get_payload(struct get *g, const uint8_t *metadata, size_t metadata_size, const uint8_t *data, size_t size) {
  if (metadata_size != 16) return "the metadata of a reply has not 16 bytes";
  g->id = number_at(metadata, 8);
  g->time = number_at(metadata + 8, 8);
  buffer_clear(&g->data);
  buffer_append(&g->data, data, size);
  g->is_done = true;
  request_end(&g->r, g->data.failed ? -ENOMEM : -ENODATA, "no memory is left");
  return NULL;
}

void get_send(struct get *g) {
  uint32_t id = new_id(g->r.c);
  if (!id) {
    request_end(&g->r, -EDQUOT, "the connection has no request id left");
    return;
  }
  request_opened(&g->r, id);
  frame_request(&g->r.c->output, id, FRAME_REQUEST_RESPONSE, 0, &(struct route){.stream = g->r.stream}, NULL, 0);
}

/* The reply that sdm_get() returned before. */
static void forget(sdm *c) {
  struct get *g = c->get;
  c->get = NULL;
  if (g) request_release(&g->r);
}

SDM_PUBLIC int sdm_get(sdm *c, const char *stream, sdm_event *e) {
  if (!c) return -EINVAL;
  if (!stream || !e || !is_valid_name(stream, NAME_LIMIT)) return fail(c, -EINVAL, "a stream's name has 1 to 255 bytes");
  if (c->state == OVER) return fail_over(c, -EBADF, "the connection has ended: %s");
  forget(c);
  struct get *g = calloc(1, sizeof *g);
  if (!g) return fail(c, -ENOMEM, "no memory is left");
  int result = request_init(&g->r, c, GET, stream);
  if (result < 0) {
    free(g);
    return result;
  }
  c->get = g;
  g->r.phase = READY;
  uint64_t until = deadline(c->timeout);
  while (g->r.phase != ENDED && result >= 0) {
    connection_work(c);
    if (g->r.phase != ENDED) result = connection_wait(c, until);
  }
  connection_waited(c);
  if (result >= 0 && !g->is_done) {
    result = outcome_of(&g->r);
    if (result == -ENODATA) result = fail(c, -ENODATA, "the stream has ended without an event");
  }
  if (result < 0 || g->data.failed) {
    forget(c);
    return result < 0 ? result : fail(c, -ENOMEM, "no memory is left");
  }
  *e = (sdm_event){.id = g->id, .time = g->time, .data = "", .size = buffer_size(&g->data)};
  if (e->size) e->data = buffer_content(&g->data);
  return 0;
}

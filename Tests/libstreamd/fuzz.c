/* Feeds bytes of a daemon to the protocol, without a socket. The first byte is the size of a read, or 0: all at once. A loss begins a
 * new connection, whose requests have the ids of the first one. */
#include "internal.h"

#include <stdio.h>
#include <stdlib.h>

#define HOLDS(condition) \
  do { \
    if (!(condition)) abort(); \
  } while (0)

enum { SUBSCRIPTIONS = 4 };
static const uint32_t windows[SUBSCRIPTIONS] = {7, 100, 0, 3};

struct world {
  sdm *c;
  sdm_subscription *subscriptions[SUBSCRIPTIONS];
  sdm_publisher *named, *unnamed;
  sdm_command *command;
};

/* A connection that connection.c believes to be made; what it sends goes nowhere. */
static sdm *new_connection(void) {
  sdm *c = calloc(1, sizeof *c);
  HOLDS(c);
  c->references = 1;
  c->process = -1; /* released as by a child: nothing is sent */
  c->socket = c->epoll = c->timer = -1;
  c->state = CONNECTED;
  c->next_id = 1;
  return c;
}

static void subscribe(struct world *w, int index, const sdm_options *o) {
  HOLDS(sdm_subscribe(w->c, &w->subscriptions[index], "quotes", o) == 0);
  if (!o->window) HOLDS(sdm_request(w->subscriptions[index], SDM_UNLIMITED) == 0);
}

static void make(struct world *w) {
  w->c = new_connection();
  sdm_options o = SDM_OPTIONS_INIT;
  o.window = windows[0];
  subscribe(w, 0, &o); /* 1 */
  o.where = "{\"/a\":1}";
  o.window = windows[1];
  subscribe(w, 1, &o); /* 3 */
  o.where = NULL;
  o.from = SDM_FROM_STATE;
  o.window = windows[2];
  subscribe(w, 2, &o); /* 5 */
  o = (sdm_options)SDM_OPTIONS_INIT;
  o.marker = true;
  o.reconnect = false;
  o.window = windows[3];
  subscribe(w, 3, &o);                                                  /* 7 */
  HOLDS(sdm_publisher_new(w->c, &w->named, "notes", "name") == 0);     /* 9 */
  HOLDS(sdm_publisher_new(w->c, &w->unnamed, "notes", NULL) == 0);     /* 11 */
  for (int i = 0; i < 5; i++) {
    HOLDS(sdm_publish(w->named, "value", 5) == 0);
    HOLDS(sdm_publish(w->unnamed, "value", 5) == 0);
  }
  w->unnamed->is_flushing = true;
  struct get *g = calloc(1, sizeof *g); /* 13 */
  HOLDS(g && request_init(&g->r, w->c, GET, "quotes") == 0);
  g->r.phase = READY;
  w->c->get = g;
  HOLDS(sdm_forget(w->c, &w->command, "quotes") == 0); /* 15 */
  protocol_send(w->c);
}

static void take_events(struct world *w) {
  uint64_t bytes = 0;
  for (int i = 0; i < SUBSCRIPTIONS; i++) {
    sdm_event events[5];
    sdm_subscription *s = w->subscriptions[i];
    int count = sdm_next_batch(s, events, 5);
    for (int k = 0; k < count; k++) {
      volatile uint8_t last = 0;
      HOLDS(events[k].data && events[k].kind <= SDM_MARKER);
      if (events[k].size) last = ((const uint8_t *)events[k].data)[events[k].size - 1];
      (void)last;
    }
    if (count < 0) HOLDS(s->r.phase == ENDED && sdm_error(w->c)[0]);
    if (windows[i]) HOLDS(s->open + s->demand + s->untaken + s->renewable <= windows[i] || s->r.phase == ENDED);
    bytes += s->untaken_bytes;
  }
  HOLDS(bytes == w->c->untaken_bytes);
  HOLDS(w->named->unsent <= w->named->kept && w->named->kept <= 5);
}

/* What connection.c does after a read. Returns whether the connection goes on. */
static bool handle(sdm *c) {
  const char *violation = protocol_receive(c);
  if (violation) {
    protocol_over(c, -71, violation);
  } else if (c->is_closed) {
    if (c->close_code) protocol_over(c, c->close_code, c->reason);
    else protocol_lost(c, c->reason);
    c->is_closed = false;
    c->next_id = 1;
    buffer_clear(&c->input);
  }
  protocol_send(c);
  buffer_clear(&c->output);
  return c->state != OVER;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (!size) return 0;
  struct world w = {0};
  make(&w);
  size_t step = data[0] ? data[0] : size;
  for (size_t at = 1; at < size; at += step) {
    buffer_append(&w.c->input, data + at, size - at < step ? size - at : step);
    if (!handle(w.c)) break;
    take_events(&w);
  }
  take_events(&w);
  uint64_t number;
  sdm_confirmed(w.named, &number);
  sdm_confirmed(w.unnamed, &number);
  for (int i = 0; i < SUBSCRIPTIONS; i++) sdm_subscription_unref(w.subscriptions[i]);
  sdm_publisher_unref(w.named);
  sdm_publisher_unref(w.unnamed);
  sdm_command_unref(w.command);
  sdm_unref(w.c);
  return 0;
}

/* client CHECK ADDRESS [ADDRESS OF TCP]: one check of libstreamd against a daemon, whose streams `run` configures. Prints a line for
 * what the script has to do (kill, stop, start, cut), and continues when it reads one. */
#include "client.h"

const char *address, *tcp_address;

sdm *connected(void) {
  sdm *c = NULL;
  EQUAL(sdm_connect(&c, address), 0);
  return c;
}

void ask(const char *wish) {
  char reply[16];
  printf("%s\n", wish);
  fflush(stdout);
  CHECK(fgets(reply, sizeof reply, stdin));
}

void publish(const char *stream, int count, const char *format) {
  sdm *c = connected();
  sdm_publisher *p;
  EQUAL(sdm_publisher_new(c, &p, stream, NULL), 0);
  for (int i = 1; i <= count; i++) {
    char text[64];
    int size = snprintf(text, sizeof text, format, i);
    int result;
    while ((result = sdm_publish(p, text, (size_t)size)) == -EAGAIN) EQUAL(sdm_flush(p, PATIENCE), 0);
    EQUAL(result, 0);
  }
  EQUAL(sdm_flush(p, PATIENCE), 0);
  uint64_t number = 0;
  EQUAL(sdm_confirmed(p, &number), 0);
  EQUAL(number, count);
  sdm_publisher_unref(p);
  sdm_unref(c);
}

sdm_subscription *subscribed(sdm *c, const char *stream, sdm_options o) {
  sdm_subscription *s = NULL;
  EQUAL(sdm_subscribe(c, &s, stream, &o), 0);
  return s;
}

sdm_options from(sdm_from start, uint64_t since, uint32_t window) {
  sdm_options o = SDM_OPTIONS_INIT;
  o.from = start;
  o.since = since;
  o.window = window;
  return o;
}

void expect_run(sdm *c, sdm_subscription *s, const char *format, int first, int last) {
  for (int i = first; i <= last; i++) {
    sdm_event e;
    char text[64];
    snprintf(text, sizeof text, format, i);
    EQUAL(next_of(c, s, &e), 1);
    CHECK(is_text(&e, text));
    EQUAL(e.gap, 0);
    EQUAL(e.kind, SDM_EVENT);
  }
}

/* Those that take longest are first: the script begins them in this order, some at a time. */
static const struct { const char *name; void (*run)(void); } checks[] = {
    {"publish_over_kills", publish_over_kills}, {"bounded", bounded}, {"waits", waits}, {"resume_over_kill", resume_over_kill},
    {"resume_over_stop", resume_over_stop}, {"resume_over_loss", resume_over_loss}, {"gap_over_loss", gap_over_loss},
    {"state", state}, {"pattern", pattern}, {"filters", filters}, {"poll_loop", poll_loop}, {"starts", starts}, {"credit", credit}, {"batches", batches},
    {"gaps", gaps}, {"markers", markers}, {"end_of_stream", end_of_stream}, {"refusals", refusals}, {"arguments", arguments},
    {"lost_without_reconnect", lost_without_reconnect}, {"publish_unnamed", publish_unnamed}, {"tcp", tcp}, {"token", token}, {"forks", forks},
    {"lifetime", lifetime},
};

int main(int count, char **words) {
  if (count < 4) { /* the names of the checks */
    for (size_t i = 0; i < sizeof checks / sizeof checks[0]; i++) puts(checks[i].name);
    return 0;
  }
  address = words[2];
  tcp_address = words[3];
  for (size_t i = 0; i < sizeof checks / sizeof checks[0]; i++) {
    if (strcmp(checks[i].name, words[1]) != 0) continue;
    checks[i].run();
    return 0;
  }
  return 64;
}

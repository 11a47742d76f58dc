/* driver.c: the C library as README.md beside this file describes a driver. */
#include "streamd.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST_WORDS = 16, MOST_HANDLES = 64 };

typedef struct word {
  const char *key;
  char *value; /* decoded, and ends with a zero byte besides */
  size_t size;
} word;

/* What a handle stands for: one member besides `connection` is set, or none. */
typedef struct handle {
  sdm *connection; /* its own, or that of the others */
  sdm_subscription *subscription;
  sdm_publisher *publisher;
  sdm_mapped *mapped; /* has the number of a subscription */
} handle;

static word words[MOST_WORDS];
static size_t word_count;
static handle handles[MOST_HANDLES];

static const word *find(const char *key) {
  for (size_t index = 0; index < word_count; index++)
    if (strcmp(words[index].key, key) == 0) return &words[index];
  return NULL;
}

static const char *text(const char *key, const char *otherwise) {
  const word *found = find(key);
  return found ? found->value : otherwise;
}

static uint64_t number(const char *key) { return strtoull(text(key, "0"), NULL, 10); }

static handle *handle_of(const char *key) { return &handles[number(key) % MOST_HANDLES]; }

static size_t decode(char *value) {
  size_t size = 0;
  for (const char *next = value; *next; next++) {
    if (*next == '%' && isxdigit((unsigned char)next[1]) && isxdigit((unsigned char)next[2])) {
      char digits[] = {next[1], next[2], 0};
      value[size++] = (char)strtoul(digits, NULL, 16);
      next += 2;
    } else {
      value[size++] = *next;
    }
  }
  value[size] = 0;
  return size;
}

/* Splits a line into its verb, which it returns, and its words. */
static const char *parse(char *line) {
  char *rest = NULL, *verb = strtok_r(line, " \n", &rest);
  word_count = 0;
  for (char *next; word_count < MOST_WORDS && (next = strtok_r(NULL, " \n", &rest));) {
    char *equals = strchr(next, '=');
    if (!equals) continue;
    *equals = 0;
    words[word_count] = (word){.key = next, .value = equals + 1, .size = decode(equals + 1)};
    word_count++;
  }
  return verb ? verb : "";
}

static void print_encoded(const void *data, size_t size) {
  for (const unsigned char *next = data, *end = next + size; next < end; next++) {
    if (isalnum(*next)) putchar(*next);
    else printf("%%%02X", *next);
  }
}

static const char *kind_of(int error) {
  switch (-error) {
  case ENODATA: return "complete";
  case ENOENT: return "not-found";
  case EACCES: return "access-denied";
  case ENOBUFS: return "lagged";
  case EINVAL:
  case EMSGSIZE: return "invalid";
  case EOPNOTSUPP: return "not-supported";
  case EDQUOT: return "limit";
  case ECANCELED: return "canceled";
  case EIO: return "source-failed";
  case ECONNRESET:
  case ECONNREFUSED: return "connection-lost";
  case EPROTO: return "protocol";
  default: return "other";
  }
}

static void print_failure(const char *verb, const char *kind, int reason, const char *sentence) {
  printf("%s kind=%s", verb, kind);
  if (reason) printf(" reason=%d", reason);
  printf(" sentence=");
  print_encoded(sentence, strlen(sentence));
  putchar('\n');
}

static void print_result(int result, const sdm *connection) {
  if (result >= 0) puts("ok");
  else if (result == -ETIMEDOUT || result == -EAGAIN) puts("nothing");
  else print_failure("error", kind_of(result), sdm_reason(connection), sdm_error(connection));
}

static void print_event(const sdm_event *e) {
  printf("%s id=%" PRIu64 " time=%" PRIu64 " left_out=%" PRIu64, e->kind == SDM_MARKER ? "marker" : "event", e->id, e->time, e->left_out);
  if (e->gap == SDM_GAP_UNKNOWN) printf(" gap=unknown");
  else printf(" gap=%" PRIu64, e->gap);
  if (e->kind == SDM_EVENT) {
    printf(" data=");
    print_encoded(e->data, e->size);
  }
  putchar('\n');
}

static uint64_t now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (uint64_t)time.tv_sec * 1000000 + (uint64_t)time.tv_nsec / 1000;
}

static void connect_to(void) {
  int result = sdm_connect_with_token(&handle_of("connection")->connection, text("address", NULL), text("token", NULL));
  if (result < 0) print_failure("error", result == -EINVAL ? "invalid" : "connection-lost", 0, strerror(-result));
  else puts("ok");
}

static sdm_from start_of(const char *from) {
  static const char *const names[] = {"replay", "latest", "new", "state", "id", "time", "ago", "last"};
  for (size_t index = 0; index < sizeof names / sizeof *names; index++)
    if (strcmp(from, names[index]) == 0) return (sdm_from)index;
  return (sdm_from)-1;
}

static sdm_on_lag policy_of(const char *policy) {
  static const char *const names[] = {"", "skip", "latest", "fail"};
  for (size_t index = 0; index < sizeof names / sizeof *names; index++)
    if (strcmp(policy, names[index]) == 0) return (sdm_on_lag)index;
  return (sdm_on_lag)-1;
}

static void subscribe(void) {
  handle *h = handle_of("subscription");
  sdm_options o = SDM_OPTIONS_INIT;
  o.from = start_of(text("from", "replay"));
  o.since = number("since");
  o.on_lag = policy_of(text("on_lag", ""));
  o.where = text("where", NULL);
  o.marker = find("marker") != NULL;
  o.reconnect = find("reconnect") != NULL;
  o.window = (uint32_t)number("window");
  h->connection = sdm_ref(handle_of("connection")->connection);
  print_result(sdm_subscribe(h->connection, &h->subscription, text("stream", ""), &o), h->connection);
}

static void map(void) {
  handle *h = handle_of("subscription");
  sdm_options o = SDM_OPTIONS_INIT;
  o.from = start_of(text("from", "replay"));
  o.since = number("since");
  o.on_lag = policy_of(text("on_lag", ""));
  o.reconnect = find("reconnect") != NULL;
  h->connection = sdm_ref(handle_of("connection")->connection);
  print_result(sdm_map(h->connection, &h->mapped, text("stream", ""), &o), h->connection);
}

static void request(void) {
  handle *h = handle_of("subscription");
  bool is_unlimited = strcmp(text("count", ""), "unlimited") == 0;
  int result = sdm_request(h->subscription, is_unlimited ? SDM_UNLIMITED : (uint32_t)number("count"));
  if (result == 0) sdm_process(h->connection); /* sends it now */
  print_result(result, h->connection);
}

static void next(void) {
  handle *h = handle_of("subscription");
  uint64_t end = now() + number("wait") * 1000;
  sdm_event e;
  int result;
  while ((result = h->mapped ? sdm_mapped_next(h->mapped, &e) : sdm_next(h->subscription, &e)) == 0) {
    uint64_t time = now(), left = time < end ? end - time : 0;
    if ((h->mapped ? sdm_mapped_wait(h->mapped, left) : sdm_wait(h->connection, left)) == 0) break;
    if (!h->mapped) sdm_process(h->connection);
  }
  if (result == 1) print_event(&e);
  else if (result == 0) puts("nothing");
  else print_failure("end", kind_of(result), sdm_reason(h->connection), sdm_error(h->connection));
}

static void get(void) {
  sdm *connection = handle_of("connection")->connection;
  sdm_event e;
  sdm_set_timeout(connection, number("wait") * 1000);
  int result = sdm_get(connection, text("stream", ""), &e);
  if (result == 0) print_event(&e);
  else print_result(result, connection);
}

static void command(int (*give)(sdm *, sdm_command **, const char *)) {
  sdm *connection = handle_of("connection")->connection;
  sdm_command *k = NULL;
  int result = give(connection, &k, text("stream", ""));
  if (result == 0 && sdm_command_wait(k, number("wait") * 1000) == 0) puts("nothing");
  else print_result(result == 0 ? sdm_command_wait(k, 0) : result, connection);
  sdm_command_unref(k);
}

static void ask(void) {
  sdm *connection = handle_of("connection")->connection;
  sdm_command *k = NULL;
  const word *data = find("data");
  int result = sdm_request_stream(connection, &k, text("stream", ""), data ? data->value : "", data ? data->size : 0);
  if (result == 0) result = sdm_command_wait(k, number("wait") * 1000);
  const char *name = result == 1 ? sdm_command_stream(k) : NULL;
  if (name) {
    printf("made data=");
    print_encoded(name, strlen(name));
    puts("");
  } else if (result == 0) {
    puts("nothing");
  } else {
    print_result(result, connection);
  }
  sdm_command_unref(k);
}

static void make(void) { command(sdm_make); }

static void forget(void) { command(sdm_forget); }

static void make_publisher(void) {
  handle *h = handle_of("publisher");
  h->connection = sdm_ref(handle_of("connection")->connection);
  print_result(sdm_publisher_new(h->connection, &h->publisher, text("stream", ""), text("name", NULL)), h->connection);
}

static void publish(void) {
  handle *h = handle_of("publisher");
  const word *data = find("data");
  int result;
  while ((result = sdm_publish(h->publisher, data ? data->value : "", data ? data->size : 0)) == -EAGAIN) {
    sdm_wait(h->connection, UINT64_MAX);
    sdm_process(h->connection);
  }
  print_result(result, h->connection);
}

static void finish(void) {
  handle *h = handle_of("publisher");
  print_result(sdm_flush(h->publisher, number("wait") * 1000), h->connection);
}

static void confirmed(void) {
  handle *h = handle_of("publisher");
  uint64_t value;
  int result = sdm_confirmed(h->publisher, &value);
  if (result == 0) printf("number number=%" PRIu64 "\n", value);
  else print_result(result, h->connection);
}

static void close_handle(void) {
  handle *h = handle_of(find("subscription") ? "subscription" : find("publisher") ? "publisher" : "connection");
  sdm_subscription_unref(h->subscription);
  sdm_publisher_unref(h->publisher);
  sdm_mapped_unref(h->mapped);
  if (h->subscription || h->publisher || h->mapped) sdm_process(h->connection); /* sends the cancellation now */
  sdm_unref(h->connection);
  *h = (handle){0};
  puts("ok");
}

int main(void) {
  static const struct {
    const char *verb;
    void (*run)(void);
  } commands[] = {
    {"connect", connect_to}, {"subscribe", subscribe}, {"map", map}, {"request", request}, {"next", next}, {"get", get}, {"publisher", make_publisher},
    {"publish", publish}, {"finish", finish}, {"confirmed", confirmed}, {"make", make}, {"forget", forget}, {"ask", ask}, {"close", close_handle},
  };
  char *line = NULL;
  size_t room = 0;
  puts("conformance 1 request last confirmed keepalive map token reasons commands answers");
  fflush(stdout);
  while (getline(&line, &room, stdin) > 0) {
    const char *verb = parse(line);
    if (strcmp(verb, "quit") == 0) break;
    size_t index = 0, count = sizeof commands / sizeof *commands;
    while (index < count && strcmp(verb, commands[index].verb) != 0) index++;
    if (index < count) commands[index].run();
    else print_failure("error", "other", 0, "unknown command");
    fflush(stdout);
  }
  for (size_t index = 0; index < MOST_HANDLES; index++) {
    sdm_subscription_unref(handles[index].subscription);
    sdm_publisher_unref(handles[index].publisher);
    sdm_mapped_unref(handles[index].mapped);
    sdm_unref(handles[index].connection);
  }
  free(line);
  puts("ok");
}

/* Commands: what is sent, their results, and what a loss of the connection does to them. */
#include "peer.h"

#include <unistd.h>

#define CODE(code, reason) ((uint32_t)(code) << 16 | (uint32_t)(reason))

/* The next command that was sent has this text, behind the name of its route. */
static uint32_t sent_command(struct peer *p, const char *json) {
  const uint8_t *content;
  size_t size, route = 3 + 4 + 1 + strlen("$control");
  struct frame f = sent(p, FRAME_REQUEST_RESPONSE, &content, &size);
  CHECK(size == route + strlen(json));
  CHECK(memcmp(content + route - strlen("$control"), "$control", strlen("$control")) == 0);
  CHECK(memcmp(content + route, json, strlen(json)) == 0);
  return f.id;
}

static void put_effect(struct peer *p, uint32_t id) {
  struct buffer out = {0};
  put_frame(&out, id, FRAME_PAYLOAD, FLAG_NEXT | FLAG_COMPLETE, "", 0);
  put(p, &out);
}

void command_results(void) {
  struct peer p = connected();
  sdm_command *make, *forget, *refused;
  EQUAL(sdm_make(p.c, &make, "weather/oslo"), 0);
  EQUAL(sdm_forget(p.c, &forget, "a\"\\\n"), 0);
  EQUAL(sdm_make(p.c, &refused, "full"), 0);
  uint32_t first = sent_command(&p, "{\"make\":\"weather/oslo\"}"), second = sent_command(&p, "{\"forget\":\"a\\\"\\\\\\u000a\"}");
  uint32_t third = sent_command(&p, "{\"make\":\"full\"}");
  EQUAL(sdm_command_wait(make, 0), 0);
  put_effect(&p, second);
  EQUAL(sdm_command_wait(make, 0), 0);
  EQUAL(sdm_command_wait(forget, PATIENCE), 1);
  put_error(&p, third, CODE(0x202, SDM_REASON_TOO_MANY_STREAMS), "all are in use");
  put_effect(&p, first);
  for (int i = 0; i < 2; i++) {
    EQUAL(sdm_command_wait(make, 0), 1);
    EQUAL(sdm_command_wait(refused, PATIENCE), -EDQUOT);
    SAYS(p.c, "all are in use");
    EQUAL(sdm_reason(p.c), SDM_REASON_TOO_MANY_STREAMS);
  }
  CHECK(sdm_command_ref(make) == make);
  sdm_command_unref(make);
  EQUAL(sdm_command_wait(make, 0), 1);
  sdm_command_unref(make);
  sdm_command_unref(forget);
  sdm_command_unref(refused);
  CHECK(sdm_command_unref(NULL) == NULL);
  put_away(&p);
}

void command_arguments(void) {
  struct peer p = connected();
  sdm_command *k = NULL;
  char name[257];
  memset(name, 'n', 256);
  name[256] = 0;
  EQUAL(sdm_make(NULL, &k, "s"), -EINVAL);
  EQUAL(sdm_make(p.c, NULL, "s"), -EINVAL);
  EQUAL(sdm_make(p.c, &k, NULL), -EINVAL);
  EQUAL(sdm_make(p.c, &k, ""), -EINVAL);
  EQUAL(sdm_forget(p.c, &k, name), -EINVAL);
  SAYS(p.c, "a stream's name has 1 to 255 bytes");
  EQUAL(sdm_command_wait(NULL, 0), -EINVAL);
  name[255] = 0;
  memset(name, 1, 255);
  EQUAL(sdm_forget(p.c, &k, name), 0); /* each byte is six of JSON */
  CHECK(k->data && k->size == strlen("{\"forget\":\"\"}") + 6 * 255);
  sdm_command_unref(k);
  put_away(&p);
}

/* One that is given up is cancelled. The daemon may have carried it out, and its late reply is ignored. */
void command_given_up(void) {
  struct peer p = connected();
  sdm_command *k;
  const uint8_t *content;
  size_t size;
  EQUAL(sdm_make(p.c, &k, "s"), 0);
  uint32_t id = sent_command(&p, "{\"make\":\"s\"}");
  sdm_command_unref(k);
  EQUAL(sent(&p, FRAME_CANCEL, &content, &size).id, id);
  put_effect(&p, id);
  EQUAL(sdm_is_connected(p.c), 1);
  put_away(&p);
}

/* Lets the connection be lost, and takes the next one. */
static void lose_connection(struct peer *p) {
  close(p->socket);
  while (sdm_is_connected(p->c) == 1) sdm_process(p->c);
  while (sdm_is_connected(p->c) == 0) {
    CHECK(sdm_wait(p->c, PATIENCE) == 1);
    sdm_process(p->c);
  }
  take_socket(p);
}

/* The reply to a request for an upstream is the name of the stream. A loss ends it: the upstream may have been asked. */
void command_requests(void) {
  struct peer p = connected();
  sdm_subscription *s = subscribed(&p, true, 4);
  sdm_command *first, *second;
  EQUAL(sdm_request_stream(p.c, &first, "answers", "", 0), -EINVAL);
  EQUAL(sdm_request_stream(p.c, &first, "answers", "hello", 5), 0);
  const uint8_t *content;
  size_t size, route = 3 + 4 + 1 + strlen("answers");
  struct frame f = sent(&p, FRAME_REQUEST_RESPONSE, &content, &size);
  CHECK(size == route + 5 && memcmp(content + route - 7, "answershello", 12) == 0);
  CHECK(sdm_command_stream(first) == NULL);
  struct buffer out = {0};
  put_frame(&out, f.id, FRAME_PAYLOAD, FLAG_NEXT | FLAG_COMPLETE, "answers/7f3a", 12);
  put(&p, &out);
  EQUAL(sdm_command_wait(first, PATIENCE), 1);
  CHECK(strcmp(sdm_command_stream(first), "answers/7f3a") == 0);
  EQUAL(sdm_request_stream(p.c, &second, "answers/b", "b", 1), 0);
  sent(&p, FRAME_REQUEST_RESPONSE, &content, &size);
  lose_connection(&p);
  EQUAL(sdm_command_wait(second, PATIENCE), -ECONNRESET);
  CHECK(sdm_command_stream(second) == NULL);
  sdm_command_unref(first);
  sdm_command_unref(second);
  sdm_subscription_unref(s);
  put_away(&p);
}

/* Where a subscription restores the connection, commands are given again: the first `forget` may have ended the stream. */
void command_over_loss(void) {
  struct peer p = connected();
  sdm_subscription *s = subscribed(&p, true, 4);
  sdm_command *make, *forget, *late;
  EQUAL(sdm_make(p.c, &make, "a"), 0);
  EQUAL(sdm_forget(p.c, &forget, "b"), 0);
  sent_command(&p, "{\"make\":\"a\"}");
  sent_command(&p, "{\"forget\":\"b\"}");
  lose_connection(&p);
  EQUAL(sdm_forget(p.c, &late, "c"), 0);
  put_effect(&p, sent_command(&p, "{\"make\":\"a\"}"));
  put_error(&p, sent_command(&p, "{\"forget\":\"b\"}"), CODE(0x202, SDM_REASON_NO_STREAM), "no stream named \"b\"");
  put_error(&p, sent_command(&p, "{\"forget\":\"c\"}"), CODE(0x202, SDM_REASON_NO_STREAM), "no stream named \"c\"");
  EQUAL(sdm_command_wait(make, PATIENCE), 1);
  EQUAL(sdm_command_wait(forget, PATIENCE), 1);
  EQUAL(sdm_command_wait(late, PATIENCE), -ENOENT);
  sdm_command_unref(make);
  sdm_command_unref(forget);
  sdm_command_unref(late);
  sdm_subscription_unref(s);
  put_away(&p);
}

/* A restart cancels commands, which the next process then gets, if anything on the connection resumes. */
void command_over_restart(void) {
  for (int resumes = 0; resumes < 2; resumes++) {
    struct peer p = connected();
    sdm_subscription *s = subscribed(&p, resumes, 4);
    sdm_command *k;
    EQUAL(sdm_make(p.c, &k, "a"), 0);
    put_error(&p, sent_command(&p, "{\"make\":\"a\"}"), CODE(0x203, SDM_REASON_RESTARTING), "streamd restarts");
    if (resumes) put_effect(&p, sent_command(&p, "{\"make\":\"a\"}"));
    EQUAL(sdm_command_wait(k, PATIENCE), resumes ? 1 : -ECANCELED);
    sdm_command_unref(k);
    sdm_subscription_unref(s);
    put_away(&p);
  }
}

void command_without_connection(void) {
  struct peer p = connected();
  sdm_command *k, *other = NULL;
  EQUAL(sdm_make(p.c, &k, "a"), 0);
  close(p.socket);
  EQUAL(sdm_command_wait(k, PATIENCE), -ECONNRESET);
  EQUAL(sdm_command_wait(k, PATIENCE), -ECONNRESET);
  EQUAL(sdm_forget(p.c, &other, "a"), -EBADF);
  sdm_command_unref(k);
  p.socket = -1;
  put_away(&p);
}

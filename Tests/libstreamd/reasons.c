/* What the library does upon the reasons of a daemon, and upon the sentences of one of the last release. */
#include "peer.h"

#define CODE(code, reason) ((uint32_t)(code) << 16 | (uint32_t)(reason))

static void put_greeting(struct peer *p, uint32_t id, uint64_t confirmed) {
  struct buffer content = {0}, out = {0};
  buffer_put(&content, confirmed, 8);
  buffer_put(&content, confirmed + 1, 8);
  put_frame(&out, id, FRAME_PAYLOAD, FLAG_NEXT, buffer_content(&content), buffer_size(&content));
  frame_number(&out, id, FRAME_REQUEST_N, 8);
  put(p, &out);
  buffer_clear(&content);
}

/* A named publisher sends its values again on the same connection. */
static void survives(uint32_t code, const char *sentence) {
  struct peer p = connected();
  sdm_publisher *q;
  const uint8_t *content;
  size_t size;
  EQUAL(sdm_publisher_new(p.c, &q, "notes", "me"), 0);
  EQUAL(sdm_publish(q, "value", 5), 0);
  put_greeting(&p, sent(&p, FRAME_REQUEST_CHANNEL, &content, &size).id, 0);
  sent(&p, FRAME_PAYLOAD, &content, &size);
  put_error(&p, 1, code, sentence);
  EQUAL(sdm_flush(q, 0), -ETIMEDOUT);
  put_greeting(&p, sent(&p, FRAME_REQUEST_CHANNEL, &content, &size).id, 0);
  sent(&p, FRAME_PAYLOAD, &content, &size);
  CHECK(size == 5 && memcmp(content, "value", 5) == 0);
  sdm_publisher_unref(q);
  put_away(&p);
}

/* Of the last release, with and without numbers. */
void publisher_survives(void) {
  survives(0x203, "streamd is restarting");
  survives(0x203, "streamd restarts before the stream has stored all values");
  survives(0x203, "an operator has ended this connection");
  survives(0x203, "\"notes\" was changed before it had stored all values");
  survives(CODE(0x203, SDM_REASON_RESTARTING), "one text");
  survives(CODE(0x203, SDM_REASON_VALUES_LOST), "another text");
  survives(CODE(0x203, SDM_REASON_NAME_IN_USE), "");
}

static void ends(uint32_t code, const char *sentence, int result, int reason) {
  struct peer p = connected();
  sdm_publisher *q;
  sdm_event e;
  sdm_subscription *s = subscribed(&p, true, 4);
  EQUAL(sdm_publisher_new(p.c, &q, "notes", "me"), 0);
  put_error(&p, 1, code, sentence);
  put_error(&p, 3, code, sentence);
  EQUAL(next_of(p.c, s, &e), result);
  EQUAL(sdm_reason(p.c), reason);
  EQUAL(sdm_flush(q, PATIENCE), result);
  EQUAL(sdm_reason(p.c), reason);
  EQUAL(sdm_publish(q, "value", 5), -EBADF);
  EQUAL(sdm_reason(p.c), reason);
  EQUAL(sdm_subscribe(p.c, &s, "", NULL), -EINVAL); /* not the daemon's */
  EQUAL(sdm_reason(p.c), 0);
  sdm_subscription_unref(s);
  sdm_publisher_unref(q);
  put_away(&p);
}

/* The reason decides, whatever the sentence says. A later daemon's reason leaves the decision to the code of RSocket. */
void reasons_of_ends(void) {
  ends(CODE(0x202, SDM_REASON_NO_STREAM), "uid 7 may not read \"quotes\"", -ENOENT, SDM_REASON_NO_STREAM);
  ends(CODE(0x202, SDM_REASON_MAY_NOT_READ), "", -EACCES, SDM_REASON_MAY_NOT_READ);
  ends(CODE(0x203, SDM_REASON_REMOVED), "streamd is restarting", -ECANCELED, SDM_REASON_REMOVED);
  ends(CODE(0x203, SDM_REASON_ENDED), "", -ECANCELED, SDM_REASON_ENDED);
  ends(CODE(0x204, SDM_REASON_UNKNOWN_POSITION), "", -EINVAL, SDM_REASON_UNKNOWN_POSITION);
  ends(CODE(0x204, SDM_REASON_TOO_LARGE), "", -EMSGSIZE, SDM_REASON_TOO_LARGE);
  ends(CODE(0x301, SDM_REASON_STALLED), "", -ENOBUFS, SDM_REASON_STALLED);
  ends(CODE(0x202, 9999), "no stream named \"quotes\"", -EDQUOT, 9999);
  ends(CODE(0x203, 9999), "streamd is restarting", -ECANCELED, 9999);
  ends(CODE(0x204, 0xffff), "", -EINVAL, 0xffff);
  ends(0xfffffffe, "", -EIO, 0xfffe);
  ends(0x203, "\"quotes\" is no longer served", -ECANCELED, SDM_REASON_REMOVED);
  ends(0x204, "no event has the id 9 yet: this host was given 5 s to receive it", -EINVAL, SDM_REASON_UNKNOWN_POSITION);
}

static void closes_with(uint32_t code, int result, int reason) {
  struct peer p = connected();
  sdm_event e;
  sdm_subscription *s = subscribed(&p, true, 4);
  put_error(&p, 0, code, "a sentence");
  EQUAL(next_of(p.c, s, &e), result);
  EQUAL(sdm_reason(p.c), reason);
  EQUAL(sdm_process(p.c), result);
  EQUAL(sdm_reason(p.c), reason);
  sdm_subscription_unref(s);
  put_away(&p);
}

void reasons_of_closes(void) {
  closes_with(CODE(0x003, SDM_REASON_INVALID_TOKEN), -EACCES, SDM_REASON_INVALID_TOKEN);
  closes_with(CODE(0x003, SDM_REASON_TOO_MANY_CONNECTIONS), -EDQUOT, SDM_REASON_TOO_MANY_CONNECTIONS);
  closes_with(CODE(0x003, SDM_REASON_NOT_CONFIGURED), -ECONNREFUSED, SDM_REASON_NOT_CONFIGURED);
  closes_with(CODE(0x101, SDM_REASON_TOO_MUCH_INPUT), -EDQUOT, SDM_REASON_TOO_MUCH_INPUT);
  closes_with(CODE(0x101, 9999), -EPROTO, 9999);
  /* A request that is too large has an ERROR of its own: the others are made again on a new connection. */
  struct peer p = connected();
  sdm_publisher *q;
  sdm_event e;
  sdm_subscription *s = subscribed(&p, true, 4);
  EQUAL(sdm_publisher_new(p.c, &q, "notes", NULL), 0);
  EQUAL(sdm_publish(q, "value", 5), 0);
  put_error(&p, 3, CODE(0x204, SDM_REASON_TOO_LARGE), "");
  put_error(&p, 0, CODE(0x101, SDM_REASON_REQUEST_TOO_LARGE), "");
  EQUAL(sdm_flush(q, PATIENCE), -EMSGSIZE);
  EQUAL(sdm_is_connected(p.c), 0);
  EQUAL(sdm_next(s, &e), 0);
  sdm_publisher_unref(q);
  sdm_subscription_unref(s);
  put_away(&p);
}

/* SETUP says in its data that the library knows reasons. */
void announces(void) {
  struct peer p = connected();
  const uint8_t *content;
  size_t size;
  const char *text = "{\"reasons\":true}";
  sent(&p, FRAME_SETUP, &content, &size);
  CHECK(size > strlen(text) && memcmp(content + size - strlen(text), text, strlen(text)) == 0);
  put_away(&p);
}

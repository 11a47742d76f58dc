/* client.h: what the checks of `client` share, and their names. */
#ifndef CLIENT_H
#define CLIENT_H
#include "check.h"

extern const char *address, *tcp_address;
sdm *connected(void);
void ask(const char *wish); /* lets the script do something, such as kill the daemon */
/* Publishes values 1 to `count` in the format, and waits until they are in the stream. */
void publish(const char *stream, int count, const char *format);
sdm_subscription *subscribed(sdm *c, const char *stream, sdm_options o);
sdm_options from(sdm_from start, uint64_t since, uint32_t window);
/* Expects values `first` to `last` in the format as the next events, without a gap. */
void expect_run(sdm *c, sdm_subscription *s, const char *format, int first, int last);

/* subscribing.c */
void starts(void);
void state(void);
void pattern(void);
void credit(void);
void poll_loop(void);
void batches(void);
void gaps(void);
void filters(void);
void markers(void);
void end_of_stream(void);
void refusals(void);
void arguments(void);

/* waiting.c */
void waits(void);
void bounded(void);
void resume_over_kill(void);
void resume_over_stop(void);
void resume_over_loss(void);
void gap_over_loss(void);
void lost_without_reconnect(void);
void publish_over_kills(void);
void publish_unnamed(void);
void tcp(void);
void token(void);
void forks(void);
void lifetime(void);
#endif

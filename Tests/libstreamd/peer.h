/* peer.h: a daemon that the test plays, byte by byte, in one thread with the library. The library is compiled with KEEPALIVE and
 * lifetimes of 0.2 s and 0.6 s. */
#ifndef PEER_H
#define PEER_H
#include "check.h"
#include "internal.h"

struct peer {
  sdm *c;
  int socket;
  struct buffer input; /* what the library has sent */
};

void listen_at(const char *at);
void take_socket(struct peer *p);
struct peer connected(void);
void put_away(struct peer *p);
/* Sends bytes; the library processes them meanwhile. */
void put_bytes(struct peer *p, const void *bytes, size_t size);
void put(struct peer *p, struct buffer *out);
void put_frame(struct buffer *out, uint32_t id, unsigned type, unsigned flags, const void *content, size_t size);
/* An event with 16 bytes of metadata and `more` of them. */
void put_event(struct buffer *out, uint32_t id, uint64_t number, const void *more, size_t more_size, const char *data);
void put_error(struct peer *p, uint32_t id, uint32_t code, const char *sentence);
/* The next frame that the library has sent, of this type; others before it are skipped. */
struct frame sent(struct peer *p, unsigned type, const uint8_t **content, size_t *size);
sdm_subscription *subscribed(struct peer *p, bool reconnect, uint32_t credit);
void stop_listening(void);

/* publishing.c */
void too_large(void);
void numbers(void);
void room(void);
void first_values(void);

/* commands.c */
void command_results(void);
void command_arguments(void);
void command_given_up(void);
void command_requests(void);
void command_over_loss(void);
void command_over_restart(void);
void command_without_connection(void);

/* reasons.c */
void publisher_survives(void);
void reasons_of_ends(void);
void reasons_of_closes(void);
void announces(void);
#endif

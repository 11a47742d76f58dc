/* mapping.h: what the checks of maps share: the daemon of peer.h, which passes regions of writer.h. */
#ifndef MAPPING_H
#define MAPPING_H
#include "peer.h"
#include "writer.h"

/* Sends the reply to a request for a map, with descriptors; `missed` is JSON. */
void put_map(struct peer *p, uint32_t id, const struct writer *w, uint64_t position, const char *missed);
void put_reply(struct peer *p, uint32_t id, const char *json, const int *descriptors, int count);
/* Puts bytes with descriptors, which come with the first of them. */
void put_with(struct peer *p, struct buffer *out, const int *descriptors, int count);
/* A map of "quotes" at this position, to which the daemon has replied before it was asked. */
sdm_mapped *mapped(struct peer *p, const struct writer *w, uint64_t position, const sdm_options *o);
/* Expects the next request of this type with these data. Returns its frame; *credit: of a REQUEST_STREAM. */
struct frame expect_request(struct peer *p, unsigned type, const char *data, uint32_t *credit);
int next_mapped(sdm_mapped *m, sdm_event *e); /* the result of sdm_mapped_next() once it is not 0 */
void expect_events(sdm_mapped *m, uint64_t first_id, uint64_t last_id); /* of add_events(), without a gap but before the first */
void add_events(struct writer *w, int count); /* the data tell the id */
int open_descriptors(void);

/* hostilemaps.c */
void hostile_regions(void);
void hostile_contents(void);
void hostile_replies(void);
void foreign_descriptors(void);
#endif

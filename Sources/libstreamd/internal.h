/* internal.h: what the files of libstreamd share.
 *
 * A connection (struct sdm) has a socket, a table of requests, and unsent bytes. connection.c and descriptors.c are the only files
 * that make system calls on the socket; protocol.c turns received bytes into calls of the requests (subscription.c, publisher.c,
 * get.c, command.c, mapped.c), which append frames to the output. So the protocol runs without a socket: see fuzz.c. The memory of a map is
 * apart from both (region.c).
 *
 * A request is in one phase. A loss of the connection makes `open` requests `ready` again if they can resume, and ends the
 * others. After its end a request keeps its result (`outcome` and `sentence`) until it is released. */
#ifndef STREAMD_INTERNAL_H
#define STREAMD_INTERNAL_H
#include "region.h"
#include "streamd.h"

#include <endian.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <time.h>

/* The functions of version 0 of the library; everything else is local to it. */
#define SDM_PUBLIC __attribute__((visibility("default")))

/* Time between two KEEPALIVE frames, and the time without a frame after which the daemon counts as lost. The tests set
 * shorter ones. */
#ifndef SDM_KEEPALIVE_USEC
#define SDM_KEEPALIVE_USEC UINT64_C(20000000)
#endif
#ifndef SDM_LIFETIME_USEC
#define SDM_LIFETIME_USEC UINT64_C(90000000)
#endif

enum {
  FRAME_LIMIT = (1 << 24) - 1,      /* bytes of a frame, without its length */
  FRAGMENTS_LIMIT = 256 << 20,      /* bytes of all events of a connection that are being received */
  VALUE_LIMIT = (16 << 20) - 1,     /* bytes of a value: the largest `max_request` of a daemon */
  FRAGMENT_BYTES = 64 << 10,        /* bytes of a value in one frame */
  UNTAKEN_LIMIT = 64 << 20,         /* bytes of events that wait to be taken; beyond it the socket is not read */
  OUTPUT_ROOM = 256 << 10,          /* unsent bytes beyond which values stay in their queue */
  OUTPUT_LIMIT = 32 << 20,          /* unsent bytes beyond which the daemon does not read, and is lost */
  READ_BYTES = 128 << 10,           /* of one recv(2) */
  SEGMENT_BYTES = 64 << 10,         /* of untaken events */
  NAME_LIMIT = 255,                 /* bytes of a stream's name: the size of a routing tag */
  TOKEN_LIMIT = 1024,               /* bytes of a token, as the daemon has it */
  FROM_BYTES = 40,                  /* of the start of a subscription or a map, as JSON */
  ERROR_BYTES = 1024,               /* of a sentence */
};
#define CREDIT_UNLIMITED 0x7fffffffu /* as RSocket has it */

/* A time that only grows. */
static inline uint64_t now_usec(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

/* --- buffer.c: bytes that grow at the end and are consumed at the start --- */
struct buffer {
  uint8_t *bytes;
  size_t start, end, capacity; /* the content is bytes[start..<end] */
  bool failed;                 /* no memory: the content is incomplete */
};
static inline size_t buffer_size(const struct buffer *b) { return b->end - b->start; }
static inline uint8_t *buffer_content(const struct buffer *b) { return b->bytes + b->start; }
uint8_t *buffer_reserve(struct buffer *b, size_t size); /* room for `size` bytes at the end; NULL: no memory */
void buffer_append(struct buffer *b, const void *bytes, size_t size);
void buffer_consume(struct buffer *b, size_t size);
void buffer_clear(struct buffer *b); /* also releases its memory */
void buffer_put(struct buffer *b, uint64_t number, unsigned bytes); /* big endian */
/* A big endian number; `bytes` is a constant. */
static inline uint64_t number_at(const uint8_t *p, unsigned bytes) {
  uint64_t whole;
  uint32_t half;
  switch (bytes) {
    case 8: memcpy(&whole, p, 8); return be64toh(whole);
    case 4: memcpy(&half, p, 4); return be32toh(half);
    case 3: return (uint64_t)p[0] << 16 | (uint64_t)p[1] << 8 | p[2];
    case 2: return (uint64_t)p[0] << 8 | p[1];
    default: return p[0];
  }
}

/* --- frame.c --- */
enum frame_type {
  FRAME_SETUP = 0x01, FRAME_LEASE = 0x02, FRAME_KEEPALIVE = 0x03, FRAME_REQUEST_RESPONSE = 0x04,
  FRAME_REQUEST_STREAM = 0x06, FRAME_REQUEST_CHANNEL = 0x07, FRAME_REQUEST_N = 0x08, FRAME_CANCEL = 0x09,
  FRAME_PAYLOAD = 0x0a, FRAME_ERROR = 0x0b, FRAME_METADATA_PUSH = 0x0c,
};
enum frame_flag { FLAG_IGNORE = 0x200, FLAG_METADATA = 0x100, FLAG_FOLLOWS = 0x80, FLAG_RESPOND = 0x80, FLAG_COMPLETE = 0x40, FLAG_NEXT = 0x20 };

struct frame {
  uint32_t id;
  unsigned type, flags;
  uint32_t number;         /* of REQUEST_N; the code of ERROR */
  const uint8_t *metadata; /* of PAYLOAD; NULL: none */
  size_t metadata_size;
  const uint8_t *data;     /* of PAYLOAD, ERROR and KEEPALIVE */
  size_t size;
};
/* Reads a frame without its length. NULL, or a sentence: how it is malformed. */
const char *frame_read(struct frame *f, const uint8_t *bytes, size_t size);
void frame_setup(struct buffer *out, const char *token); /* NULL: none */
void frame_keepalive(struct buffer *out, bool respond, const uint8_t *data, size_t size);
void frame_number(struct buffer *out, uint32_t id, enum frame_type type, uint32_t number); /* REQUEST_N */
void frame_plain(struct buffer *out, uint32_t id, enum frame_type type, unsigned flags);   /* CANCEL, COMPLETE */
void frame_error(struct buffer *out, uint32_t id, uint32_t code, const char *sentence);
/* A REQUEST_RESPONSE, _STREAM or _CHANNEL for a stream. `publisher`: the name of a publisher, or NULL. */
struct route {
  const char *stream;
  const char *publisher;
  uint64_t number; /* of the publisher's next value */
};
void frame_request(struct buffer *out, uint32_t id, enum frame_type type, uint32_t credit, const struct route *route,
                   const void *data, size_t size);
void frame_value(struct buffer *out, uint32_t id, const void *data, size_t size);

/* --- error.c --- */
int fail(sdm *c, int code, const char *format, ...) __attribute__((format(printf, 3, 4))); /* for sdm_error(); returns code */
void copy_sentence(char *to, size_t capacity, const uint8_t *text, size_t size); /* as one line of UTF-8 */
/* Likewise, of a connection that is over: the format has one %s, for how it ended. */
int fail_over(sdm *c, int code, const char *format);

/* --- reason.c --- */
enum retry { NEVER, LATER, RECONNECT }; /* whether the library makes a request again: soon, or on a new connection */
/* What an ERROR of the daemon tells. */
struct failure {
  uint32_t code; /* of RSocket */
  int reason;    /* sdm_reason, or a number of a later daemon; 0: unknown */
  const char *sentence;
};
struct failure failure_of(uint32_t code, const char *sentence); /* of a code with or without a reason */
int errno_of(const struct failure *f);
int errno_of_close(const struct failure *f);
enum retry retry_of(int reason);
const char *reason_name(int reason); /* NULL: unknown */

/* --- last-release.c --- */
int reason_of_last_release(uint32_t code, const char *sentence);
uint32_t request_of_last_release(const char *sentence); /* that SDM_REASON_REQUEST_TOO_LARGE names */

/* --- requests --- */
enum kind { SUBSCRIPTION, PUBLISHER, GET, COMMAND, MAP, DEMAND }; /* the last two are parts of an sdm_mapped */
enum phase {
  IDLE,  /* nothing to send yet; can become: ready, ended */
  READY, /* to be sent when the connection is there, at or after retry_at; can become: open, ended */
  OPEN,  /* on the wire; can become: ready, ended */
  ENDED,
};
struct request {
  sdm *c;
  unsigned references;
  enum kind kind;
  enum phase phase;
  uint32_t id;                      /* on this connection; 0: none */
  uint64_t retry_at;                /* while ready; 0: at once */
  struct request *previous, *next;  /* of the connection */
  struct request *in_bucket;        /* the next one with its hash */
  struct buffer fragments;          /* of the payload that is being received */
  size_t fragment_metadata;         /* bytes of metadata at their start */
  bool has_fragments, ends_with_fragments;
  char *stream;
  int outcome;                      /* after the end: a negative errno */
  int reason;                       /* and the daemon's reason; 0: none */
  char *sentence;
};
int request_init(struct request *r, sdm *c, enum kind kind, const char *stream);
void request_opened(struct request *r, uint32_t id);
void request_closed(struct request *r); /* it has no id any more */
void request_end(struct request *r, int code, const char *sentence);
void request_fail(struct request *r, const struct failure *f); /* likewise, because of the daemon's ERROR */
/* Takes it from the connection, with a CANCEL or COMPLETE in the output if it is open. Returns whether that is so. */
bool request_remove(struct request *r);
struct request *request_with(sdm *c, uint32_t id);
uint32_t new_id(sdm *c); /* 0: none left */
int outcome_of(struct request *r); /* sets sdm_error() */

/* --- options.c --- */
int options_read(sdm *c, const sdm_options *given, sdm_options *o); /* checks them; what is not given has its default */
int options_from(sdm *c, char from[FROM_BYTES], const sdm_options *o); /* writes the start as JSON */

/* --- subscription.c --- */
struct segment {
  struct segment *next;
  size_t capacity, end;
  uint8_t bytes[];
};
/* An untaken event; `size` bytes of data follow, and padding to 8. */
struct record {
  uint64_t id, time, gap, left_out;
  uint64_t size;
  uint64_t kind;
  uint64_t position;  /* of a pattern */
  uint64_t name_size; /* of the stream's name, which follows the data with a zero byte; 0: none */
};
struct sdm_subscription {
  struct request r;
  char *options;         /* JSON, from its second member on: what follows "from" */
  char from[FROM_BYTES]; /* JSON */
  struct segment *first; /* events that were returned by the last call, then untaken ones */
  struct segment *read;  /* where the untaken ones begin; NULL: no segment */
  struct segment *last;
  size_t offset;         /* in `read` */
  uint64_t demand;       /* to grant; UINT64_MAX: without limit */
  uint32_t open;         /* credit that the daemon has */
  uint32_t window;       /* of the options */
  uint32_t renewable;    /* taken events that were not granted again */
  uint32_t untaken;      /* number of events */
  uint64_t untaken_bytes;
  uint32_t rolling;      /* the number of events that may be open or untaken while the demand has no limit */
  uint64_t largest;      /* bytes of an event since `rolling` was set */
  bool reconnects, marker, filtered, hides_markers, in_state;
  bool named;            /* for a pattern: payloads have names and positions, and `position` is one of these */
  bool has_position;     /* `position` is set */
  uint64_t position;     /* the id of the newest event or marker */
  bool resumed;          /* events up to `resumed_after` were received before */
  uint64_t resumed_after;
  uint64_t hidden_gap, hidden_left_out; /* of markers that are not delivered */
};
/* The results of handlers: NULL, or a sentence: how the daemon violates the protocol. */
const char *subscription_payload(sdm_subscription *s, const uint8_t *metadata, size_t metadata_size,
                                 const uint8_t *data, size_t size);
void subscription_complete(sdm_subscription *s);
void subscription_error(sdm_subscription *s, const struct failure *f);
void subscription_grant(sdm_subscription *s); /* sends what is due: the request, or REQUEST_N */
bool subscription_can_resume(const sdm_subscription *s);
void subscription_resume(sdm_subscription *s);
void subscription_free(sdm_subscription *s);
bool subscription_awaits_reader(const sdm_subscription *s); /* only taking events can continue it */

/* --- publisher.c --- */
struct sdm_publisher {
  struct request r;
  char *name;             /* NULL: unnamed */
  struct buffer queue;    /* u32 size and bytes of each value: sent ones that are kept, then unsent ones */
  size_t unsent_offset;   /* in the queue's content */
  uint32_t kept, unsent;  /* numbers of values */
  uint32_t uncertain;     /* named: values that were sent before a loss, and not confirmed */
  uint64_t queued;        /* the number of the last value: its position since the start, or of the name */
  uint64_t confirmed;
  uint64_t credit;        /* of the daemon, for values */
  bool has_reply;         /* the daemon has replied */
  bool is_greeted;        /* named: on this connection */
  bool was_greeted;       /* named: ever */
  bool is_flushing;       /* unnamed: COMPLETE follows the last value */
  bool is_completing;     /* unnamed: COMPLETE is sent */
  uint64_t canceled_at;   /* when the name was first found in use; 0: it is not */
};
const char *publisher_payload(sdm_publisher *p, const uint8_t *data, size_t size);
const char *publisher_credit(sdm_publisher *p, uint32_t credit);
void publisher_complete(sdm_publisher *p);
void publisher_error(sdm_publisher *p, const struct failure *f);
void publisher_send(sdm_publisher *p);
void publisher_resume(sdm_publisher *p);
void publisher_leave(sdm_publisher *p); /* ends an open request */
void publisher_free(sdm_publisher *p);

/* --- get.c --- */
struct get {
  struct request r;
  struct buffer data;
  uint64_t id, time;
  bool is_done;
};
const char *get_payload(struct get *g, const uint8_t *metadata, size_t metadata_size, const uint8_t *data, size_t size);
void get_send(struct get *g);

/* --- command.c --- */
struct sdm_command {
  struct request r;
  void *data;
  size_t size;
  bool is_forget;
  bool asks; /* an upstream: it is not asked again after a loss */
  char answer[NAME_LIMIT + 1]; /* the stream of its answer; empty: none yet */
  bool was_sent, repeats; /* ever; the present request is not the first one */
  bool is_done;           /* it has taken effect */
};
void command_send(sdm_command *k);
void command_reply(sdm_command *k, const uint8_t *data, size_t size);
void command_complete(sdm_command *k);
bool command_is_done_by(const sdm_command *k, const struct failure *f); /* whether this refusal shows that it has taken effect */

/* --- reply.c --- */
struct reply {
  uint64_t version, generation, size, position;
  uint64_t missed; /* SDM_GAP_UNKNOWN: unknown, or not stated */
};
bool reply_read(struct reply *reply, const uint8_t *data, size_t size);

/* --- mapped.c --- */
struct sdm_mapped {
  struct request ask;     /* for a region */
  struct request demand;  /* upstream */
  sdm *c;
  unsigned references;
  sdm_on_lag on_lag;
  bool reconnects;
  uint32_t window;        /* of the demand */
  char from[FROM_BYTES];  /* JSON */
  struct region region;   /* that is read */
  struct region next;     /* of another generation, to be read after the last event of `region` */
  struct copy copy;
  uint64_t position;      /* after the last event that was copied */
  bool has_id;
  uint64_t id;            /* of the event before `position`, or of an earlier one */
  uint64_t gap;           /* before the next event that is copied */
  bool has_reply;         /* which was not handled yet */
  struct reply reply;
  int passed[2];          /* with it */
  int passed_error;       /* why they are not there: -EMFILE */
  uint64_t refused_since; /* because of too many maps that are on their way; 0: it was not */
  bool asked_by_id, asked_after_end; /* the request had `asked_id`; the region had been replaced */
  uint64_t asked_id;
  uint64_t base, granted; /* position and sum of the demand stream */
  bool grants_all;        /* also less than half of the window */
  bool awaits_end;        /* the region's last event was copied: the demand stream has the result */
  uint64_t worked_at;     /* when the connection was last processed for this map; a coarse clock */
  int outcome;            /* after the end: a negative errno */
  int reason;             /* and the daemon's reason; 0: none */
  char *sentence;
};
void map_send(sdm_mapped *m);
void map_reply(sdm_mapped *m, const uint8_t *data, size_t size);
void map_error(sdm_mapped *m, const struct failure *f);
int map_adopt(sdm_mapped *m); /* opens the region that a reply has brought. 0, or how the map has ended */
void map_resume(sdm_mapped *m);
bool map_can_resume(const sdm_mapped *m);
void demand_send(sdm_mapped *m);
void demand_error(sdm_mapped *m, const struct failure *f);
sdm_mapped *mapped_of(struct request *r); /* of a request of kind MAP or DEMAND */

/* --- descriptors.c --- */
struct passed {
  bool is_there;
  bool is_cut;         /* some did not fit into this process */
  int descriptors[2];  /* -1: none */
  uint64_t start, end; /* the bytes of the connection that were read with them */
};
void descriptors_admit(sdm *c, bool are_admitted); /* whether the kernel lets any come */
ssize_t descriptors_receive(sdm *c, void *place, size_t room); /* as recv(2); keeps descriptors if a reply may bring them */
int descriptors_take(sdm *c, int descriptors[2]); /* those of the present frame, -1 for none. 0; -EMFILE: they could not be received */
void descriptors_keep(sdm *c, uint64_t at);       /* those of the frame that begins there; closes the others */
void descriptors_close(sdm *c);

/* --- protocol.c --- */
enum { BUCKETS = 64, ADDRESSES = 4 };
struct sdm {
  unsigned references;        /* of the program, and one for each object */
  pid_t process;              /* that made it: a child only releases */
  int socket, epoll, timer;   /* -1: none */
  enum { CONNECTING, CONNECTED, WAITING, OVER } state;
  bool was_accepted;          /* the daemon has once sent a frame that was no refusal */
  bool write_failed;          /* what it has sent can still be read */
  bool is_paused;             /* the socket is not read */
  bool is_blocking;           /* a call waits: the socket is read whatever waits to be taken */
  bool has_values;            /* values that may be sent wait for room in the output */
  bool is_due;                /* sdm_next() has made work for sdm_process() */
  bool has_news;              /* a subscription has received something since the last sdm_process() */
  bool is_reported;           /* sdm_process() has returned how it ended */
  uint32_t interest;          /* of epoll in the socket */
  char *token;                /* NULL: none */
  struct sockaddr_storage addresses[ADDRESSES];
  socklen_t address_size[ADDRESSES];
  size_t address_count, address_index;
  uint64_t timer_at;          /* what the timer is set to; 0: off */
  uint64_t retry_at, keepalive_at, connect_until;
  uint64_t silent_since;      /* when the first KEEPALIVE without an answer was sent; 0: none */
  unsigned losses;            /* since the last accepted connection */
  uint64_t random;
  uint64_t timeout;           /* of sdm_get() and sdm_map() */
  uint64_t taken, taken_before; /* events, now and at the last sdm_process() */
  uint64_t nudge_delay;
  uint64_t untaken_bytes;
  struct buffer input, output;
  uint64_t received, frame_at; /* bytes of this socket; the first one of the present frame */
  unsigned asks;              /* open requests for maps */
  struct passed passed[2];    /* with the start of the present frame, and with the last read */
  uint32_t next_id;
  struct request *requests, *last_request;
  struct request *buckets[BUCKETS];
  struct segment *spare;
  struct get *get;
  bool is_closed;             /* the daemon has sent an ERROR for the connection, whose sentence is `reason` */
  int close_code;             /* what it means: a negative errno, or 0: a loss */
  size_t fragment_bytes;      /* of payloads that are being received */
  int outcome;                /* how it ended */
  char error[ERROR_BYTES];    /* of sdm_error() */
  int error_reason;           /* of sdm_reason() */
  char reason[ERROR_BYTES];   /* how the connection ended */
  int close_reason;           /* and the daemon's reason; 0: none */
};
extern const char no_memory[]; /* no violation */
/* Handles the whole frames of the input, up to an ERROR for the connection. NULL, or a sentence: a violation. */
const char *protocol_receive(sdm *c);
void protocol_send(sdm *c);           /* the frames that are due */
void protocol_lost(sdm *c, const char *reason); /* ends or resumes the requests */
void protocol_over(sdm *c, int code, const char *reason); /* ends everything */
bool is_valid_name(const char *name, size_t limit);

/* --- address.c --- */
int address_find(sdm *c, const char *text); /* sets the connection's addresses */

/* --- connection.c --- */
void request_release(struct request *r);     /* removes it, sends its end, and frees it */
uint64_t deadline(uint64_t usec);
bool connection_flush(sdm *c);               /* writes what the socket takes; whether it took anything */
int connection_work(sdm *c);                 /* as sdm_process(), for calls that block */
void connection_tick(sdm *c, bool blocks);   /* likewise, for calls on maps; `blocks`: whatever waits to be taken */
int connection_poll(sdm *c, uint64_t until); /* 1; 0: the time is over; -EINTR */
int connection_wait(sdm *c, uint64_t until); /* for them: 1; -ETIMEDOUT, -EINTR */
void connection_waited(sdm *c);              /* at their end: wakes a poll loop for what a subscription has received */
#endif

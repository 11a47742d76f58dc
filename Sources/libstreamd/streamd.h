/* streamd.h: subscribe to, read, map, publish and make the streams of streamd(8). C11 and C++; link with -lstreamd (pkg-config streamd).
 *
 * Errors. A function that returns int returns 0 or more, or a negative errno; sdm_error() then has one sentence, the daemon's if it gave one,
 * and sdm_reason() its reason as a number, for programs: sentences may change.
 *   -ENODATA       the stream has completed; every event was delivered      -ENOENT      no stream of this name
 *   -EACCES        the access rules do not admit this user                  -EINVAL      an argument, an option, an id no event has yet; a wrong size
 *   -ENOBUFS       events were lost with SDM_ON_LAG_FAIL; this reader       -EOPNOTSUPP  the stream accepts no values, or is not mapped; a map over TCP
 *                  stalled a lossless stream for block_timeout             -EMSGSIZE    a value exceeds the stream's buffer or max_request
 *   -EIO           the source has failed permanently                        -EDQUOT      a limit of this user or connection, names, no space
 *   -ECANCELED     the daemon stopped, the stream was removed, another      -EAGAIN      the queue of unsent values is full: sdm_flush, or wait
 *                  publisher has the name                                   -ETIMEDOUT   the time is over; -EINTR: a signal handler has run
 *   -ECONNRESET    the connection is lost, and nothing on it reconnects     -EPROTO      the peer or a region is not streamd's; -ENOMEM: no memory is left
 *   -ECONNREFUSED, -ENOENT, -EACCES and others of connect(2); the first also if the daemon has no valid configuration. -EHOSTUNREACH: no such host
 *   -EMFILE        this process has no room for the descriptors of a region
 *   -EBADF         the object has ended: sdm_next(), sdm_process() and the like after their last error or -ENODATA return that result again, other
 *                  calls -EBADF
 * Threads and processes. Objects of different connections may be used at the same time; a connection and the objects made from it by one thread
 * at a time. No threads, no global state, no signal (SIGPIPE included), no output, no exit; all descriptors are close-on-exec. After fork(2) the
 * child may only unref. Times are microseconds: UINT64_MAX without a limit, 0 without waiting.
 * Lifetime. What a subscription, publisher or map needs of its connection stays until they are unref'd. `*ret` is written on success only. */
#ifndef STREAMD_H
#define STREAMD_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#define SDM_VERSION_MAJOR 0
#define SDM_VERSION_MINOR 1
#define SDM_GAP_UNKNOWN UINT64_MAX /* of sdm_event.gap: events were lost, and the daemon cannot know how many */
#define SDM_UNLIMITED UINT32_MAX   /* for sdm_request() */

typedef struct sdm sdm;                           /* a connection */
typedef struct sdm_subscription sdm_subscription; /* events by the socket, at this client's credit */
typedef struct sdm_publisher sdm_publisher;       /* values, confirmed */
typedef struct sdm_mapped sdm_mapped;             /* events from shared memory */
typedef struct sdm_command sdm_command;           /* a command to the daemon, and its result */

typedef enum sdm_kind {
  SDM_EVENT = 0,
  SDM_MARKER = 1 /* no event: every event up to `id` was delivered (option marker); size is 0, time the present */
} sdm_kind;

typedef enum sdm_from {
  SDM_FROM_REPLAY = 0, /* the stream's last `replay` events, then new ones */
  SDM_FROM_LATEST,     /* the newest event, then new ones */
  SDM_FROM_NEW,        /* new ones */
  SDM_FROM_STATE,      /* the newest event of each key, then every later event; not for maps */
  SDM_FROM_ID,         /* the stored events after id `since` */
  SDM_FROM_TIME,       /* the stored events since `since`, microseconds since the Unix epoch */
  SDM_FROM_AGO,        /* the stored events of the last `since` microseconds */
  SDM_FROM_LAST        /* the last `since` stored events, at least 1, then new ones; a filter leaves out those that do not fit */
} sdm_from;

typedef enum sdm_on_lag {
  SDM_ON_LAG_DEFAULT = 0, /* as the stream is configured, else skip */
  SDM_ON_LAG_SKIP,        /* continue with the oldest stored event; `gap` counts what was missed */
  SDM_ON_LAG_LATEST,      /* continue with the newest */
  SDM_ON_LAG_FAIL         /* end with -ENOBUFS */
} sdm_on_lag;

/* Why the daemon has refused or ended something: what programs compare, as sentences may change. Later daemons may send more. */
enum sdm_reason {
  SDM_REASON_NO_STREAM = 1,                 /* no stream has this name */
  SDM_REASON_MAY_NOT_READ = 2,
  SDM_REASON_MAY_NOT_WRITE = 3,
  SDM_REASON_MAY_NOT_COMMAND = 4,
  SDM_REASON_TAKES_NO_VALUES = 5,           /* the stream's source is not its publishers */
  SDM_REASON_NO_SPACE = 6,                  /* values of other publishers wait in the stream */
  SDM_REASON_NO_KEY = 7,                    /* no event has the requested key */
  SDM_REASON_NO_EFFECT = 8,                 /* a command has no effect */
  SDM_REASON_TOO_MANY_REQUESTS = 9,
  SDM_REASON_TOO_MANY_VIEWS = 10,           /* of a system stream */
  SDM_REASON_TOO_MANY_PUBLISHERS = 11,      /* with a name */
  SDM_REASON_TOO_MANY_MAPS = 12,            /* that the user has not received */
  SDM_REASON_NO_DESCRIPTORS = 13,           /* the system does not pass descriptors at present */
  SDM_REASON_NO_MEMORY = 14,                /* for a map */
  SDM_REASON_TOO_MANY_FILTERS = 15,         /* of a stream */
  SDM_REASON_FILTERS_TOO_LARGE = 16,        /* of the user, in all */
  SDM_REASON_INVALID_REQUEST = 17,          /* options, a filter, a name */
  SDM_REASON_UNKNOWN_POSITION = 18,         /* no event has this id, or position of a map, yet */
  SDM_REASON_NO_STATE = 19,                 /* the stream has no keys, or its state is incomplete */
  SDM_REASON_TOO_LARGE = 20,                /* a value exceeds the stream's buffer or max_request */
  SDM_REASON_NOT_JSON = 21,                 /* a value, of a stream that requires it */
  SDM_REASON_NOT_MAPPED = 22,
  SDM_REASON_NOT_MAPPABLE = 23,             /* over this connection */
  SDM_REASON_FAILED = 24,                   /* the source has failed permanently */
  SDM_REASON_LAGGED = 25,                   /* events were lost, with SDM_ON_LAG_FAIL */
  SDM_REASON_EVENT_LOST = 26,               /* an event left the buffer after a part of it had been sent */
  SDM_REASON_STALLED = 27,                  /* this reader stalled a lossless stream for block_timeout */
  SDM_REASON_STOPPING = 28,                 /* the daemon stops */
  SDM_REASON_RESTARTING = 29,               /* the next process cannot continue the request */
  SDM_REASON_KICKED = 30,                   /* an operator has ended the connection */
  SDM_REASON_TOKEN_REMOVED = 31,
  SDM_REASON_NO_CAPACITY = 32,              /* the process can serve no more connections */
  SDM_REASON_REMOVED = 33,                  /* the stream */
  SDM_REASON_ENDED = 34,                    /* the stream that is published to */
  SDM_REASON_TAKES_NO_MORE_VALUES = 35,     /* the stream has another source */
  SDM_REASON_VALUES_LOST = 36,              /* the stream was changed before it had stored all values */
  SDM_REASON_NAME_IN_USE = 37,              /* by another publisher */
  SDM_REASON_MAP_REMOVED = 38,              /* the stream is not mapped any more */
  SDM_REASON_STATE_LOST = 39,               /* the rest of a state */
  SDM_REASON_TYPE_CHANGED = 40,             /* of the stream; over HTTP */
  SDM_REASON_INVALID_TOKEN = 41,
  SDM_REASON_INVALID_AUTHENTICATION = 42,   /* malformed, or of another kind */
  SDM_REASON_TOO_MANY_CONNECTIONS = 43,
  SDM_REASON_NOT_CONFIGURED = 44,           /* the daemon has no valid configuration */
  SDM_REASON_TOO_MUCH_INPUT = 45,           /* unprocessed data of the user */
  SDM_REASON_REQUEST_TOO_LARGE = 46,        /* a request has ended the connection */
  SDM_REASON_TOO_MANY_STREAMS = 47,         /* all streams of a template that the client could have are in use */
  SDM_REASON_OTHER_REQUEST = 48,            /* the stream is the answer to another request */
  SDM_REASON_NOT_KEPT = 49,                 /* a request for an upstream cannot be stored */
};

typedef struct sdm_event {
  uint64_t id;       /* rises; a step above 1 is no loss by itself: see gap */
  uint64_t time;     /* when the daemon received it, microseconds since the Unix epoch */
  const void *data;  /* `size` bytes, never NULL, aligned to 1; valid until the next call on the object that returned the event */
  size_t size;
  uint64_t gap;      /* events that this reader missed directly before this one, or SDM_GAP_UNKNOWN; 0: none */
  uint64_t left_out; /* events that the filter left out since the last delivery; 0 without `where` */
  uint32_t kind;     /* sdm_kind */
  uint32_t reserved0;
  const char *stream; /* of a subscription to a pattern: the name of the event's stream, valid as `data` is; NULL: it has one stream, or a marker */
  uint64_t position; /* of a subscription to a pattern: another one resumes after this event with SDM_FROM_ID; 0: with none yet */
} sdm_event;

/* Initialize with SDM_OPTIONS_INIT, then set members. NULL in place of options: SDM_OPTIONS_INIT. */
typedef struct sdm_options {
  size_t size;       /* sizeof(sdm_options) where the program was compiled. Later versions have more members: what a smaller size lacks has its
                        default; of a larger size the library accepts what it does not know if it is zero, else -EINVAL */
  sdm_from from;
  sdm_on_lag on_lag;
  uint64_t since;    /* for SDM_FROM_ID, _TIME, _AGO and _LAST */
  const char *where; /* a filter, JSON text as WIRE.md has it, such as {"/symbol":"AAPL"}; NULL: all events; not for maps */
  bool marker;       /* deliver markers; not for maps */
  bool reconnect;    /* after a loss of the connection: connect again (0.1 s to 5 s, with jitter, without end), and resume after the last
                        delivered id with the credit that remained; nothing is repeated, and what was lost is `gap`. Also if the daemon
                        stops. Before the first event the request is repeated as it was. A loss
                        within a state is -ECONNRESET: keys may have been removed since */
  uint32_t window;   /* credit that the library keeps open by itself, renewed as events are taken; 0: none, sdm_request() alone
                        grants */
} sdm_options;
#define SDM_OPTIONS_INIT { sizeof(sdm_options), SDM_FROM_REPLAY, SDM_ON_LAG_DEFAULT, 0, NULL, false, true, 0 }

/* --- connection --- */
/* NULL: $STREAMD_SOCKET, then /run/streamd/streamd.sock. "unix:/path", "/path", "tcp:host:port", "tcp:[address]:port", both also without "tcp:". Blocks until connected,
 * at most 10 s. A relative path, an empty string or another scheme: -EINVAL. Refusals that the daemon sends later are errors of later calls. */
int sdm_connect(sdm **ret, const char *address);
/* With a token, 1 to 1,024 bytes, which is sent with each connection, and ignored on Unix sockets. One that is not valid is -EACCES of later
 * calls. Nothing is encrypted. */
int sdm_connect_with_token(sdm **ret, const char *address, const char *token);
sdm *sdm_ref(sdm *c);
sdm *sdm_unref(sdm *c);                         /* returns NULL; NULL is ignored, here and below */
const char *sdm_error(const sdm *c);            /* of the last call on c or on an object of it that failed; never NULL; valid until the next call */
int sdm_reason(const sdm *c);                   /* the daemon's reason for that error, enum sdm_reason or a later one; 0: unknown, or not the daemon's */
int sdm_is_connected(sdm *c);                   /* 1; 0 while it reconnects; -ECONNRESET */
int sdm_set_timeout(sdm *c, uint64_t usec);     /* for sdm_get() and sdm_map(); without limit by default */
/* One descriptor for the life of c, the same over reconnects; readable when sdm_process() has work, timers (keepalive, reconnect) included.
 * sdm_next() makes no system call. So while only taking events can continue a subscription, it is also readable at once if some were
 * taken since the last sdm_process(), else after 1 ms to 1 s: the credit that they renew must be sent. It is readable as well if
 * sdm_get() or sdm_flush() have received something for a subscription. */
int sdm_get_fd(sdm *c);
int sdm_get_events(sdm *c);                     /* what to poll it for: POLLIN */
/* Receives and sends what is possible without blocking. 1: something was done, 0: nothing; an error: the connection has ended. */
int sdm_process(sdm *c);
/* Waits until sdm_process() has work. 1; 0: the time is over; -EINTR. What has arrived and is not taken is no work. */
int sdm_wait(sdm *c, uint64_t usec);
/* The newest event, or the first one if there is none yet. 0. Blocks; -EINTR, -ETIMEDOUT. `data` until the next sdm_get() on c. Asks
 * again after a loss if c reconnects. */
int sdm_get(sdm *c, const char *stream, sdm_event *e);

/* --- subscription --- */
/* A name with '*' is a pattern: all streams whose names fit, also later ones; '*' fits any characters, also '/'. They have one credit. Resumed
 * after a loss, such a subscription begins with the last position: nothing is missed, and what was delivered at that time or
 * later may be delivered again, with its id.
 * Does not block. The request is sent with its first credit, and refused as a result of sdm_next(): "from" counts from that moment. */
int sdm_subscribe(sdm *c, sdm_subscription **ret, const char *stream, const sdm_options *o);
/* Adds n, saturating. 0: -EINVAL. A marker costs one, too. SDM_UNLIMITED: for ever, granted in parts: at most 65,536 events and about 8 MiB
 * wait to be taken. Whatever the credit, sdm_process() reads no more while 64 MiB of events wait on the connection; sdm_get() and sdm_flush()
 * read on, and receive at most the events that had credit when they were called. */
int sdm_request(sdm_subscription *s, uint32_t n);
/* Takes what sdm_process() has received; no system call. 1: *e is the next event or marker, 0: none now, -ENODATA, or how it ended. */
int sdm_next(sdm_subscription *s, sdm_event *e);
/* As many as have arrived, at most n: their number. All stay valid until the next call. An error comes after the events before it. */
int sdm_next_batch(sdm_subscription *s, sdm_event *events, size_t n);
sdm_subscription *sdm_subscription_ref(sdm_subscription *s);
sdm_subscription *sdm_subscription_unref(sdm_subscription *s);   /* the last one cancels */

/* --- publisher --- */
/* Does not block. name: 1 to 48 bytes: values are numbered under it, kept until they are confirmed, and sent again after a loss of the
 * connection, which is restored: none is lost or repeated, over a restart or kill of the daemon. NULL: unnamed; a lost connection is
 * -ECONNRESET, and the values that were not confirmed may or may not be in the stream. */
int sdm_publisher_new(sdm *c, sdm_publisher **ret, const char *stream, const char *name);
/* Copies the value into a queue of at most 4,096 values and 8 MiB (or one value), which credit from the daemon drains; sends what is possible
 * without blocking. An empty value is confirmed, and no event; where the type is JSON, neither is white space alone.
 * A named publisher's values stay in the queue until they are confirmed. 0; -EAGAIN: the queue is full: sdm_flush, or
 * wait; -EMSGSIZE at once for what no request may have, else from sdm_flush(). */
int sdm_publish(sdm_publisher *p, const void *data, size_t size);
/* Waits until every value so far is in the stream. 0; -ETIMEDOUT, -EINTR: call again. Without a value: until the daemon has replied; an
 * unnamed publisher asks nothing before its first value. */
int sdm_flush(sdm_publisher *p, uint64_t usec);
/* *number: the last value that is known to be in the stream: for a named publisher its number, which counts over all processes that used the
 * name (so a program continues its input after it), else this publisher's count. -EAGAIN until the daemon has replied. */
int sdm_confirmed(sdm_publisher *p, uint64_t *number);
sdm_publisher *sdm_publisher_ref(sdm_publisher *p);
sdm_publisher *sdm_publisher_unref(sdm_publisher *p);   /* does not wait: values that were not flushed may be lost */

/* --- streams of templates, whose names have parameters. A subscription and a published value make such a stream as well --- */
/* Makes the stream; one that is there stays. Does not block: sdm_command_wait() has the result. */
int sdm_make(sdm *c, sdm_command **ret, const char *stream);
/* Ends the stream with its events; the next request for the name makes another one. For who made it, who may publish to it, and root. */
int sdm_forget(sdm *c, sdm_command **ret, const char *stream);
/* 1: the command has taken effect; 0: the time is over; -EINTR; -ENOENT: no template has the name, or there is no such stream; -EACCES;
 * -EOPNOTSUPP: a configured stream, or one of which another is made; -EDQUOT: all streams that this user may have are in use; -EIO: it could
 * not be made. Asks again after a loss if c reconnects; a stream that is not there then counts as forgotten. */
int sdm_command_wait(sdm_command *k, uint64_t usec);
/* Asks the upstream of a template that takes requests, once. `stream`: the stream of the answer, or its name without the last parameter, which
 * the daemon makes. sdm_command_wait() has the result, as above; -EOPNOTSUPP: the stream is the answer to another request; -EDQUOT also: the
 * request cannot be stored; -ECONNRESET: the connection was lost, and the upstream may have been asked. The same request with a whole name may
 * be repeated: it is the same answer. */
int sdm_request_stream(sdm *c, sdm_command **ret, const char *stream, const void *data, size_t size);
/* The stream of the answer, once the command has taken effect; else NULL. Lives as long as k. */
const char *sdm_command_stream(sdm_command *k);
sdm_command *sdm_command_ref(sdm_command *k);
sdm_command *sdm_command_unref(sdm_command *k);   /* before the result, the command may still take effect */

/* --- map: a stream with `map = true`, on a Unix socket; the layout is streamd-map.h --- */
/* Blocks until the daemon has passed the region: -EINTR, -ETIMEDOUT; -ENOENT, -EACCES, -EOPNOTSUPP; -EINVAL for where, marker, SDM_FROM_STATE. */
int sdm_map(sdm *c, sdm_mapped **ret, const char *stream, const sdm_options *o);
/* 1: the next event, a copy that was validated; 0: none now; -ENODATA; an error. Never blocks. No system call for an event; at least once
 * a second a call also does sdm_process(), for keepalive, credit and errors of the stream. An overtaken reader continues as on_lag says, and
 * `gap` has the exact number; SDM_ON_LAG_DEFAULT is skip. A new generation (reload, resize, restart) is mapped by itself after the last
 * event of the old one. */
int sdm_mapped_next(sdm_mapped *m, sdm_event *e);
/* As sdm_next_batch(), of events that lie side by side: maybe fewer than are there. */
int sdm_mapped_next_batch(sdm_mapped *m, sdm_event *events, size_t n);
/* 1: sdm_mapped_next() has an event or an end; 0: the time is over; -EINTR. By futex, and processes the connection at least once a second. */
int sdm_mapped_wait(sdm_mapped *m, uint64_t usec);
int sdm_mapped_get_generation(sdm_mapped *m, uint64_t *generation);    /* of the region that is read */
sdm_mapped *sdm_mapped_ref(sdm_mapped *m);
sdm_mapped *sdm_mapped_unref(sdm_mapped *m);

/* For __attribute__((cleanup(sdm_unrefp))) and the like. */
static inline void sdm_unrefp(sdm **p) { sdm_unref(*p); }
static inline void sdm_subscription_unrefp(sdm_subscription **p) { sdm_subscription_unref(*p); }
static inline void sdm_publisher_unrefp(sdm_publisher **p) { sdm_publisher_unref(*p); }
static inline void sdm_mapped_unrefp(sdm_mapped **p) { sdm_mapped_unref(*p); }
static inline void sdm_command_unrefp(sdm_command **p) { sdm_command_unref(*p); }
#ifdef __cplusplus
}
#endif
#endif

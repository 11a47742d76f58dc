/* shared.h: what the files of the extension module streamd._streamd share. It is limited to the stable ABI of Python 3.10.
 *
 * A connection has a list of handles, one for each subscription, publisher, map and command made from it. Closing the connection closes them. While a
 * thread waits without the GIL, the connection is busy: calls of other threads are refused, and what they drop is released
 * after the wait, because libstreamd admits one thread at a time. */
#ifndef STREAMD_SHARED_H
#define STREAMD_SHARED_H
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030A0000
#include <Python.h>
#include <structmember.h>

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>

#include "streamd.h"

/* The longest wait without a look at signals: one that arrives directly before a wait does not interrupt it. */
#define SLICE_USEC UINT64_C(1000000)

struct reader;
struct handle {
  struct handle *previous, *next; /* of the connection */
  sdm_subscription *s;            /* one of the four; all are NULL after closing */
  sdm_publisher *p;
  sdm_mapped *m;
  sdm_command *k;
  struct reader *reader;          /* the object of `s` or `m` */
  bool is_dropped;                /* its object is gone, and it waits to be released */
};

struct connection {
  PyObject_HEAD
  sdm *c; /* NULL: closed */
  struct handle *handles;
  bool is_busy, has_dropped;
};

/* --- module.c --- */
extern PyTypeObject *event_type, *connection_type;
extern PyObject *json_loads, *new_timedelta, *epoch; /* of the standard library */
PyObject *raise_error(struct connection *c, int code); /* the exception of a negative errno, with sdm_error(); returns NULL */
int read_timeout(PyObject *seconds, void *usec); /* a converter: None becomes UINT64_MAX */
uint64_t deadline_of(uint64_t usec);
uint64_t left_until(uint64_t deadline);

/* --- event.c --- */
extern PyType_Spec event_spec;
PyObject *new_event(const sdm_event *e);

/* --- connection.c --- */
extern PyType_Spec connection_spec;
bool may_use(struct connection *c);                 /* else sets an exception: closed, or in use by another thread */
struct handle *add_handle(struct connection *c);    /* NULL: an exception is set */
void drop_handle(struct connection *c, struct handle *h); /* of an object that is gone */
void close_handle(struct handle *h);
void begin_wait(struct connection *c);              /* before the GIL is released */
bool end_wait(struct connection *c);                /* after it is held again; false: a signal handler has raised, or closed c */
bool take_turn(struct connection *c, uint64_t until); /* processes, or waits at most a slice; false: an exception */

/* --- reader.c --- */
struct reader {
  PyObject_HEAD
  struct connection *connection;
  struct handle *h;
  PyObject **ready; /* events in ready[start..<end] */
  size_t start, end, capacity;
  uint32_t credit, taken; /* of a subscription: events in flight at most; taken ones that were not renewed */
  bool is_urgent;         /* its wait is not to depend on other subscriptions: see relieve() */
};
extern PyType_Spec reader_spec, subscription_spec; /* the first one is the base of the second one and of mapped_spec */
struct reader *new_reader(PyTypeObject *type, struct connection *connection); /* without an object of libstreamd yet */
bool is_readable(struct reader *self);  /* else sets an exception */
int fetch(struct reader *reader);       /* converts what has arrived: 1, 0: nothing, a negative errno, or INT_MIN: an exception */
bool wait_for_map(struct reader *self, uint64_t usec, int *result); /* at most a slice; result: 1, 0, -EINTR; false: an exception */

/* --- mapped.c, publisher.c, command.c --- */
extern PyType_Spec mapped_spec, publisher_spec, command_spec;
#endif

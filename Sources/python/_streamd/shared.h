/* shared.h: what the files of the extension module streamd._streamd share. It is limited to the stable ABI of Python 3.10.
 *
 * A connection has a list of handles, one for each subscription and publisher made from it. Closing the connection closes them. While a
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

struct subscription;
struct handle {
  struct handle *previous, *next; /* of the connection */
  sdm_subscription *s;            /* one of the two; both are NULL after closing */
  sdm_publisher *p;
  struct subscription *reader;    /* the object of `s` */
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

/* --- subscription.c, publisher.c --- */
extern PyType_Spec subscription_spec, publisher_spec;
int fetch(struct subscription *reader); /* converts what has arrived: 1, 0: nothing, a negative errno, or INT_MIN: an exception */
#endif

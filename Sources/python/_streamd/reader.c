/* Readers: subscriptions and maps. They fetch events in batches.
 *
 * Events that were fetched wait in `ready`. A subscription renews its credit for events that the program has taken from there, so
 * `credit` bounds what the daemon has sent and the program has not seen. libstreamd does this for maps. */
#include "shared.h"

#include <limits.h>

enum { BATCH = 256 };

/* --- events --- */

static bool make_room(struct reader *self, size_t count) {
  if (self->start == self->end) self->start = self->end = 0;
  if (self->end + count <= self->capacity) return true;
  size_t capacity = self->end + count + self->capacity;
  PyObject **ready = PyMem_Realloc(self->ready, capacity * sizeof *ready);
  if (!ready) {
    PyErr_NoMemory();
    return false;
  }
  self->ready = ready;
  self->capacity = capacity;
  return true;
}

static void renew(struct reader *self) {
  if (!self->h->s || self->taken < self->credit - self->credit / 2) return;
  sdm_request(self->h->s, self->taken);
  self->taken = 0;
}

/* At most half of the credit is fetched at once, so that the other half is on the way meanwhile. */
int fetch(struct reader *self) {
  sdm_event events[BATCH];
  size_t most = self->credit > 1 ? self->credit / 2 : 1;
  if (most > BATCH || self->h->m) most = BATCH;
  if (!make_room(self, most)) return INT_MIN;
  int count = self->h->m ? sdm_mapped_next_batch(self->h->m, events, most) : sdm_next_batch(self->h->s, events, most);
  for (int i = 0; i < count; i++) {
    PyObject *event = new_event(&events[i]);
    if (!event) return INT_MIN;
    self->ready[self->end++] = event;
  }
  return count < 0 ? count : count > 0;
}

/* Whether events are ready: 1, 0: none now, a negative errno: how it ended, or INT_MIN: an exception. */
static int look(struct reader *self) {
  if (self->start < self->end) return 1;
  renew(self);
  return fetch(self);
}

static PyObject *pop(struct reader *self) {
  self->taken++;
  return self->ready[self->start++];
}

/* Fetches what waits for other subscriptions. libstreamd stops reading while 64 MiB wait, so an answer behind them would not be read. */
static int relieve(struct reader *self) {
  for (struct handle *h = self->connection->handles; h; h = h->next) {
    int result = 1;
    while (h->s && h->reader && h->reader != self && result > 0) result = fetch(h->reader);
    if (result == INT_MIN) return result;
  }
  return 0;
}

static bool has_object(const struct reader *self) { return self->h->s || self->h->m; }

bool is_readable(struct reader *self) {
  if (has_object(self) && may_use(self->connection)) return true;
  if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "the subscription or the map is closed");
  return false;
}

bool wait_for_map(struct reader *self, uint64_t usec, int *result) {
  begin_wait(self->connection);
  Py_BEGIN_ALLOW_THREADS
  *result = sdm_mapped_wait(self->h->m, usec < SLICE_USEC ? usec : SLICE_USEC);
  Py_END_ALLOW_THREADS
  if (!end_wait(self->connection)) return false;
  if (*result >= 0 || *result == -EINTR) return true;
  raise_error(self->connection, *result);
  return false;
}

/* Waits for some time; false: an exception. */
static bool wait_until(struct reader *self, uint64_t until) {
  int result;
  return self->h->m ? wait_for_map(self, left_until(until), &result) : take_turn(self->connection, until);
}

/* Waits until an event of an open subscription is ready. 1; 0: the stream has completed; -1: an exception. */
static int fill(struct reader *self, uint64_t usec) {
  uint64_t until = 0;
  for (bool is_first = true;; is_first = false) {
    int result = look(self);
    if (result == 0 && self->is_urgent) result = relieve(self);
    if (result == 1) return 1;
    if (result == -ENODATA) return 0;
    if (result < 0) {
      if (result != INT_MIN) raise_error(self->connection, result);
      return -1;
    }
    if (is_first) {
      until = deadline_of(usec);
    } else if (!left_until(until)) {
      raise_error(NULL, -ETIMEDOUT);
      return -1;
    }
    if (!wait_until(self, until) || !is_readable(self)) return -1;
  }
}

/* --- the type --- */

struct reader *new_reader(PyTypeObject *type, struct connection *connection) {
  allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
  struct handle *h = add_handle(connection);
  struct reader *self = h ? (struct reader *)allocate(type, 0) : NULL;
  if (!self) {
    if (h) drop_handle(connection, h);
    return NULL;
  }
  Py_INCREF(connection);
  self->connection = connection;
  self->h = h;
  h->reader = self;
  return self;
}

static PyObject *subscription_new(PyTypeObject *type, PyObject *arguments, PyObject *words) {
  static char *names[] = {"connection", "stream", "start", "since", "on_lag", "where", "marker", "reconnect", "credit", "urgent", NULL};
  struct connection *connection;
  const char *stream;
  int start, on_lag, marker, reconnect, urgent = 0;
  unsigned long long since;
  unsigned int credit;
  sdm_options options = SDM_OPTIONS_INIT;
  if (!PyArg_ParseTupleAndKeywords(arguments, words, "O!siKizppI|p:Subscription", names, connection_type, &connection, &stream, &start,
                                   &since, &on_lag, &options.where, &marker, &reconnect, &credit, &urgent) ||
      !may_use(connection))
    return NULL;
  options.from = (sdm_from)start;
  options.since = since;
  options.on_lag = (sdm_on_lag)on_lag;
  options.marker = marker;
  options.reconnect = reconnect;
  sdm_subscription *s = NULL;
  int result = sdm_subscribe(connection->c, &s, stream, &options);
  if (result < 0) return raise_error(connection, result);
  struct reader *self = new_reader(type, connection);
  if (!self) {
    sdm_subscription_unref(s);
    return NULL;
  }
  self->credit = credit;
  self->is_urgent = urgent;
  self->h->s = s;
  sdm_request(s, credit);
  return (PyObject *)self;
}

static void forget_ready(struct reader *self) {
  while (self->start < self->end) Py_DECREF(self->ready[self->start++]);
}

static void reader_dealloc(struct reader *self) {
  PyTypeObject *type = Py_TYPE(self);
  forget_ready(self);
  PyMem_Free(self->ready);
  if (self->h) drop_handle(self->connection, self->h);
  Py_XDECREF(self->connection);
  freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
  release(self);
  Py_DECREF(type);
}

static PyObject *reader_close(struct reader *self, PyObject *unused) {
  (void)unused;
  if (has_object(self) && !may_use(self->connection)) return NULL;
  close_handle(self->h);
  forget_ready(self);
  Py_RETURN_NONE;
}

static PyObject *reader_check(struct reader *self, PyObject *unused) {
  (void)unused;
  if (!is_readable(self)) return NULL;
  Py_RETURN_NONE;
}

static PyObject *reader_iternext(struct reader *self) {
  if (has_object(self) && self->start < self->end) return pop(self);
  if (!is_readable(self)) return NULL;
  return fill(self, UINT64_MAX) == 1 ? pop(self) : NULL;
}

static PyObject *raise_end(void) {
  PyErr_SetString(PyExc_EOFError, "the stream has ended");
  return NULL;
}

static PyObject *reader_next(struct reader *self, PyObject *arguments, PyObject *words) {
  static char *names[] = {"timeout", NULL};
  uint64_t usec = UINT64_MAX;
  if (!PyArg_ParseTupleAndKeywords(arguments, words, "|O&:next", names, read_timeout, &usec) || !is_readable(self)) return NULL;
  int result = fill(self, usec);
  return result == 1 ? pop(self) : result == 0 ? raise_end() : NULL;
}

/* At most `limit` events that have arrived. */
static PyObject *take(struct reader *self, Py_ssize_t limit) {
  PyObject *list = PyList_New(0);
  while (list && PyList_Size(list) < limit) {
    int result = look(self);
    if (result == INT_MIN) Py_CLEAR(list);
    if (result != 1) break; /* an error is the result of the next call */
    PyObject *event = pop(self);
    if (PyList_Append(list, event) < 0) Py_CLEAR(list);
    Py_DECREF(event);
  }
  return list;
}

static bool is_limit(Py_ssize_t limit) {
  if (limit < 1) PyErr_SetString(PyExc_ValueError, "the limit of a batch is 1 or more");
  return limit >= 1;
}

static PyObject *reader_batch(struct reader *self, PyObject *arguments, PyObject *words) {
  static char *names[] = {"limit", "timeout", NULL};
  uint64_t usec = UINT64_MAX;
  Py_ssize_t limit = 1000;
  if (!PyArg_ParseTupleAndKeywords(arguments, words, "|nO&:batch", names, &limit, read_timeout, &usec) || !is_limit(limit) || !is_readable(self))
    return NULL;
  int result = fill(self, usec);
  return result == 1 ? take(self, limit) : result == 0 ? PyList_New(0) : NULL;
}

static PyObject *reader_is_ready(struct reader *self, PyObject *unused) {
  (void)unused;
  if (!is_readable(self)) return NULL;
  int result = look(self);
  if (result == 0 && self->is_urgent) result = relieve(self);
  return result == INT_MIN ? NULL : PyBool_FromLong(result != 0);
}

static PyMethodDef methods[] = {
  {"close", (PyCFunction)reader_close, METH_NOARGS, "Ends it."},
  {"next", (PyCFunction)(void (*)(void))reader_next, METH_VARARGS | METH_KEYWORDS,
   "next($self, timeout=None)\n--\n\nWaits for the next event. EOFError: the stream has completed."},
  {"batch", (PyCFunction)(void (*)(void))reader_batch, METH_VARARGS | METH_KEYWORDS,
   "batch($self, limit=1000, timeout=None)\n--\n\nWaits for one event, then takes what is there. Empty at the end of the stream."},
  {"_check", (PyCFunction)reader_check, METH_NOARGS, "Raises ValueError if it is closed."},
  {"_is_ready", (PyCFunction)reader_is_ready, METH_NOARGS, "Whether next() and batch() would not wait."},
  {0},
};
static PyType_Slot slots[] = {
  {Py_tp_dealloc, reader_dealloc},
  {Py_tp_iter, PyObject_SelfIter},
  {Py_tp_iternext, reader_iternext},
  {Py_tp_methods, methods},
  {0, NULL},
};
PyType_Spec reader_spec = {.name = "streamd._streamd._Reader", .basicsize = sizeof(struct reader),
                           .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION, .slots = slots};

static PyType_Slot subscription_slots[] = {{Py_tp_new, subscription_new}, {0, NULL}};
PyType_Spec subscription_spec = {.name = "streamd._streamd.Subscription", .basicsize = sizeof(struct reader),
                                 .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, .slots = subscription_slots};

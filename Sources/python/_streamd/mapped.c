/* Maps: how they are opened and waited for. They are read as subscriptions are: see reader.c. */
#include "shared.h"

/* Waits for the region, in slices. A signal handler may have closed the connection meanwhile. */
static sdm_mapped *open_map(struct connection *connection, const char *stream, const sdm_options *options, uint64_t usec) {
  sdm_mapped *m = NULL;
  uint64_t until = deadline_of(usec), left;
  int result;
  do {
    left = left_until(until);
    begin_wait(connection);
    Py_BEGIN_ALLOW_THREADS
    sdm_set_timeout(connection->c, left < SLICE_USEC ? left : SLICE_USEC);
    result = sdm_map(connection->c, &m, stream, options);
    Py_END_ALLOW_THREADS
    if (!end_wait(connection)) {
      sdm_mapped_unref(m);
      return NULL;
    }
  } while (result == -EINTR || (result == -ETIMEDOUT && left_until(until)));
  if (result < 0) raise_error(result == -ETIMEDOUT ? NULL : connection, result);
  return m;
}

static PyObject *mapped_new(PyTypeObject *type, PyObject *arguments, PyObject *words) {
  static char *names[] = {"connection", "stream", "start", "since", "on_lag", "reconnect", "timeout", NULL};
  struct connection *connection;
  const char *stream;
  int start, on_lag, reconnect;
  unsigned long long since;
  uint64_t usec = UINT64_MAX;
  sdm_options options = SDM_OPTIONS_INIT;
  if (!PyArg_ParseTupleAndKeywords(arguments, words, "O!siKip|O&:Mapped", names, connection_type, &connection, &stream, &start, &since, &on_lag,
                                   &reconnect, read_timeout, &usec) ||
      !may_use(connection))
    return NULL;
  options.from = (sdm_from)start;
  options.since = since;
  options.on_lag = (sdm_on_lag)on_lag;
  options.reconnect = reconnect;
  sdm_mapped *m = open_map(connection, stream, &options, usec);
  if (!m) return NULL;
  struct reader *self = new_reader(type, connection);
  if (self) self->h->m = m;
  else sdm_mapped_unref(m);
  return (PyObject *)self;
}

static PyObject *mapped_wait(struct reader *self, PyObject *seconds) {
  uint64_t usec;
  int result;
  if (!read_timeout(seconds, &usec) || !is_readable(self) || !wait_for_map(self, usec, &result)) return NULL;
  return PyBool_FromLong(result == 1);
}

static PyObject *mapped_generation(struct reader *self, void *closure) {
  (void)closure;
  uint64_t generation = 0;
  if (!is_readable(self)) return NULL;
  sdm_mapped_get_generation(self->h->m, &generation);
  return PyLong_FromUnsignedLongLong(generation);
}

static PyMethodDef methods[] = {
  {"_wait", (PyCFunction)mapped_wait, METH_O, "Waits for an event or an end, at most so many seconds, and at most one. False: there is none."},
  {0},
};
static PyGetSetDef properties[] = {
  {"generation", (getter)mapped_generation, NULL, "of the memory that is read: it rises with each reload and restart that replaces it", NULL},
  {0},
};
static PyType_Slot slots[] = {
  {Py_tp_new, mapped_new},
  {Py_tp_methods, methods},
  {Py_tp_getset, properties},
  {0, NULL},
};
PyType_Spec mapped_spec = {.name = "streamd._streamd.Mapped", .basicsize = sizeof(struct reader),
                           .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, .slots = slots};

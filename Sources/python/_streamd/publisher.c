/* Publishers: values, and the wait for their confirmation. */
#include "shared.h"

struct publisher {
  PyObject_HEAD
  struct connection *connection;
  struct handle *h;
  bool is_named;
};

static PyObject *publisher_new(PyTypeObject *type, PyObject *arguments, PyObject *words) {
  static char *names[] = {"connection", "stream", "name", NULL};
  struct connection *connection;
  const char *stream;
  char *name = NULL;
  PyObject *bytes;
  if (!PyArg_ParseTupleAndKeywords(arguments, words, "O!sO:Publisher", names, connection_type, &connection, &stream, &bytes) ||
      (bytes != Py_None && PyBytes_AsStringAndSize(bytes, &name, NULL) < 0) || !may_use(connection))
    return NULL;
  sdm_publisher *p = NULL;
  int result = sdm_publisher_new(connection->c, &p, stream, name);
  if (result < 0) return raise_error(connection, result);
  allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
  struct handle *h = add_handle(connection);
  struct publisher *self = h ? (struct publisher *)allocate(type, 0) : NULL;
  if (!self) {
    sdm_publisher_unref(p);
    if (h) drop_handle(connection, h);
    return NULL;
  }
  Py_INCREF(connection);
  self->connection = connection;
  self->h = h;
  self->is_named = name != NULL;
  h->p = p;
  return (PyObject *)self;
}

static void publisher_dealloc(struct publisher *self) {
  PyTypeObject *type = Py_TYPE(self);
  if (self->h) drop_handle(self->connection, self->h);
  Py_XDECREF(self->connection);
  freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
  release(self);
  Py_DECREF(type);
}

static bool is_open(struct publisher *self) {
  if (self->h->p && may_use(self->connection)) return true;
  if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "the publisher is closed");
  return false;
}

static PyObject *publisher_close(struct publisher *self, PyObject *unused) {
  (void)unused;
  if (self->h->p && !may_use(self->connection)) return NULL;
  close_handle(self->h);
  Py_RETURN_NONE;
}

static PyObject *publisher_check(struct publisher *self, PyObject *unused) {
  (void)unused;
  if (!is_open(self)) return NULL;
  Py_RETURN_NONE;
}

static PyObject *put(struct publisher *self, const char *data, Py_ssize_t size) {
  int result = sdm_publish(self->h->p, data, (size_t)size);
  if (result == -EBADF) result = sdm_flush(self->h->p, 0); /* how it ended */
  if (result == -EAGAIN) Py_RETURN_FALSE;
  if (result < 0) return raise_error(self->connection, result);
  Py_RETURN_TRUE;
}

static PyObject *publisher_put(struct publisher *self, PyObject *data) {
  Py_ssize_t size;
  if (!is_open(self)) return NULL;
  if (PyUnicode_Check(data)) {
    const char *text = PyUnicode_AsUTF8AndSize(data, &size);
    return text ? put(self, text, size) : NULL;
  }
  /* The stable ABI has no buffers before Python 3.11. */
  PyObject *view = PyBytes_Check(data) ? NULL : PyMemoryView_FromObject(data);
  if (!view && PyErr_Occurred()) {
    if (PyErr_ExceptionMatches(PyExc_TypeError)) PyErr_SetString(PyExc_TypeError, "a value is bytes or str");
    return NULL;
  }
  PyObject *bytes = view ? PyBytes_FromObject(view) : data;
  char *content;
  PyObject *result = NULL;
  if (bytes && PyBytes_AsStringAndSize(bytes, &content, &size) == 0) result = put(self, content, size);
  if (view) Py_XDECREF(bytes);
  Py_XDECREF(view);
  return result;
}

static PyObject *publisher_flush(struct publisher *self, PyObject *arguments, PyObject *words) {
  static char *names[] = {"timeout", NULL};
  uint64_t usec = UINT64_MAX;
  int result;
  if (!PyArg_ParseTupleAndKeywords(arguments, words, "|O&:flush", names, read_timeout, &usec) || !is_open(self)) return NULL;
  uint64_t until = deadline_of(usec), left;
  do {
    left = left_until(until);
    begin_wait(self->connection);
    Py_BEGIN_ALLOW_THREADS
    result = sdm_flush(self->h->p, left < SLICE_USEC ? left : SLICE_USEC);
    Py_END_ALLOW_THREADS
    if (!end_wait(self->connection) || !is_open(self)) return NULL;
  } while (result == -EINTR || (result == -ETIMEDOUT && left > SLICE_USEC));
  if (result < 0) return raise_error(self->connection, result);
  Py_RETURN_NONE;
}

static PyObject *publisher_is_flushed(struct publisher *self, PyObject *unused) {
  (void)unused;
  if (!is_open(self)) return NULL;
  int result = sdm_flush(self->h->p, 0);
  if (result < 0 && result != -ETIMEDOUT && result != -EINTR) return raise_error(self->connection, result);
  return PyBool_FromLong(result == 0);
}

/* An unnamed publisher counts from 0; where a name continues, only the daemon knows. */
static PyObject *publisher_confirmed(struct publisher *self, void *closure) {
  (void)closure;
  uint64_t number = 0;
  if (!is_open(self)) return NULL;
  int result = sdm_confirmed(self->h->p, &number);
  if (result == -EBADF) result = sdm_flush(self->h->p, 0);
  if (result < 0 && (result != -EAGAIN || self->is_named)) return raise_error(self->connection, result);
  return PyLong_FromUnsignedLongLong(number);
}

static PyMethodDef methods[] = {
  {"close", (PyCFunction)publisher_close, METH_NOARGS, "Ends it without waiting: values that were not flushed may be lost."},
  {"flush", (PyCFunction)(void (*)(void))publisher_flush, METH_VARARGS | METH_KEYWORDS,
   "flush($self, timeout=None)\n--\n\nWaits until every value so far is in the stream."},
  {"_check", (PyCFunction)publisher_check, METH_NOARGS, "Raises ValueError if it is closed."},
  {"_put", (PyCFunction)publisher_put, METH_O, "Queues a value. False: the queue is full."},
  {"_is_flushed", (PyCFunction)publisher_is_flushed, METH_NOARGS, "Begins to flush, and processes the connection, without waiting."},
  {0},
};
static PyGetSetDef properties[] = {
  {"confirmed", (getter)publisher_confirmed, NULL, "The number of the last value that is known to be in the stream.", NULL},
  {0},
};
static PyType_Slot slots[] = {
  {Py_tp_new, publisher_new},
  {Py_tp_dealloc, publisher_dealloc},
  {Py_tp_methods, methods},
  {Py_tp_getset, properties},
  {0, NULL},
};
PyType_Spec publisher_spec = {.name = "streamd._streamd.Publisher", .basicsize = sizeof(struct publisher),
                              .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, .slots = slots};

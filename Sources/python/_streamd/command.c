/* Commands, which make and end streams of templates, requests for an upstream, and the wait for their result. */
#include "shared.h"

struct command {
  PyObject_HEAD
  struct connection *connection;
  struct handle *h;
};

static PyObject *command_new(PyTypeObject *type, PyObject *arguments, PyObject *words) {
  static char *names[] = {"connection", "stream", "forget", "data", NULL};
  struct connection *connection;
  const char *stream;
  int is_forget, result;
  PyObject *data = NULL;
  char *body = NULL;
  Py_ssize_t size = 0;
  if (!PyArg_ParseTupleAndKeywords(arguments, words, "O!sp|S:Command", names, connection_type, &connection, &stream, &is_forget, &data) ||
      (data && PyBytes_AsStringAndSize(data, &body, &size) < 0) || !may_use(connection))
    return NULL;
  sdm_command *k = NULL;
  if (body) {
    result = sdm_request_stream(connection->c, &k, stream, body, (size_t)size);
  } else {
    result = is_forget ? sdm_forget(connection->c, &k, stream) : sdm_make(connection->c, &k, stream);
  }
  if (result < 0) return raise_error(connection, result);
  allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
  struct handle *h = add_handle(connection);
  struct command *self = h ? (struct command *)allocate(type, 0) : NULL;
  if (!self) {
    sdm_command_unref(k);
    if (h) drop_handle(connection, h);
    return NULL;
  }
  Py_INCREF(connection);
  self->connection = connection;
  self->h = h;
  h->k = k;
  return (PyObject *)self;
}

static void command_dealloc(struct command *self) {
  PyTypeObject *type = Py_TYPE(self);
  if (self->h) drop_handle(self->connection, self->h);
  Py_XDECREF(self->connection);
  freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
  release(self);
  Py_DECREF(type);
}

static bool is_open(struct command *self) {
  if (self->h->k && may_use(self->connection)) return true;
  if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "the command is closed");
  return false;
}

static PyObject *command_close(struct command *self, PyObject *unused) {
  (void)unused;
  if (self->h->k && !may_use(self->connection)) return NULL;
  close_handle(self->h);
  Py_RETURN_NONE;
}

static PyObject *command_wait(struct command *self, PyObject *arguments, PyObject *words) {
  static char *names[] = {"timeout", NULL};
  uint64_t usec = UINT64_MAX;
  int result;
  if (!PyArg_ParseTupleAndKeywords(arguments, words, "|O&:wait", names, read_timeout, &usec) || !is_open(self)) return NULL;
  uint64_t until = deadline_of(usec), left;
  do {
    left = left_until(until);
    begin_wait(self->connection);
    Py_BEGIN_ALLOW_THREADS
    result = sdm_command_wait(self->h->k, left < SLICE_USEC ? left : SLICE_USEC);
    Py_END_ALLOW_THREADS
    if (!end_wait(self->connection) || !is_open(self)) return NULL;
  } while (result == -EINTR || (result == 0 && left > SLICE_USEC));
  if (result == 0) return raise_error(NULL, -ETIMEDOUT);
  if (result < 0) return raise_error(self->connection, result);
  Py_RETURN_NONE;
}

static PyObject *command_is_done(struct command *self, PyObject *unused) {
  (void)unused;
  if (!is_open(self)) return NULL;
  int result = sdm_command_wait(self->h->k, 0);
  if (result < 0 && result != -EINTR) return raise_error(self->connection, result);
  return PyBool_FromLong(result == 1);
}

static PyObject *command_stream(struct command *self, PyObject *unused) {
  (void)unused;
  if (!is_open(self)) return NULL;
  const char *stream = sdm_command_stream(self->h->k);
  return PyUnicode_FromString(stream ? stream : "");
}

static PyMethodDef methods[] = {
  {"close", (PyCFunction)command_close, METH_NOARGS, "Gives it up: without a result, it may still take effect."},
  {"wait", (PyCFunction)(void (*)(void))command_wait, METH_VARARGS | METH_KEYWORDS,
   "wait($self, timeout=None)\n--\n\nWaits until it has taken effect."},
  {"_stream", (PyCFunction)command_stream, METH_NOARGS, "The stream of the answer to a request that has taken effect."},
  {"_is_done", (PyCFunction)command_is_done, METH_NOARGS, "Processes the connection, without waiting. True: it has taken effect."},
  {0},
};
static PyType_Slot slots[] = {
  {Py_tp_new, command_new},
  {Py_tp_dealloc, command_dealloc},
  {Py_tp_methods, methods},
  {0, NULL},
};
PyType_Spec command_spec = {.name = "streamd._streamd.Command", .basicsize = sizeof(struct command),
                            .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, .slots = slots};

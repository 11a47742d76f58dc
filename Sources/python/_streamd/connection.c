/* Connections: their handles, and waits without the GIL. */
#include "shared.h"

bool may_use(struct connection *c) {
  if (c->is_busy) PyErr_SetString(PyExc_RuntimeError, "another thread uses the connection");
  else if (!c->c) PyErr_SetString(PyExc_ValueError, "the connection is closed");
  else return true;
  return false;
}

/* --- handles --- */

struct handle *add_handle(struct connection *c) {
  struct handle *h = PyMem_Calloc(1, sizeof *h);
  if (!h) {
    PyErr_NoMemory();
    return NULL;
  }
  h->next = c->handles;
  if (h->next) h->next->previous = h;
  c->handles = h;
  return h;
}

void close_handle(struct handle *h) {
  h->s = sdm_subscription_unref(h->s);
  h->p = sdm_publisher_unref(h->p);
  h->m = sdm_mapped_unref(h->m);
  h->k = sdm_command_unref(h->k);
}

static void release_handle(struct connection *c, struct handle *h) {
  close_handle(h);
  if (h->previous) h->previous->next = h->next;
  else c->handles = h->next;
  if (h->next) h->next->previous = h->previous;
  PyMem_Free(h);
}

void drop_handle(struct connection *c, struct handle *h) {
  if (!c->is_busy) {
    release_handle(c, h);
    return;
  }
  h->reader = NULL;
  h->is_dropped = c->has_dropped = true;
}

/* --- waits --- */

void begin_wait(struct connection *c) { c->is_busy = true; }

bool end_wait(struct connection *c) {
  c->is_busy = false;
  if (c->has_dropped) {
    c->has_dropped = false;
    for (struct handle *h = c->handles, *next; h; h = next) {
      next = h->next;
      if (h->is_dropped) release_handle(c, h);
    }
  }
  return PyErr_CheckSignals() == 0 && may_use(c);
}

bool take_turn(struct connection *c, uint64_t until) {
  int result;
  uint64_t left = left_until(until);
  begin_wait(c);
  Py_BEGIN_ALLOW_THREADS
  result = sdm_process(c->c);
  if (result == 0) result = sdm_wait(c->c, left < SLICE_USEC ? left : SLICE_USEC);
  Py_END_ALLOW_THREADS
  return end_wait(c); /* how the connection ended is the result of each of its objects */
}

/* --- the type --- */

static PyObject *raise_connect_error(int code, const char *address, const char *token) {
  PyObject *errors = PyImport_ImportModule("streamd._errors");
  PyObject *error = errors ? PyObject_CallMethod(errors, "connect_error", "izz", -code, address, token) : NULL;
  if (error) PyErr_SetObject((PyObject *)Py_TYPE(error), error);
  Py_XDECREF(error);
  Py_XDECREF(errors);
  return NULL;
}

static PyObject *connection_new(PyTypeObject *type, PyObject *arguments, PyObject *words) {
  static char *names[] = {"address", "token", NULL};
  const char *address = NULL, *token = NULL;
  if (!PyArg_ParseTupleAndKeywords(arguments, words, "|zz:Connection", names, &address, &token)) return NULL;
  sdm *c = NULL;
  int result;
  do {
    Py_BEGIN_ALLOW_THREADS
    result = sdm_connect_with_token(&c, address, token);
    Py_END_ALLOW_THREADS
    if (PyErr_CheckSignals() < 0) {
      sdm_unref(c);
      return NULL;
    }
  } while (result == -EINTR);
  if (result == -ENOMEM) return PyErr_NoMemory();
  if (result < 0) return raise_connect_error(result, address, token);
  allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
  struct connection *self = (struct connection *)allocate(type, 0);
  if (self) self->c = c;
  else sdm_unref(c);
  return (PyObject *)self;
}

/* Its objects are closed with it. */
static void close_connection(struct connection *self) {
  for (struct handle *h = self->handles; h; h = h->next) close_handle(h);
  self->c = sdm_unref(self->c);
}

static void connection_dealloc(struct connection *self) {
  PyTypeObject *type = Py_TYPE(self);
  close_connection(self);
  freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
  release(self);
  Py_DECREF(type);
}

static PyObject *connection_close(struct connection *self, PyObject *unused) {
  (void)unused;
  if (self->c && !may_use(self)) return NULL;
  close_connection(self);
  Py_RETURN_NONE;
}

static PyObject *connection_fileno(struct connection *self, PyObject *unused) {
  (void)unused;
  return may_use(self) ? PyLong_FromLong(sdm_get_fd(self->c)) : NULL;
}

static PyObject *connection_check(struct connection *self, PyObject *unused) {
  (void)unused;
  if (!may_use(self)) return NULL;
  Py_RETURN_NONE;
}

static PyObject *connection_process(struct connection *self, PyObject *unused) {
  (void)unused;
  return may_use(self) ? PyBool_FromLong(sdm_process(self->c) >= 0) : NULL;
}

static PyObject *connection_lasts(struct connection *self, PyObject *unused) {
  (void)unused;
  return may_use(self) ? PyBool_FromLong(sdm_is_connected(self->c) >= 0) : NULL;
}

static PyMethodDef methods[] = {
  {"close", (PyCFunction)connection_close, METH_NOARGS, "Ends the connection, and closes what was made from it."},
  {"fileno", (PyCFunction)connection_fileno, METH_NOARGS, "The descriptor to poll: see sdm_get_fd()."},
  {"_check", (PyCFunction)connection_check, METH_NOARGS, "Raises ValueError if it is closed."},
  {"_process", (PyCFunction)connection_process, METH_NOARGS, "Receives and sends without blocking. False: it has ended."},
  {"_lasts", (PyCFunction)connection_lasts, METH_NOARGS, "Whether it is there, or is being restored."},
  {0},
};
static PyType_Slot slots[] = {
  {Py_tp_new, connection_new},
  {Py_tp_dealloc, connection_dealloc},
  {Py_tp_methods, methods},
  {0, NULL},
};
PyType_Spec connection_spec = {.name = "streamd._streamd.Connection", .basicsize = sizeof(struct connection),
                               .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, .slots = slots};

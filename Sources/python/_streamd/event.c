/* streamd.Event: an immutable value. */
#include "shared.h"

struct event {
  PyObject_HEAD
  unsigned long long id, time, gap, left_out;
  PyObject *data;   /* bytes */
  PyObject *stream; /* str, or None */
  unsigned long long position;
  char is_marker;
};

static struct event *make(unsigned long long id, unsigned long long time, PyObject *data) {
  struct event *self = PyObject_New(struct event, event_type);
  if (!self) {
    Py_DECREF(data);
    return NULL;
  }
  self->id = id;
  self->time = time;
  self->data = data;
  self->stream = Py_NewRef(Py_None);
  self->position = 0;
  self->gap = self->left_out = 0;
  self->is_marker = 0;
  return self;
}

PyObject *new_event(const sdm_event *e) {
  PyObject *data = PyBytes_FromStringAndSize(e->data, (Py_ssize_t)e->size);
  struct event *self = data ? make(e->id, e->time, data) : NULL;
  if (!self) return NULL;
  self->gap = e->gap;
  self->left_out = e->left_out;
  self->is_marker = e->kind == SDM_MARKER;
  self->position = e->position;
  if (e->stream) {
    Py_DECREF(self->stream);
    self->stream = PyUnicode_FromString(e->stream);
    if (!self->stream) {
      Py_DECREF(self);
      return NULL;
    }
  }
  return (PyObject *)self;
}

static int read_number(PyObject *object, void *number) {
  unsigned long long value = PyLong_AsUnsignedLongLong(object);
  if (PyErr_Occurred()) return 0;
  memcpy(number, &value, sizeof value);
  return 1;
}

static int read_gap(PyObject *object, void *number) {
  unsigned long long unknown = SDM_GAP_UNKNOWN;
  if (object != Py_None) return read_number(object, number);
  memcpy(number, &unknown, sizeof unknown);
  return 1;
}

static PyObject *event_new(PyTypeObject *type, PyObject *arguments, PyObject *words) {
  static char *names[] = {"id", "time_us", "data", "gap", "left_out", "is_marker", "stream", "position", NULL};
  unsigned long long id, time, gap = 0, left_out = 0, position = 0;
  PyObject *data, *stream = Py_None;
  int is_marker = 0;
  (void)type;
  if (!PyArg_ParseTupleAndKeywords(arguments, words, "O&O&S|O&O&pOO&:Event", names, read_number, &id, read_number, &time, &data,
                                   read_gap, &gap, read_number, &left_out, &is_marker, &stream, read_number, &position))
    return NULL;
  Py_INCREF(data);
  struct event *self = make(id, time, data);
  if (!self) return NULL;
  self->gap = gap;
  self->left_out = left_out;
  self->is_marker = (char)is_marker;
  Py_DECREF(self->stream);
  self->stream = Py_NewRef(stream);
  self->position = position;
  return (PyObject *)self;
}

static void event_dealloc(struct event *self) {
  PyTypeObject *type = Py_TYPE(self);
  Py_DECREF(self->data);
  Py_XDECREF(self->stream);
  PyObject_Free(self);
  Py_DECREF(type);
}

static PyObject *event_gap(struct event *self, void *closure) {
  (void)closure;
  if (self->gap == SDM_GAP_UNKNOWN) Py_RETURN_NONE;
  return PyLong_FromUnsignedLongLong(self->gap);
}

/* Exact: a float has not enough digits for microseconds. */
static PyObject *event_time(struct event *self, void *closure) {
  (void)closure;
  PyObject *since = PyObject_CallFunction(new_timedelta, "iiK", 0, 0, self->time);
  if (!since) return NULL;
  PyObject *time = PyNumber_Add(epoch, since);
  Py_DECREF(since);
  return time;
}

static PyObject *event_text(struct event *self, PyObject *unused) {
  (void)unused;
  return PyUnicode_FromEncodedObject(self->data, "utf-8", "strict");
}

static PyObject *event_json(struct event *self, PyObject *unused) {
  (void)unused;
  return PyObject_CallFunctionObjArgs(json_loads, self->data, NULL);
}

/* What the constructor accepts. */
static PyObject *parts(struct event *self) {
  PyObject *gap = event_gap(self, NULL);
  if (!gap) return NULL;
  return Py_BuildValue("KKONKOOK", self->id, self->time, self->data, gap, self->left_out, self->is_marker ? Py_True : Py_False,
                       self->stream, self->position);
}

static PyObject *event_reduce(struct event *self, PyObject *unused) {
  (void)unused;
  PyObject *content = parts(self);
  return content ? Py_BuildValue("ON", Py_TYPE(self), content) : NULL;
}

static PyObject *event_repr(struct event *self) {
  PyObject *content = parts(self);
  if (!content) return NULL;
  PyObject *format = PyUnicode_FromString("Event(id=%r, time_us=%r, data=%r, gap=%r, left_out=%r, is_marker=%r, stream=%r, position=%r)");
  PyObject *text = format ? PyUnicode_Format(format, content) : NULL;
  Py_XDECREF(format);
  Py_DECREF(content);
  return text;
}

static Py_hash_t event_hash(struct event *self) {
  PyObject *content = parts(self);
  Py_hash_t hash = content ? PyObject_Hash(content) : -1;
  Py_XDECREF(content);
  return hash;
}

static PyObject *event_compare(struct event *self, PyObject *other, int operation) {
  if ((operation != Py_EQ && operation != Py_NE) || Py_TYPE(other) != event_type) Py_RETURN_NOTIMPLEMENTED;
  struct event *that = (struct event *)other;
  int is_equal = self->id == that->id && self->time == that->time && self->gap == that->gap &&
                 self->left_out == that->left_out && self->is_marker == that->is_marker && self->position == that->position;
  if (is_equal) is_equal = PyObject_RichCompareBool(self->stream, that->stream, Py_EQ);
  if (is_equal > 0) is_equal = PyObject_RichCompareBool(self->data, that->data, Py_EQ);
  if (is_equal < 0) return NULL;
  return PyBool_FromLong((operation == Py_EQ) == is_equal);
}

static PyMemberDef members[] = {
  {"id", T_ULONGLONG, offsetof(struct event, id), READONLY, "rises; a step above 1 is no loss by itself"},
  {"time_us", T_ULONGLONG, offsetof(struct event, time), READONLY, "when the daemon received it, microseconds since the Unix epoch"},
  {"data", T_OBJECT_EX, offsetof(struct event, data), READONLY, "its bytes"},
  {"left_out", T_ULONGLONG, offsetof(struct event, left_out), READONLY, "events that the filter left out since the last one"},
  {"stream", T_OBJECT_EX, offsetof(struct event, stream), READONLY, "of a pattern: the name of its stream"},
  {"position", T_ULONGLONG, offsetof(struct event, position), READONLY, "of a pattern: since= of a subscription that resumes here; 0: none yet"},
  {"is_marker", T_BOOL, offsetof(struct event, is_marker), READONLY, "with marker=True: every event up to id was delivered"},
  {0},
};
static PyGetSetDef properties[] = {
  {"gap", (getter)event_gap, NULL, "events missed directly before this one; None: unknown how many", NULL},
  {"time", (getter)event_time, NULL, "when the daemon received it, an aware datetime in UTC", NULL},
  {0},
};
static PyMethodDef methods[] = {
  {"text", (PyCFunction)event_text, METH_NOARGS, "The data as UTF-8."},
  {"json", (PyCFunction)event_json, METH_NOARGS, "The value of the data as JSON."},
  {"__reduce__", (PyCFunction)event_reduce, METH_NOARGS, NULL},
  {0},
};
static PyType_Slot slots[] = {
  {Py_tp_doc, "One item of a stream. Immutable; equal and hashable by value; picklable."},
  {Py_tp_new, event_new},
  {Py_tp_dealloc, event_dealloc},
  {Py_tp_repr, event_repr},
  {Py_tp_hash, event_hash},
  {Py_tp_richcompare, event_compare},
  {Py_tp_members, members},
  {Py_tp_getset, properties},
  {Py_tp_methods, methods},
  {0, NULL},
};
PyType_Spec event_spec = {.name = "streamd.Event", .basicsize = sizeof(struct event), .flags = Py_TPFLAGS_DEFAULT, .slots = slots};

/* The module streamd._streamd: libstreamd's objects for Python. The package streamd adds types of arguments, and asyncio's side. */
#include "shared.h"

#include <math.h>
#include <string.h>
#include <time.h>

PyTypeObject *event_type, *connection_type;
PyObject *json_loads, *new_timedelta, *epoch;
static PyObject *error_of; /* streamd._errors.error_of(code, sentence, reason) */

PyObject *raise_error(struct connection *c, int code) {
  if (code == -EBADF && c && sdm_is_connected(c->c) < 0) code = sdm_is_connected(c->c); /* how the connection ended */
  if (code == -ENOMEM) return PyErr_NoMemory();
  PyObject *error = PyObject_CallFunction(error_of, "isi", -code, c ? sdm_error(c->c) : "the time is over", c ? sdm_reason(c->c) : 0);
  if (!error) return NULL;
  PyErr_SetObject((PyObject *)Py_TYPE(error), error);
  Py_DECREF(error);
  return NULL;
}

/* --- time --- */

int read_timeout(PyObject *seconds, void *usec) {
  uint64_t *to = usec;
  *to = UINT64_MAX;
  if (seconds == Py_None) return 1;
  double value = PyFloat_AsDouble(seconds);
  if (value == -1 && PyErr_Occurred()) return 0;
  if (isnan(value)) {
    PyErr_SetString(PyExc_ValueError, "a timeout is a number of seconds");
    return 0;
  }
  if (value < 1e12) *to = value > 0 ? (uint64_t)ceil(value * 1e6) : 0;
  return 1;
}

static uint64_t now_usec(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

uint64_t deadline_of(uint64_t usec) {
  uint64_t now = now_usec();
  return usec > UINT64_MAX - now ? UINT64_MAX : now + usec;
}

uint64_t left_until(uint64_t deadline) {
  uint64_t now = now_usec();
  return deadline > now ? deadline - now : 0;
}

/* --- the module --- */

static PyObject *import(const char *module, const char *name) {
  PyObject *from = PyImport_ImportModule(module);
  PyObject *object = from ? PyObject_GetAttrString(from, name) : NULL;
  Py_XDECREF(from);
  return object;
}

static bool import_others(void) {
  PyObject *datetime = import("datetime", "datetime"), *timezone = import("datetime", "timezone");
  PyObject *utc = timezone ? PyObject_GetAttrString(timezone, "utc") : NULL;
  if (datetime && utc) epoch = PyObject_CallFunction(datetime, "iiiiiiiO", 1970, 1, 1, 0, 0, 0, 0, utc);
  Py_XDECREF(datetime);
  Py_XDECREF(timezone);
  Py_XDECREF(utc);
  return epoch && (new_timedelta = import("datetime", "timedelta")) && (json_loads = import("json", "loads")) &&
         (error_of = import("streamd._errors", "error_of"));
}

static PyTypeObject *add_type(PyObject *module, PyType_Spec *spec, PyTypeObject *base) {
  PyObject *bases = base ? PyTuple_Pack(1, base) : NULL;
  if (base && !bases) return NULL;
  PyObject *type = PyType_FromSpecWithBases(spec, bases);
  Py_XDECREF(bases);
  if (!type) return NULL;
  Py_INCREF(type); /* for the caller */
  if (PyModule_AddObject(module, strrchr(spec->name, '.') + 1, type) == 0) return (PyTypeObject *)type;
  Py_DECREF(type);
  Py_DECREF(type);
  return NULL;
}

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, .m_name = "streamd._streamd", .m_size = -1};

PyMODINIT_FUNC PyInit__streamd(void) {
  PyObject *module = PyModule_Create(&definition);
  if (!module) return NULL;
  PyTypeObject *reader;
  if (import_others() && (event_type = add_type(module, &event_spec, NULL)) && (connection_type = add_type(module, &connection_spec, NULL)) &&
      (reader = add_type(module, &reader_spec, NULL)) && add_type(module, &subscription_spec, reader) &&
      add_type(module, &mapped_spec, reader) && add_type(module, &publisher_spec, NULL) && add_type(module, &command_spec, NULL))
    return module;
  Py_DECREF(module);
  return NULL;
}

// Bindings of dit/runtime.h: pinned host memory.
#include "dit/host_times.h"
#include "dit/runtime.h"
#include "module.h"

#define HOST_NUMBERS(X) \
  X(allocated_current)  \
  X(allocated_peak)     \
  X(allocated_total)    \
  X(freed_total) X(reserved_current) X(reserved_peak) X(allocations) X(frees) X(vendor_allocations) X(vendor_frees)

PyDoc_STRVAR(
    host_stats_doc,
    "host_stats() -> dict[str, Any]\n\nEvery field of struct dit_host_stats (bytes and counts of pinned memory).");
static PyObject *py_host_stats(PyObject *module, PyObject *unused) {
  (void)module;
  (void)unused;
  struct dit_host_stats stats = {0};
  dit_host_get_stats(&stats);
  PyObject *py_result = PyDict_New();
  if (!py_result) {
    return NULL;
  }
  int failed = 0;
#define HOST_ADD(field) \
  failed = failed < 0 ? failed : py_dict_take(py_result, #field, PyLong_FromUnsignedLongLong(stats.field));
  HOST_NUMBERS(HOST_ADD)
#undef HOST_ADD
  if (failed < 0) {
    Py_CLEAR(py_result);
  }
  return py_result;
}

PyDoc_STRVAR(host_times_doc,
             "host_times() -> tuple[dict[str, int], dict[str, int]]\n\nThe vendor's allocations and frees of pinned "
             "memory: count, and nanoseconds in total, max and min.");
static PyObject *py_host_times(PyObject *module, PyObject *unused) {
  (void)module;
  (void)unused;
  struct dit_host_times given, taken;
  dit_host_get_times(&given, &taken);
#define HOST_TIMES(t)                                                                                                 \
  "count", (unsigned long long)(t).count, "total", (unsigned long long)(t).total, "max", (unsigned long long)(t).max, \
      "min", (unsigned long long)(t).min
  return Py_BuildValue("({s:K,s:K,s:K,s:K}{s:K,s:K,s:K,s:K})", HOST_TIMES(given), HOST_TIMES(taken));
#undef HOST_TIMES
}

static PyObject *py_host_reset_peak(PyObject *module, PyObject *unused) {
  (void)module;
  (void)unused;
  dit_host_reset_peak();
  Py_RETURN_NONE;
}

static PyObject *py_host_empty_cache(PyObject *module, PyObject *unused) {
  (void)module;
  (void)unused;
  Py_BEGIN_ALLOW_THREADS;
  dit_host_empty_cache();
  Py_END_ALLOW_THREADS;
  Py_RETURN_NONE;
}

static PyObject *py_host_is_pinned(PyObject *module, PyObject *argument) {
  (void)module;
  void *address = NULL;
  if (py_address_convert(argument, &address) < 0) {
    return NULL;
  }
  return PyBool_FromLong(dit_host_is_pinned(address));
}

PyDoc_STRVAR(host_register_doc,
             "host_register(address: int, size: int, /) -> None\n\nPin memory that somebody else owns.");
static PyObject *py_host_register(PyObject *module, PyObject *args) {
  PyObject *argument = NULL;
  Py_ssize_t size = 0;
  void *address = NULL;
  if (!PyArg_ParseTuple(args, "On:host_register", &argument, &size) || py_address_convert(argument, &address) < 0) {
    return NULL;
  }
  if (size < 0) {
    return PyErr_Format(PyExc_ValueError, "size is %zd; it must not be negative", size);
  }
  struct dit_error err = {0};
  enum dit_status status;
  Py_BEGIN_ALLOW_THREADS;
  status = dit_host_register(address, (size_t)size, &err);
  Py_END_ALLOW_THREADS;
  return py_status_return(module, status, &err);
}

static PyObject *py_host_unregister(PyObject *module, PyObject *argument) {
  void *address = NULL;
  if (py_address_convert(argument, &address) < 0) {
    return NULL;
  }
  struct dit_error err = {0};
  enum dit_status status;
  Py_BEGIN_ALLOW_THREADS;
  status = dit_host_unregister(address, &err);
  Py_END_ALLOW_THREADS;
  return py_status_return(module, status, &err);
}

PyMethodDef py_host_methods[] = {
    {"host_stats", py_host_stats, METH_NOARGS, host_stats_doc},
    {"host_times", py_host_times, METH_NOARGS, host_times_doc},
    {"host_reset_peak", py_host_reset_peak, METH_NOARGS, "host_reset_peak() -> None"},
    {"host_empty_cache", py_host_empty_cache, METH_NOARGS,
     "host_empty_cache() -> None\n\nGive cached pinned memory back."},
    {"host_is_pinned", py_host_is_pinned, METH_O, "host_is_pinned(address: int, /) -> bool"},
    {"host_register", py_host_register, METH_VARARGS, host_register_doc},
    {"host_unregister", py_host_unregister, METH_O, "host_unregister(address: int, /) -> None"},
    {NULL, NULL, 0, NULL},
};

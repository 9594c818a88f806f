// Bindings of dit/runtime.h: streams. A stream is named by (device, id); id 0 is the default stream.
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "dit/runtime.h"
#include "module.h"

// (device, stream) arguments with the device checked. -1 with an exception.
static int stream_parse(PyObject *module, PyObject *args, const char *format, int *device, long long *stream) {
  return PyArg_ParseTuple(args, format, device, stream) ? py_device_check(module, *device) : -1;
}

PyDoc_STRVAR(stream_current_doc,
             "stream_current(device: int, /) -> int\n\nThe calling thread's current stream of the device.");
static PyObject *py_stream_current(PyObject *module, PyObject *args) {
  int device = 0;
  if (!PyArg_ParseTuple(args, "i:stream_current", &device) || py_device_check(module, device) < 0) {
    return NULL;
  }
  return PyLong_FromLongLong(dit_stream_get_current(device));
}

PyDoc_STRVAR(
    stream_set_doc,
    "stream_set(device: int, stream: int, /) -> None\n\nMake it the calling thread's current stream of the device.");
static PyObject *py_stream_set(PyObject *module, PyObject *args) {
  int device = 0;
  long long stream = 0;
  if (stream_parse(module, args, "iL:stream_set", &device, &stream) < 0) {
    return NULL;
  }
  struct dit_error err = {0};
  return py_status_return(module, dit_stream_set_current(device, stream, &err), &err);
}

PyDoc_STRVAR(stream_acquire_doc,
             "stream_acquire(device: int, priority: int = 0, /) -> int\n\nThe next stream of the device's pool; "
             "priority < 0 is high.");
static PyObject *py_stream_acquire(PyObject *module, PyObject *args) {
  int device = 0, priority = 0;
  if (!PyArg_ParseTuple(args, "i|i:stream_acquire", &device, &priority) || py_device_check(module, device) < 0) {
    return NULL;
  }
  int64_t stream = 0;
  struct dit_error err = {0};
  enum dit_status status = dit_stream_acquire(device, priority, &stream, &err);
  return status == DIT_OK ? PyLong_FromLongLong(stream) : py_status_raise(module, status, &err);
}

PyDoc_STRVAR(stream_raw_doc,
             "stream_raw(device: int, stream: int, /) -> int\n\nThe vendor's own handle; 0 for the default stream.");
static PyObject *py_stream_raw(PyObject *module, PyObject *args) {
  int device = 0;
  long long stream = 0;
  if (stream_parse(module, args, "iL:stream_raw", &device, &stream) < 0) {
    return NULL;
  }
  void *raw = NULL;
  struct dit_error err = {0};
  enum dit_status status = dit_stream_get_raw(device, stream, &raw, &err);
  return status == DIT_OK ? PyLong_FromVoidPtr(raw) : py_status_raise(module, status, &err);
}

PyDoc_STRVAR(stream_query_doc, "stream_query(device: int, stream: int, /) -> bool\n\nIs all its work done?");
static PyObject *py_stream_query(PyObject *module, PyObject *args) {
  int device = 0;
  long long stream = 0;
  if (stream_parse(module, args, "iL:stream_query", &device, &stream) < 0) {
    return NULL;
  }
  bool idle = false;
  struct dit_error err = {0};
  enum dit_status status = dit_stream_query(device, stream, &idle, &err);
  return status == DIT_OK ? PyBool_FromLong(idle) : py_status_raise(module, status, &err);
}

PyDoc_STRVAR(stream_synchronize_doc,
             "stream_synchronize(device: int, stream: int, /) -> None\n\nWait for all its work.");
static PyObject *py_stream_synchronize(PyObject *module, PyObject *args) {
  int device = 0;
  long long stream = 0;
  if (stream_parse(module, args, "iL:stream_synchronize", &device, &stream) < 0) {
    return NULL;
  }
  struct dit_error err = {0};
  enum dit_status status;
  Py_BEGIN_ALLOW_THREADS;
  status = dit_stream_synchronize(device, stream, &err);
  Py_END_ALLOW_THREADS;
  return py_status_return(module, status, &err);
}

PyDoc_STRVAR(stream_priority_doc,
             "stream_priority(device: int, stream: int, /) -> int\n\n0 is normal, less is higher.");
static PyObject *py_stream_priority(PyObject *module, PyObject *args) {
  int device = 0;
  long long stream = 0;
  if (stream_parse(module, args, "iL:stream_priority", &device, &stream) < 0) {
    return NULL;
  }
  return PyLong_FromLong(dit_stream_get_priority(device, stream));
}

static bool is_finalizing(void) {
#if PY_VERSION_HEX >= 0x030D0000
  return Py_IsFinalizing();
#else
  return _Py_IsFinalizing();
#endif
}

// Runs on a stream's worker thread, or inline in the caller, whose GIL was given up for the call. Once the interpreter
// is on its way out no thread may enter it any more: the callable is then dropped without being called.
static void call_python(void *argument) {
  PyObject *py_callable = argument;
  if (!Py_IsInitialized() || is_finalizing()) {
    return;
  }
  PyGILState_STATE gil = PyGILState_Ensure();
  PyObject *py_result = PyObject_CallNoArgs(py_callable);
  if (!py_result) {
    PyErr_WriteUnraisable(py_callable);
  }
  Py_XDECREF(py_result);
  Py_DECREF(py_callable);
  PyGILState_Release(gil);
}

PyDoc_STRVAR(stream_launch_host_doc,
             "stream_launch_host(device: int, stream: int, function: Callable[[], Any], /) -> None\n\nCall function() "
             "when the work queued so far is done. An exception in it goes to sys.unraisablehook.");
static PyObject *py_stream_launch_host(PyObject *module, PyObject *args) {
  int device = 0;
  long long stream = 0;
  PyObject *function = NULL;
  if (!PyArg_ParseTuple(args, "iLO:stream_launch_host", &device, &stream, &function) ||
      py_device_check(module, device) < 0) {
    return NULL;
  }
  if (!PyCallable_Check(function)) {
    return PyErr_Format(PyExc_TypeError, "function must be callable, not %.100s", Py_TYPE(function)->tp_name);
  }
  PyObject *py_callable = Py_NewRef(function);  // handed to call_python
  struct dit_error err = {0};
  enum dit_status status;
  Py_BEGIN_ALLOW_THREADS;
  status = dit_stream_launch_host(device, stream, call_python, py_callable, &err);
  Py_END_ALLOW_THREADS;
  if (status != DIT_OK) {
    Py_DECREF(py_callable);
  }
  return py_status_return(module, status, &err);
}

// Events are made by torch (struct dit_event behind torch.Event.event_id); the caller keeps them alive.
static struct dit_event *event_from(unsigned long long id) {
  return (struct dit_event *)(uintptr_t)id;
}

PyDoc_STRVAR(event_block_doc,
             "event_block(event_id: int, device: int, stream: int, /) -> None\n\nMake later work of the stream wait "
             "for the event; on the default stream, which runs inline, that means now.");
static PyObject *py_event_block(PyObject *module, PyObject *args) {
  unsigned long long id = 0;
  int device = 0;
  long long stream = 0;
  if (!PyArg_ParseTuple(args, "KiL:event_block", &id, &device, &stream) || py_device_check(module, device) < 0) {
    return NULL;
  }
  struct dit_error err = {0};
  enum dit_status status = DIT_OK;
  if (id) {
    Py_BEGIN_ALLOW_THREADS status = dit_event_block(event_from(id), device, stream, &err);
    Py_END_ALLOW_THREADS
  }
  return py_status_return(module, status, &err);
}

PyDoc_STRVAR(event_elapsed_doc,
             "event_elapsed(start_id: int, end_id: int, /) -> float\n\nMilliseconds between two events.");
static PyObject *py_event_elapsed(PyObject *module, PyObject *args) {
  unsigned long long start = 0, end = 0;
  if (!PyArg_ParseTuple(args, "KK:event_elapsed", &start, &end)) {
    return NULL;
  }
  struct dit_error err = {0};
  double milliseconds = 0;
  enum dit_status status = start && end ? dit_event_get_elapsed(event_from(start), event_from(end), &milliseconds, &err)
                                        : dit_error_set(&err, DIT_ERR_INVALID, "an event was not recorded");
  return status == DIT_OK ? PyFloat_FromDouble(milliseconds) : py_status_raise(module, status, &err);
}

static void sleep_on_stream(void *nanoseconds) {
  const long long total = (long long)(intptr_t)nanoseconds;
  struct timespec time = {.tv_sec = total / 1000000000, .tv_nsec = total % 1000000000};
  nanosleep(&time, NULL);
}

PyDoc_STRVAR(stream_sleep_doc,
             "stream_sleep(device: int, stream: int, nanoseconds: int, /) -> None\n\nOccupy the stream for that long.");
static PyObject *py_stream_sleep(PyObject *module, PyObject *args) {
  int device = 0;
  long long stream = 0, nanoseconds = 0;
  if (!PyArg_ParseTuple(args, "iLL:stream_sleep", &device, &stream, &nanoseconds) ||
      py_device_check(module, device) < 0) {
    return NULL;
  }
  struct dit_error err = {0};
  enum dit_status status;
  void *argument = (void *)(intptr_t)(nanoseconds > 0 ? nanoseconds : 0);
  Py_BEGIN_ALLOW_THREADS status = dit_stream_launch_host(device, stream, sleep_on_stream, argument, &err);
  Py_END_ALLOW_THREADS return py_status_return(module, status, &err);
}

PyMethodDef py_stream_methods[] = {
    {"stream_current", py_stream_current, METH_VARARGS, stream_current_doc},
    {"stream_set", py_stream_set, METH_VARARGS, stream_set_doc},
    {"stream_acquire", py_stream_acquire, METH_VARARGS, stream_acquire_doc},
    {"stream_raw", py_stream_raw, METH_VARARGS, stream_raw_doc},
    {"stream_query", py_stream_query, METH_VARARGS, stream_query_doc},
    {"stream_synchronize", py_stream_synchronize, METH_VARARGS, stream_synchronize_doc},
    {"stream_priority", py_stream_priority, METH_VARARGS, stream_priority_doc},
    {"stream_launch_host", py_stream_launch_host, METH_VARARGS, stream_launch_host_doc},
    {"stream_sleep", py_stream_sleep, METH_VARARGS, stream_sleep_doc},
    {"event_block", py_event_block, METH_VARARGS, event_block_doc},
    {"event_elapsed", py_event_elapsed, METH_VARARGS, event_elapsed_doc},
    {NULL, NULL, 0, NULL},
};

// Device helpers for Python: which there are, events and copies, and what their calls cost.
#include <string.h>
#include <time.h>

#include "py_helper.h"

// Events and copies

/// The helper and stream of a plain tensor; -1 with an exception.
static int site_find(PyObject *tensor, struct question *q) {
  if (question_check_tensor(tensor, "tensor") < 0) {
    return -1;
  }
  int token = engine_guard_raise();
  int ready = question_prepare(q, &tensor, 1, NULL);
  engine_guard_lower(token);
  if (!ready) {
    PyErr_SetString(PyExc_ValueError, "no helper in C serves the device of this tensor");
    return -1;
  }
  return 0;
}

PyDoc_STRVAR(time_doc,
             "helper_time(tensor: Tensor, function: Callable[[], Any], /) -> float\n\nMilliseconds between two events "
             "around function() on the current stream of the tensor's device.");
static PyObject *py_helper_time(PyObject *module, PyObject *args) {
  PyObject *tensor = NULL, *function = NULL, *py_value = NULL, *py_result = NULL;
  struct question q = {.kind = NUMBER_STATS};
  struct dit_error err = {0};
  void *events[2] = {NULL, NULL};
  double milliseconds = 0;
  if (!PyArg_ParseTuple(args, "OO:helper_time", &tensor, &function) || site_find(tensor, &q) < 0) {
    return NULL;
  }
  enum dit_status status = q.helper->event_create(q.device, &events[0], &err);
  if (status == DIT_OK) {
    status = q.helper->event_create(q.device, &events[1], &err);
  }
  if (status == DIT_OK) {
    status = q.helper->event_record(events[0], q.stream, &err);
  }
  if (status == DIT_OK && !(py_value = PyObject_CallNoArgs(function))) {
    goto done;
  }
  if (status == DIT_OK) {
    status = q.helper->event_record(events[1], q.stream, &err);
  }
  if (status == DIT_OK) {
    Py_BEGIN_ALLOW_THREADS;
    status = q.helper->event_wait(events[1], &err);
    Py_END_ALLOW_THREADS;
  }
  if (status == DIT_OK) {
    status = q.helper->event_get_elapsed(events[0], events[1], &milliseconds, &err);
  }
  py_result = status == DIT_OK ? PyFloat_FromDouble(milliseconds) : py_status_raise(module, status, &err);
done:
  Py_XDECREF(py_value);
  q.helper->event_destroy(events[0]);
  q.helper->event_destroy(events[1]);
  return py_result;
}

// Without the GIL: into staging memory, then wait by an event.
static enum dit_status copy_run(const struct question *q, size_t size, void **memory, struct dit_error *err) {
  void *event = NULL;
  if (q->settle) {
    DIT_RETURN_IF_NOT_OK(dit_runtime_get_vtable()->stream_synchronize(q->device, q->stream, err));
  }
  DIT_RETURN_IF_NOT_OK(q->helper->staging_allocate(size, memory, err));
  enum dit_status status = q->helper->event_create(q->device, &event, err);
  if (status == DIT_OK) {
    status = q->helper->copy_to_host(*memory, q->views[0].data, size, q->stream, err);
  }
  if (status == DIT_OK) {
    status = q->helper->event_record(event, q->stream, err);
  }
  if (status == DIT_OK) {
    status = q->helper->event_wait(event, err);
  }
  q->helper->event_destroy(event);
  return status;
}

PyDoc_STRVAR(
    copy_doc,
    "helper_copy(tensor: Tensor, /) -> bytes\n\nThe span of memory that a tensor covers, through staging memory.");
static PyObject *py_helper_copy(PyObject *module, PyObject *tensor) {
  struct question q = {.kind = NUMBER_STATS};
  struct dit_error err = {0};
  void *memory = NULL;
  int64_t low, high;
  if (site_find(tensor, &q) < 0) {
    return NULL;
  }
  dit_tensor_get_span(&q.views[0], &low, &high);
  enum dit_status status;
  Py_BEGIN_ALLOW_THREADS;
  status = copy_run(&q, (size_t)high, &memory, &err);
  Py_END_ALLOW_THREADS;
  PyObject *py_result =
      status == DIT_OK ? PyBytes_FromStringAndSize(memory, (Py_ssize_t)high) : py_status_raise(module, status, &err);
  q.helper->staging_free(memory);
  return py_result;
}

// What is here

PyDoc_STRVAR(names_doc, "helper_names() -> list[str]\n\nThe device helpers that work here: 'host', 'cuda'.");
static PyObject *py_helper_names(PyObject *module, PyObject *unused) {
  (void)module;
  (void)unused;
  static const char *const names[] = {"host", "cuda"};
  PyObject *py_list = PyList_New(0);
  for (size_t i = 0; py_list && i < sizeof names / sizeof *names; i++) {
    const struct dit_helper_vtable *helper;
    if (dit_helper_get(names[i], &helper, NULL) == DIT_OK) {
      PyObject *py_name = PyUnicode_FromString(names[i]);
      if (!py_name || PyList_Append(py_list, py_name) < 0) {
        Py_CLEAR(py_list);
      }
      Py_XDECREF(py_name);
    }
  }
  return py_list;
}

PyDoc_STRVAR(
    why_not_doc,
    "helper_why_not(name: str, /) -> str | None\n\nWhy a helper does not work here, or why it computes no numbers.");
static PyObject *py_helper_why_not(PyObject *module, PyObject *args) {
  const struct dit_helper_vtable *helper;
  struct dit_error err = {0};
  const char *name = NULL;
  if (!PyArg_ParseTuple(args, "s:helper_why_not", &name)) {
    return NULL;
  }
  enum dit_status status = dit_helper_get(name, &helper, &err);
  if (status == DIT_ERR_INVALID) {
    return py_status_raise(module, status, &err);
  }
  if (status != DIT_OK) {
    return PyUnicode_DecodeUTF8(err.message, (Py_ssize_t)strlen(err.message), "backslashreplace");
  }
  if (!helper->stats) {
    return PyUnicode_FromFormat("the helper '%s' was built without kernels (no nvcc at build time)", name);
  }
  Py_RETURN_NONE;
}

// What calls cost

#define COST_KINDS 5

static int64_t get_time(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

/// What is measured: a call on `count` copies of one view.
struct cost {
  const char *name;
  size_t size;
  int count;
  double host_ns, device_ns;
};

static enum dit_status cost_call(const struct question *q, const struct cost *cost, const struct dit_tensor_view *views,
                                 void *slots, void *event, struct dit_error *err) {
  if (strncmp(cost->name, "nonfinite", 9) == 0) {
    return q->helper->nonfinite(views, cost->count, q->stream, slots, 0, err);
  }
  if (strncmp(cost->name, "stats", 5) == 0) {
    return q->helper->stats(views, cost->count, q->stream, slots, 0, err);
  }
  if (strncmp(cost->name, "hash", 4) == 0) {
    return q->helper->hash(views, cost->count, q->stream, slots, 0, err);
  }
  return q->helper->event_record(event, q->stream, err);
}

/// `repeat` calls between two events, after one call that loads what is missing.
static enum dit_status cost_measure(const struct question *q, struct cost *cost, int repeat, void *const *events,
                                    struct dit_error *err) {
  struct dit_tensor_view views[DIT_HELPER_BATCH];
  void *slots = NULL;
  double milliseconds = 0;
  for (int i = 0; i < DIT_HELPER_BATCH; i++) {
    views[i] = q->views[0];
  }
  DIT_RETURN_IF_NOT_OK(q->helper->slots_create(q->device, cost->size, DIT_HELPER_BATCH, &slots, err));
  enum dit_status status = cost_call(q, cost, views, slots, events[2], err);
  status = status == DIT_OK ? q->helper->event_record(events[0], q->stream, err) : status;
  status = status == DIT_OK ? q->helper->event_wait(events[0], err) : status;
  status = status == DIT_OK ? q->helper->event_record(events[0], q->stream, err) : status;
  int64_t begin = get_time();
  for (int i = 0; i < repeat && status == DIT_OK; i++) {
    status = cost_call(q, cost, views, slots, events[2], err);
  }
  cost->host_ns = (double)(get_time() - begin) / repeat;
  status = status == DIT_OK ? q->helper->event_record(events[1], q->stream, err) : status;
  status = status == DIT_OK ? q->helper->event_wait(events[1], err) : status;
  status = status == DIT_OK ? q->helper->event_get_elapsed(events[0], events[1], &milliseconds, err) : status;
  cost->device_ns = milliseconds * 1e6 / repeat;
  q->helper->slots_destroy(slots);
  return status;
}

static enum dit_status costs_measure(const struct question *q, struct cost *costs, int repeat, struct dit_error *err) {
  void *events[3] = {NULL, NULL, NULL};
  enum dit_status status = DIT_OK;
  for (int i = 0; i < 3 && status == DIT_OK; i++) {
    status = q->helper->event_create(q->device, &events[i], err);
  }
  for (int i = 0; i < COST_KINDS && status == DIT_OK; i++) {
    status = cost_measure(q, &costs[i], repeat, events, err);
  }
  for (int i = 0; i < 3; i++) {
    q->helper->event_destroy(events[i]);
  }
  return status;
}

PyDoc_STRVAR(cost_doc,
             "helper_cost(tensor: Tensor, repeat: int = 100, /) -> dict[str, Any]\n\nNanoseconds of the host and of "
             "the device per call, by name: recording an event, flags, statistics and hash of the tensor (16 copies "
             "where the name says so).");
static PyObject *py_helper_cost(PyObject *module, PyObject *args) {
  struct cost costs[COST_KINDS] = {
      {"event_record", 1, 0, 0, 0},
      {"nonfinite", 1, 1, 0, 0},
      {"nonfinite_16", 1, 16, 0, 0},
      {"stats", sizeof(struct dit_tensor_stats), 1, 0, 0},
      {"hash", sizeof(struct dit_hash), 1, 0, 0},
  };
  struct question q = {.kind = NUMBER_STATS};
  struct dit_error err = {0};
  PyObject *tensor = NULL;
  int repeat = 100;
  if (!PyArg_ParseTuple(args, "O|i:helper_cost", &tensor, &repeat) || site_find(tensor, &q) < 0) {
    return NULL;
  }
  if (repeat < 1) {
    return PyErr_Format(PyExc_ValueError, "repeat is %d; valid: 1 or more", repeat);
  }
  enum dit_status status;
  Py_BEGIN_ALLOW_THREADS;
  status = costs_measure(&q, costs, repeat, &err);
  Py_END_ALLOW_THREADS;
  if (status != DIT_OK) {
    return py_status_raise(module, status, &err);
  }
  PyObject *py_dict = PyDict_New();
  for (int i = 0; py_dict && i < COST_KINDS; i++) {
    PyObject *py_pair = Py_BuildValue("(dd)", costs[i].host_ns, costs[i].device_ns);
    if (py_dict_take(py_dict, costs[i].name, py_pair) < 0) {
      Py_CLEAR(py_dict);
    }
  }
  return py_dict;
}

PyMethodDef py_helper_device_methods[] = {
    {"helper_names", py_helper_names, METH_NOARGS, names_doc},
    {"helper_why_not", py_helper_why_not, METH_VARARGS, why_not_doc},
    {"helper_time", py_helper_time, METH_VARARGS, time_doc},
    {"helper_copy", py_helper_copy, METH_O, copy_doc},
    {"helper_cost", py_helper_cost, METH_VARARGS, cost_doc},
    {NULL, NULL, 0, NULL},
};

// Timing events by place; see device.h.
//
// Invariant: an event belongs to its source and is either in the pool or out with exactly one owner. The pool is
// bounded by what was out at once, which the tools bound. Depends on dit/helper.h, dit/runtime.h (streams of the
// embedded device), torch.Event.
#include "tools/device.h"

#include <string.h>

#include "dit/runtime.h"

struct tools_source {
  struct tools_source *next;
  const struct dit_helper_vtable *helper;  // NULL: torch.Event
  PyObject *py_device;                     // torch.device, then
  void **idle;
  size_t idle_count, idle_capacity, created;
  int device;
  uint8_t place;
  bool forced;   // torch.Event was asked for
  bool refused;  // the device cannot make events: not asked again
};

// Sites

static void site_take(struct tools_site *site, const struct engine_tensor *tensor) {
  site->place = tensor->place;
  site->device = tensor->device_index;
  site->py_tensor = tensor->py_tensor;
  site->stream = engine_stream_get_current(tensor);
}

static bool is_device(uint8_t place) {
  return place == ENGINE_PLACE_HOST || place == ENGINE_PLACE_CUDA || place == ENGINE_PLACE_OTHER;
}

void tools_site_find(const struct engine_leaves *leaves, struct tools_site *site) {
  *site = (struct tools_site){.place = ENGINE_PLACE_NONE, .device = -1};
  for (int i = 0; i < leaves->tensor_count; i++) {
    const struct engine_tensor *tensor = &leaves->tensor[i];
    if (is_device(tensor->place)) {
      site_take(site, tensor);
      return;
    }
    if (tensor->place == ENGINE_PLACE_CPU) {
      site->place = ENGINE_PLACE_CPU;
    }
  }
}

void tools_site_find_among(PyObject *const *tensors, int count, struct tools_site *site) {
  *site = (struct tools_site){.place = ENGINE_PLACE_NONE, .device = -1};
  for (int i = 0; i < count; i++) {
    struct engine_tensor tensor;
    if (!tensors[i]) {
      continue;
    }
    engine_tensor_read(tensors[i], &tensor);
    if (is_device(tensor.place)) {
      site_take(site, &tensor);
    } else if (tensor.place == ENGINE_PLACE_CPU) {
      site->place = ENGINE_PLACE_CPU;
    }
    engine_tensor_reset(&tensor);
    if (is_device(site->place)) {
      return;
    }
  }
}

void tools_site_refresh(struct tools_site *site) {
  const struct engine_tensor tensor = {.place = site->place, .device_index = site->device};
  site->stream = engine_stream_get_current(&tensor);
}

bool tools_site_is_inline(const struct tools_site *site) {
  return site->place == ENGINE_PLACE_CPU || (site->place == ENGINE_PLACE_HOST && !site->stream);
}

const struct dit_helper_vtable *tools_site_get_helper(const struct tools_site *site) {
  static const struct dit_helper_vtable *host, *cuda;
  static bool host_asked, cuda_asked;  // under the GIL
  if (site->place == ENGINE_PLACE_CPU || site->place == ENGINE_PLACE_HOST) {
    if (!host_asked) {
      host_asked = true;
      (void)!dit_helper_get("host", &host, NULL);
    }
    return host;
  }
  if (site->place == ENGINE_PLACE_CUDA) {
    if (!cuda_asked) {
      cuda_asked = true;
      (void)!dit_helper_get("cuda", &cuda, NULL);
    }
    return cuda;
  }
  return NULL;
}

void tools_site_settle(const struct tools_site *site) {
  if (site->place != ENGINE_PLACE_HOST || !site->stream) {
    return;
  }
  int64_t stream = dit_stream_get_current(site->device);
  Py_BEGIN_ALLOW_THREADS;
  (void)!dit_stream_synchronize(site->device, stream, NULL);
  Py_END_ALLOW_THREADS;
}

// Sources

static int torch_source_prepare(struct tools_source *source, const struct tools_site *site) {
  if (!site->py_tensor) {
    return -1;
  }
  source->py_device = PyObject_GetAttrString(site->py_tensor, "device");
  if (!source->py_device) {
    py_error_drop();
    return -1;
  }
  return 0;
}

static bool source_serves(const struct tools_source *source, const struct tools_site *site, bool use_torch) {
  return source->place == site->place && source->device == site->device && source->forced == use_torch;
}

struct tools_source *tools_source_get(struct tools_sources *sources, const struct tools_site *site, bool use_torch) {
  if (!is_device(site->place) || (!use_torch && tools_site_is_inline(site))) {
    return NULL;
  }
  for (struct tools_source *source = sources->first; source; source = source->next) {
    if (source_serves(source, site, use_torch)) {
      return source->refused ? NULL : source;
    }
  }
  struct tools_source *source = PyMem_Calloc(1, sizeof *source);
  if (!source) {
    return NULL;
  }
  source->place = site->place;
  source->device = site->device;
  source->forced = use_torch;
  source->helper = use_torch ? NULL : tools_site_get_helper(site);
  if (!source->helper && torch_source_prepare(source, site) < 0) {
    PyMem_Free(source);  // a remembered site: wait for a tensor to ask
    return NULL;
  }
  source->next = sources->first;
  sources->first = source;
  return source;
}

static void event_destroy(struct tools_source *source, void *event) {
  if (source->helper) {
    source->helper->event_destroy(event);
  } else {
    Py_DECREF((PyObject *)event);
  }
}

void tools_sources_reset(struct tools_sources *sources) {
  while (sources->first) {
    struct tools_source *source = sources->first;
    sources->first = source->next;
    for (size_t i = 0; i < source->idle_count; i++) {
      event_destroy(source, source->idle[i]);
    }
    Py_XDECREF(source->py_device);
    PyMem_Free(source->idle);
    PyMem_Free(source);
  }
}

size_t tools_sources_get_created(const struct tools_sources *sources) {
  size_t created = 0;
  for (const struct tools_source *source = sources->first; source; source = source->next) {
    created += source->created;
  }
  return created;
}

// torch.Event

static PyObject *torch_event_create(const struct tools_source *source) {
  PyObject *class = torch_names.py_event_type;
  PyObject *py_arguments = PyTuple_Pack(1, source->py_device);
  PyObject *py_options = Py_BuildValue("{s:O}", "enable_timing", Py_True);
  PyObject *py_event = class && py_arguments && py_options ? PyObject_Call(class, py_arguments, py_options) : NULL;
  Py_XDECREF(py_arguments);
  Py_XDECREF(py_options);
  return py_event;
}

static bool torch_event_call(void *event, const char *method) {
  PyObject *py_answer = PyObject_CallMethod(event, method, NULL);
  Py_XDECREF(py_answer);
  py_error_drop();
  return py_answer != NULL;
}

static enum tools_passed torch_event_get_elapsed(PyObject *py_begin, PyObject *py_end, double *milliseconds) {
  PyObject *py_done = PyObject_CallMethod(py_end, "query", NULL);
  int done = py_done ? PyObject_IsTrue(py_done) : -1;
  Py_XDECREF(py_done);
  PyObject *py_elapsed = done > 0 ? PyObject_CallMethod(py_begin, "elapsed_time", "O", py_end) : NULL;
  *milliseconds = py_elapsed ? PyFloat_AsDouble(py_elapsed) : 0;
  Py_XDECREF(py_elapsed);
  bool failed = PyErr_Occurred() != NULL;
  py_error_drop();
  return failed ? TOOLS_FAILED : done == 0 ? TOOLS_NOT_YET : TOOLS_PASSED;
}

// Events

void *tools_event_take(struct tools_source *source) {
  void *event = NULL;
  if (source->idle_count) {
    return source->idle[--source->idle_count];
  }
  if (source->refused) {
    return NULL;
  }
  if (source->helper) {
    (void)!source->helper->event_create(source->device, &event, NULL);
  } else {
    event = torch_event_create(source);
    py_error_drop();
  }
  source->created += event != NULL;
  source->refused = !event;
  return event;
}

void tools_event_give(struct tools_source *source, void *event, bool spoiled) {
  if (!event) {
    return;
  }
  if (!spoiled && source->idle_count == source->idle_capacity) {
    size_t capacity = source->idle_capacity ? source->idle_capacity * 2 : 64;
    void **grown = PyMem_Realloc(source->idle, capacity * sizeof *grown);
    if (grown) {
      source->idle = grown;
      source->idle_capacity = capacity;
    }
  }
  if (spoiled || source->idle_count == source->idle_capacity) {
    event_destroy(source, event);
    source->created--;
    return;
  }
  source->idle[source->idle_count++] = event;
}

bool tools_event_record(struct tools_source *source, void *event, void *stream) {
  return source->helper ? source->helper->event_record(event, stream, NULL) == DIT_OK
                        : torch_event_call(event, "record");
}

enum tools_passed tools_event_get_elapsed(struct tools_source *source, void *begin, void *end, int64_t *nanoseconds) {
  double milliseconds = 0;
  enum tools_passed passed;
  if (source->helper) {
    enum dit_status status = source->helper->event_get_elapsed(begin, end, &milliseconds, NULL);
    passed = status == DIT_OK ? TOOLS_PASSED : status == DIT_ERR_UNSUPPORTED ? TOOLS_NOT_YET : TOOLS_FAILED;
  } else {
    passed = torch_event_get_elapsed(begin, end, &milliseconds);
  }
  if (passed == TOOLS_PASSED) {
    *nanoseconds = (int64_t)(milliseconds * 1e6 + 0.5);
  }
  return passed;
}

bool tools_event_wait(struct tools_source *source, void *event) {
  enum dit_status status;
  if (!source->helper) {
    return torch_event_call(event, "synchronize");
  }
  Py_BEGIN_ALLOW_THREADS;
  status = source->helper->event_wait(event, NULL);
  Py_END_ALLOW_THREADS;
  return status == DIT_OK;
}

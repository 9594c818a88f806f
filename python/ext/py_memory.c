// Bindings of dit/memory.h: statistics, snapshot and control of the caching allocator, in the shapes torch.cuda's
// functions return.
#include "dit/memory.h"
#include "dit/memory_pool.h"
#include "module.h"

// Statistics

static PyObject *stat_describe(const struct dit_memory_stat *stat) {
  return Py_BuildValue("{s:L,s:L,s:L,s:L}", "current", (long long)stat->current, "peak", (long long)stat->peak,
                       "allocated", (long long)stat->allocated, "freed", (long long)stat->freed);
}

static PyObject *pools_describe(const struct dit_memory_stat *stats) {
  static const char *const names[DIT_POOL_COUNT] = {"all", "small_pool", "large_pool"};
  PyObject *py_result = PyDict_New();
  for (int i = 0; py_result && i < DIT_POOL_COUNT; i++) {
    if (py_dict_take(py_result, names[i], stat_describe(&stats[i])) < 0) {
      Py_CLEAR(py_result);
    }
  }
  return py_result;
}

#define STATS_POOLS(X) \
  X(allocation)        \
  X(segment)           \
  X(active)            \
  X(inactive_split) X(allocated_bytes) X(reserved_bytes) X(active_bytes) X(inactive_split_bytes) X(requested_bytes)
#define STATS_NUMBERS(X) \
  X(num_alloc_retries) X(num_ooms) X(num_sync_all_streams) X(num_device_alloc) X(num_device_free) X(max_split_size)

PyDoc_STRVAR(memory_stats_doc,
             "memory_stats(device: int, /) -> dict[str, Any]\n\nNested as torch._C._cuda_memoryStats returns it.");
static PyObject *py_memory_stats(PyObject *module, PyObject *args) {
  int device = 0;
  if (!PyArg_ParseTuple(args, "i:memory_stats", &device) || py_device_check(module, device) < 0) {
    return NULL;
  }
  struct dit_memory_stats stats = {0};
  struct dit_error err = {0};
  enum dit_status status = dit_memory_get_stats(device, &stats, &err);
  if (status != DIT_OK) {
    return py_status_raise(module, status, &err);
  }
  PyObject *py_result = PyDict_New();
  if (!py_result) {
    return NULL;
  }
  int failed = 0;
#define STATS_ADD_POOLS(field) \
  failed = failed < 0 ? failed : py_dict_take(py_result, #field, pools_describe(stats.field));
#define STATS_ADD_NUMBER(field) \
  failed = failed < 0 ? failed : py_dict_take(py_result, #field, PyLong_FromLongLong(stats.field));
  STATS_NUMBERS(STATS_ADD_NUMBER)
  STATS_POOLS(STATS_ADD_POOLS)
#undef STATS_ADD_POOLS
#undef STATS_ADD_NUMBER
  if (failed < 0 || py_dict_take(py_result, "oversize_allocations", stat_describe(&stats.oversize_allocations)) < 0 ||
      py_dict_take(py_result, "oversize_segments", stat_describe(&stats.oversize_segments)) < 0) {
    Py_CLEAR(py_result);
  }
  return py_result;
}

// Snapshot

static PyObject *block_describe(const struct dit_memory_block *block) {
  static const char *const states[] = {"active_allocated", "active_pending_free", "inactive"};
  return Py_BuildValue("{s:N,s:n,s:n,s:s,s:[]}", "address", PyLong_FromVoidPtr((void *)(uintptr_t)block->address),
                       "size", (Py_ssize_t)block->size, "requested_size", (Py_ssize_t)block->requested_size, "state",
                       states[block->state], "frames");
}

static PyObject *segment_describe(const struct dit_memory_segment *segment) {
  PyObject *py_blocks = PyList_New(segment->block_count);
  for (int i = 0; py_blocks && i < segment->block_count; i++) {
    PyObject *py_block = block_describe(&segment->blocks[i]);
    if (!py_block) {
      Py_CLEAR(py_blocks);
      break;
    }
    PyList_SET_ITEM(py_blocks, i, py_block);
  }
  if (!py_blocks) {
    return NULL;
  }
  return Py_BuildValue(
      "{s:i,s:N,s:n,s:n,s:n,s:n,s:L,s:s,s:(iL),s:O,s:[],s:N}", "device", segment->device, "address",
      PyLong_FromVoidPtr((void *)(uintptr_t)segment->address), "total_size", (Py_ssize_t)segment->total_size,
      "allocated_size", (Py_ssize_t)segment->allocated_size, "active_size", (Py_ssize_t)segment->active_size,
      "requested_size", (Py_ssize_t)segment->requested_size, "stream", (long long)segment->stream, "segment_type",
      segment->large ? "large" : "small", "segment_pool_id", 0, (long long)dit_memory_pool_find(segment->address),
      "is_expandable", Py_False, "frames", "blocks", py_blocks);
}

static bool snapshot_add(void *context, const struct dit_memory_segment *segment) {
  PyObject *list = context;
  PyObject *py_segment = segment_describe(segment);
  int result = py_segment ? PyList_Append(list, py_segment) : -1;
  Py_XDECREF(py_segment);
  return result == 0;
}

PyDoc_STRVAR(memory_snapshot_doc,
             "memory_snapshot(device: int = -1, /) -> list[dict[str, Any]]\n\nOne dict per segment, as "
             "torch.cuda.memory_snapshot(); -1: all devices.");
static PyObject *py_memory_snapshot(PyObject *module, PyObject *args) {
  int device = -1;
  if (!PyArg_ParseTuple(args, "|i:memory_snapshot", &device) || (device != -1 && py_device_check(module, device) < 0)) {
    return NULL;
  }
  PyObject *py_list = PyList_New(0);
  if (!py_list) {
    return NULL;
  }
  struct dit_error err = {0};
  enum dit_status status = dit_memory_visit(device, snapshot_add, py_list, &err);
  if (status != DIT_OK && !PyErr_Occurred()) {
    (void)py_status_raise(module, status, &err);
  }
  if (PyErr_Occurred()) {
    Py_CLEAR(py_list);
  }
  return py_list;
}

// Control

PyDoc_STRVAR(
    memory_empty_cache_doc,
    "memory_empty_cache(device: int = -1, /) -> None\n\nGive unused segments back to the vendor; -1: all devices.");
static PyObject *py_memory_empty_cache(PyObject *module, PyObject *args) {
  int device = -1;
  if (!PyArg_ParseTuple(args, "|i:memory_empty_cache", &device) ||
      (device != -1 && py_device_check(module, device) < 0)) {
    return NULL;
  }
  struct dit_error err = {0};
  enum dit_status status;
  Py_BEGIN_ALLOW_THREADS;
  status = dit_memory_empty_cache(device, &err);
  Py_END_ALLOW_THREADS;
  return py_status_return(module, status, &err);
}

static PyObject *py_memory_reset_peak(PyObject *module, PyObject *args) {
  int device = 0;
  if (!PyArg_ParseTuple(args, "i:memory_reset_peak", &device) || py_device_check(module, device) < 0) {
    return NULL;
  }
  struct dit_error err = {0};
  return py_status_return(module, dit_memory_reset_peak(device, &err), &err);
}

static PyObject *py_memory_reset_accumulated(PyObject *module, PyObject *args) {
  int device = 0;
  if (!PyArg_ParseTuple(args, "i:memory_reset_accumulated", &device) || py_device_check(module, device) < 0) {
    return NULL;
  }
  struct dit_error err = {0};
  return py_status_return(module, dit_memory_reset_accumulated(device, &err), &err);
}

static PyObject *py_memory_set_fraction(PyObject *module, PyObject *args) {
  int device = 0;
  double fraction = 0;
  if (!PyArg_ParseTuple(args, "id:memory_set_fraction", &device, &fraction) || py_device_check(module, device) < 0) {
    return NULL;
  }
  struct dit_error err = {0};
  return py_status_return(module, dit_memory_set_fraction(device, fraction, &err), &err);
}

static PyObject *py_memory_get_fraction(PyObject *module, PyObject *args) {
  int device = 0;
  if (!PyArg_ParseTuple(args, "i:memory_get_fraction", &device) || py_device_check(module, device) < 0) {
    return NULL;
  }
  return PyFloat_FromDouble(dit_memory_get_fraction(device));
}

PyDoc_STRVAR(memory_configure_doc,
             "memory_configure(text: str | None, /) -> None\n\nThe grammar of PYTORCH_CUDA_ALLOC_CONF; None or '' "
             "resets to the defaults.");
static PyObject *py_memory_configure(PyObject *module, PyObject *argument) {
  const char *text = NULL;
  if (py_optional_text(argument, "the allocator configuration", &text) < 0) {
    return NULL;
  }
  struct dit_error err = {0};
  return py_status_return(module, dit_memory_configure(text, &err), &err);
}

static PyObject *py_memory_get_configuration(PyObject *module, PyObject *unused) {
  (void)module;
  (void)unused;
  return PyUnicode_FromString(dit_memory_get_configuration());
}

// Pools

static PyObject *choose_pool(PyObject *module, PyObject *args, bool begins) {
  int device = 0;
  long long pool = 0;
  if (!PyArg_ParseTuple(args, begins ? "iL:memory_pool_begin" : "iL:memory_pool_end", &device, &pool) ||
      py_device_check(module, device) < 0) {
    return NULL;
  }
  struct dit_error err = {0};
  enum dit_status status = begins ? dit_memory_pool_begin(device, pool, &err) : dit_memory_pool_end(device, pool, &err);
  return py_status_return(module, status, &err);
}

static PyObject *py_memory_pool_begin(PyObject *module, PyObject *args) {
  return choose_pool(module, args, true);
}

static PyObject *py_memory_pool_end(PyObject *module, PyObject *args) {
  return choose_pool(module, args, false);
}

static PyObject *py_memory_pool_release(PyObject *module, PyObject *args) {
  long long pool = 0;
  if (!PyArg_ParseTuple(args, "L:memory_pool_release", &pool)) {
    return NULL;
  }
  struct dit_error err = {0};
  enum dit_status status;
  Py_BEGIN_ALLOW_THREADS;
  status = dit_memory_pool_release(pool, &err);
  Py_END_ALLOW_THREADS;
  return py_status_return(module, status, &err);
}

// Blocks

PyDoc_STRVAR(
    memory_alloc_doc,
    "memory_alloc(device: int, stream: int, size: int, /) -> int\n\nThe address of a new block; 0 for size 0.");
static PyObject *py_memory_alloc(PyObject *module, PyObject *args) {
  int device = 0;
  long long stream = 0;
  Py_ssize_t size = 0;
  if (!PyArg_ParseTuple(args, "iLn:memory_alloc", &device, &stream, &size) || py_device_check(module, device) < 0) {
    return NULL;
  }
  if (size < 0) {
    return PyErr_Format(PyExc_ValueError, "size is %zd; it must not be negative", size);
  }
  void *address = NULL;
  struct dit_error err = {0};
  enum dit_status status;
  Py_BEGIN_ALLOW_THREADS;
  status = dit_memory_alloc(device, stream, (size_t)size, &address, &err);
  Py_END_ALLOW_THREADS;
  return status == DIT_OK ? PyLong_FromVoidPtr(address) : py_status_raise(module, status, &err);
}

PyDoc_STRVAR(memory_free_doc,
             "memory_free(address: int, /) -> None\n\nGive a block of memory_alloc back; 0 does nothing.");
static PyObject *py_memory_free(PyObject *module, PyObject *argument) {
  (void)module;
  void *address = NULL;
  if (py_address_convert(argument, &address) < 0) {
    return NULL;
  }
  Py_BEGIN_ALLOW_THREADS;
  dit_memory_free(address);
  Py_END_ALLOW_THREADS;
  Py_RETURN_NONE;
}

PyDoc_STRVAR(
    memory_find_doc,
    "memory_find(address: int, /) -> tuple[int, int, int] | None\n\nThe live block that contains the address.");
static PyObject *py_memory_find(PyObject *module, PyObject *argument) {
  (void)module;
  void *address = NULL, *base = NULL;
  size_t size = 0;
  int device = 0;
  if (py_address_convert(argument, &address) < 0) {
    return NULL;
  }
  if (!dit_memory_find(address, &base, &size, &device)) {
    Py_RETURN_NONE;
  }
  return Py_BuildValue("Nni", PyLong_FromVoidPtr(base), (Py_ssize_t)size, device);
}

PyMethodDef py_memory_methods[] = {
    {"memory_stats", py_memory_stats, METH_VARARGS, memory_stats_doc},
    {"memory_snapshot", py_memory_snapshot, METH_VARARGS, memory_snapshot_doc},
    {"memory_empty_cache", py_memory_empty_cache, METH_VARARGS, memory_empty_cache_doc},
    {"memory_reset_peak", py_memory_reset_peak, METH_VARARGS,
     "memory_reset_peak(device: int, /) -> None\n\nPeaks start again from the current values."},
    {"memory_reset_accumulated", py_memory_reset_accumulated, METH_VARARGS,
     "memory_reset_accumulated(device: int, /) -> None\n\nThe counts 'allocated' and 'freed' start again from 0."},
    {"memory_set_fraction", py_memory_set_fraction, METH_VARARGS,
     "memory_set_fraction(device: int, fraction: float, /) -> None\n\nShare of the device's memory this process may "
     "use, 0 < fraction <= 1."},
    {"memory_get_fraction", py_memory_get_fraction, METH_VARARGS, "memory_get_fraction(device: int, /) -> float"},
    {"memory_configure", py_memory_configure, METH_O, memory_configure_doc},
    {"memory_get_configuration", py_memory_get_configuration, METH_NOARGS,
     "memory_get_configuration() -> str\n\nThe text last accepted."},
    {"memory_pool_begin", py_memory_pool_begin, METH_VARARGS,
     "memory_pool_begin(device: int, pool: int, /) -> None\n\nThis thread's allocations come from the pool until the "
     "end."},
    {"memory_pool_end", py_memory_pool_end, METH_VARARGS, "memory_pool_end(device: int, pool: int, /) -> None"},
    {"memory_pool_release", py_memory_pool_release, METH_VARARGS,
     "memory_pool_release(pool: int, /) -> None\n\nIts free segments go back to the devices."},
    {"memory_alloc", py_memory_alloc, METH_VARARGS, memory_alloc_doc},
    {"memory_free", py_memory_free, METH_O, memory_free_doc},
    {"memory_find", py_memory_find, METH_O, memory_find_doc},
    {NULL, NULL, 0, NULL},
};

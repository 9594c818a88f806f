// The snapshot of storages; see capture/blob.h.
//
// Host memory is compared with its last snapshot and copied where it differs; CUDA memory goes through pinned memory on
// the current stream, with an event that the store waits for; what neither can reach is copied by torch's own
// operators.
#include <string.h>

#include "dit/runtime.h"
#include "py_call.h"
#include "tools/capture/blob.h"
#include "tools/capture/memory.h"
#include "tools/capture/reuse.h"
#include "torch_tensor.h"

#define COPY_WITHOUT_GIL (256 << 10)  // bytes from which a copy lets other threads run

static void blob_set(struct capture_blobs *blobs, int index, struct capture_memory *memory, const void *data) {
  size_t size = blobs->group[index].high - blobs->group[index].low;
  blobs->blob[index] = (struct dit_store_blob){.data = data,
                                               .size = size,
                                               .wait = memory->pending ? capture_memory_wait : NULL,
                                               .release = capture_memory_release,
                                               .context = memory,
                                               .identity = memory->identity};
  blobs->bytes += (int64_t)size;
}

static size_t groups_measure(const struct capture_blobs *blobs, int begin, int end) {
  size_t total = 0;
  for (int i = begin; i < end; i++) {
    total += (blobs->group[i].high - blobs->group[i].low + 15) & ~(size_t)15;
  }
  return total;
}

static int device_wait(const struct engine_tensor *tensor) {
  if (tensor->place != ENGINE_PLACE_HOST) {
    return 0;
  }
  int device = tensor->device_index;
  int64_t stream = dit_stream_get_current(device);
  struct dit_error err = {0};
  bool idle = false;
  enum dit_status status = dit_stream_query(device, stream, &idle, &err);
  if (status == DIT_OK && !idle) {
    Py_BEGIN_ALLOW_THREADS;
    status = dit_stream_synchronize(device, stream, &err);
    Py_END_ALLOW_THREADS;
  }
  if (status != DIT_OK) {
    PyErr_Format(PyExc_RuntimeError, "waiting for stream %lld of device %d: %s", (long long)stream, device,
                 err.message);
    return -1;
  }
  return 0;
}

// The last snapshot of the same bytes when they are still the same; else a copy. One reference for the caller.
static struct capture_memory *bytes_take(uintptr_t low, size_t size) {
  struct capture_memory *last = capture_reuse_find(low, size), *fresh = NULL;
  bool large = size >= COPY_WITHOUT_GIL;
  PyThreadState *state = large ? PyEval_SaveThread() : NULL;
  bool same = last && memcmp((const void *)low, last->data, size) == 0;
  if (!same && (fresh = capture_memory_create(size))) {
    memcpy(fresh->data, (const void *)low, size);
    capture_memory_identify(fresh);
  }
  if (large) {
    PyEval_RestoreThread(state);
  }
  if (same) {
    return last;
  }
  if (last) {
    capture_memory_release(last);
  }
  if (fresh) {
    capture_reuse_keep(low, size, fresh);
  }
  return fresh;
}

static size_t group_size(const struct capture_group *group) {
  return group->high - group->low;
}

// Small storages of the run share one block.
static int small_copy(struct capture_blobs *blobs, int begin, int end) {
  size_t total = 0;
  int count = 0;
  for (int i = begin; i < end; i++) {
    size_t size = group_size(&blobs->group[i]);
    if (size < CAPTURE_REUSE_LEAST) {
      total += (size + 15) & ~(size_t)15;
      count++;
    }
  }
  if (count == 0) {
    return 0;
  }
  struct capture_memory *memory = capture_memory_create(total);
  if (!memory) {
    PyErr_NoMemory();
    return -1;
  }
  atomic_store_explicit(&memory->references, count, memory_order_relaxed);
  unsigned char *to = memory->data;
  for (int i = begin; i < end; i++) {
    size_t size = group_size(&blobs->group[i]);
    if (size < CAPTURE_REUSE_LEAST) {
      if (size) {
        memcpy(to, (const void *)blobs->group[i].low, size);
      }
      blob_set(blobs, i, memory, to);
      to += (size + 15) & ~(size_t)15;
    }
  }
  return 0;
}

static int host_copy(struct capture_blobs *blobs, int begin, int end) {
  if (device_wait(blobs->group[begin].tensor) < 0) {
    return -1;
  }
  for (int i = begin; i < end; i++) {
    blobs->blob[i].release = NULL;
  }
  int status = small_copy(blobs, begin, end);
  for (int i = begin; status == 0 && i < end; i++) {
    size_t size = group_size(&blobs->group[i]);
    if (size < CAPTURE_REUSE_LEAST) {
      continue;
    }
    struct capture_memory *memory = bytes_take(blobs->group[i].low, size);
    if (!memory) {
      PyErr_NoMemory();
      status = -1;
      break;
    }
    blob_set(blobs, i, memory, memory->data);
  }
  for (int i = begin; status < 0 && i < end; i++) {
    if (blobs->blob[i].release) {
      blobs->blob[i].release(blobs->blob[i].context);
    }
  }
  blobs->copied = status < 0 ? begin : end;
  return status;
}

// A copy inside a CUDA graph's capture would become part of the graph and write to memory that is long gone.
static int graph_check(void) {
  if (py_call_is_true(torch_names.py_capturing, NULL)) {
    PyErr_SetString(PyExc_RuntimeError, "the stream is recording a CUDA graph: its tensors have no values yet");
    return -1;
  }
  return 0;
}

static const struct dit_helper_vtable *cuda_helper(void) {
  static const struct dit_helper_vtable *helper;
  static bool asked;
  if (!asked) {
    asked = true;
    if (dit_helper_get("cuda", &helper, NULL) != DIT_OK || !helper->staging_allocate || !helper->copy_to_host) {
      helper = NULL;
    }
  }
  return helper;
}

// 1: no pinned memory to be had, copy otherwise.
static int cuda_copy(struct capture_blobs *blobs, int begin, int end, const struct dit_helper_vtable *helper) {
  const struct engine_tensor *tensor = blobs->group[begin].tensor;
  void *stream = engine_stream_get_current(tensor);
  struct capture_memory *memory =
      capture_memory_create_pinned(groups_measure(blobs, begin, end) + 16, helper, tensor->device_index);
  if (!memory) {
    return 1;
  }
  struct dit_error err = {0};
  enum dit_status status = DIT_OK;
  size_t at = 0;
  for (int i = begin; i < end && status == DIT_OK; i++) {
    const struct capture_group *group = &blobs->group[i];
    size_t size = group->high - group->low;
    if (size) {
      status = helper->copy_to_host(memory->data + at, (const void *)group->low, size, stream, &err);
    }
    at += (size + 15) & ~(size_t)15;
  }
  enum dit_status followed = capture_memory_follow(memory, stream, status == DIT_OK ? &err : NULL);
  if (status != DIT_OK || followed != DIT_OK) {
    capture_memory_release(memory);
    PyErr_Format(PyExc_RuntimeError, "copying from device %d: %s", tensor->device_index, err.message);
    return -1;
  }
  atomic_store_explicit(&memory->references, end - begin, memory_order_relaxed);
  at = 0;
  for (int i = begin; i < end; i++) {
    blob_set(blobs, i, memory, memory->data + at);
    at += (blobs->blob[i].size + 15) & ~(size_t)15;
  }
  blobs->copied = end;
  return 0;
}

// uint8 tensor over the bytes of the storage: torch.empty(0, dtype=uint8, device).set_(storage, offset, (size,), (1,)).
static PyObject *bytes_view(const struct capture_group *group) {
  const struct engine_tensor *tensor = group->tensor;
  PyObject *py_offset = PyObject_CallOneArg(torch_names.py_offset, tensor->py_tensor);
  long long offset = py_offset ? PyLong_AsLongLong(py_offset) : -1;
  Py_XDECREF(py_offset);
  PyObject *py_plain = PyErr_Occurred() ? NULL : PyObject_CallOneArg(torch_names.py_detach, tensor->py_tensor);
  PyObject *py_storage = py_plain ? PyObject_CallOneArg(torch_names.py_storage, py_plain) : NULL;
  PyObject *py_device = py_storage ? PyObject_GetAttr(tensor->py_tensor, torch_names.py_text_device) : NULL;
  PyObject *py_bytes = py_device ? torch_empty_make(torch_names.py_dtypes[DIT_DTYPE_U8], py_device) : NULL;
  PyObject *py_view = NULL;
  if (py_bytes) {
    int16_t dtype = capture_dtype_find(tensor);
    long long begin = offset * (long long)dit_dtype_get_size(dtype) - (long long)((uintptr_t)tensor->data - group->low);
    py_view =
        PyObject_CallMethod(py_bytes, "set_", "OL(n)(i)", py_storage, begin, (Py_ssize_t)(group->high - group->low), 1);
  }
  Py_XDECREF(py_bytes);
  Py_XDECREF(py_device);
  Py_XDECREF(py_storage);
  Py_XDECREF(py_plain);
  return py_view;
}

static int torch_copy(struct capture_blobs *blobs, int index) {
  const struct capture_group *group = &blobs->group[index];
  size_t size = group->high - group->low;
  struct capture_memory *memory = capture_memory_create(size);
  if (!memory) {
    PyErr_NoMemory();
    return -1;
  }
  if (size) {
    PyObject *py_view = bytes_view(group);
    PyObject *py_host = py_view ? PyObject_CallMethod(py_view, "cpu", NULL) : NULL;
    Py_XDECREF(py_view);
    struct engine_tensor host = {0};
    if (py_host) {
      engine_tensor_read(py_host, &host);
    }
    if (!host.data || host.place != ENGINE_PLACE_CPU || (size_t)host.numel != size) {
      if (!PyErr_Occurred()) {
        PyErr_SetString(PyExc_RuntimeError, "the device's memory cannot be copied to the host");
      }
      engine_tensor_reset(&host);
      Py_XDECREF(py_host);
      capture_memory_release(memory);
      return -1;
    }
    memcpy(memory->data, host.data, size);
    engine_tensor_reset(&host);
    Py_DECREF(py_host);
  }
  blob_set(blobs, index, memory, memory->data);
  blobs->copied = index + 1;
  return 0;
}

// Groups [begin, end) are in one memory space of one device.
static int run_copy(struct capture_blobs *blobs, int begin, int end) {
  const struct engine_tensor *tensor = blobs->group[begin].tensor;
  bool host = tensor->place == ENGINE_PLACE_CPU || (tensor->place == ENGINE_PLACE_HOST && !blobs->plain);
  if (host) {
    return host_copy(blobs, begin, end);
  }
  if (tensor->place == ENGINE_PLACE_CUDA) {
    const struct dit_helper_vtable *helper = blobs->plain ? NULL : cuda_helper();
    int done = helper ? cuda_copy(blobs, begin, end, helper) : 1;
    if (done <= 0) {
      return done;
    }
    if (graph_check() < 0) {
      return -1;
    }
  }
  for (int i = begin; i < end; i++) {
    if (torch_copy(blobs, i) < 0) {
      return -1;
    }
  }
  return 0;
}

int capture_blobs_copy(struct capture_blobs *blobs) {
  for (int begin = blobs->copied; begin < blobs->group_count;) {
    const struct engine_tensor *first = blobs->group[begin].tensor;
    int end = begin + 1;
    while (end < blobs->group_count && blobs->group[end].tensor->place == first->place &&
           blobs->group[end].tensor->device_index == first->device_index) {
      end++;
    }
    if (run_copy(blobs, begin, end) < 0) {
      return -1;
    }
    begin = end;
  }
  return 0;
}

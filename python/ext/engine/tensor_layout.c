// Where torch keeps sizes, strides, dtype, device, key set and memory of a tensor: offsets found with probe tensors.
//
// PyTorch's getters and DLPack's C exchange answer the same questions in about 200 ns per tensor, which is half of what
// a tool may cost per call. The offsets are not written down here: a probe knows its own answers (from the public
// getters), and an offset is taken only if it is the one place that holds the right answer for every probe. tensor.c
// compares the first reads with torch's own answers as well. Nothing is ever written.
//
// Invariant: `layout.known` only with all offsets found. Reads stay within IMPL_BYTES of the tensor object and
// STORAGE_BYTES of the storage object, both smaller than the objects of every supported release.
#include "engine/tensor_layout.h"

#include <string.h>

#include "device_object.h"
#include "dit/log.h"

#define IMPL_BYTES 176
#define STORAGE_BYTES 48
#define MAX_PROBES 24
#define INLINE_DIMS 5

static struct {
  bool tried, known;
  int object;  // of the pointer to the tensor object inside the Python object
  int keys, numel, shape, dtype, device, storage, offset, grad;
  int data;  // inside the storage object
} layout;

// One probe with its true answers.
struct probe {
  PyObject *py_tensor;
  const char *impl, *storage;
  uint64_t keys;
  int64_t numel, offset, ndim;
  int64_t sizes[INLINE_DIMS], strides[INLINE_DIMS];
  const void *data;
  uint16_t dtype;
  struct dit_c10_device device;
  bool grad, fresh;
};

static uint64_t word_at(const char *base, int offset) {
  uint64_t word;
  memcpy(&word, base + offset, sizeof word);
  return word;
}

// The true answers

static int64_t int_of(PyObject *py_value) {
  int64_t value = py_value ? PyLong_AsLongLong(py_value) : -1;
  Py_XDECREF(py_value);
  return value;
}

static uint64_t address_of(PyObject *py_value) {
  void *address = py_value ? PyLong_AsVoidPtr(py_value) : NULL;
  Py_XDECREF(py_value);
  return (uint64_t)(uintptr_t)address;
}

static void tuple_read(PyObject *py_tuple, int64_t *out) {
  for (Py_ssize_t i = 0; py_tuple && PyTuple_Check(py_tuple) && i < PyTuple_GET_SIZE(py_tuple) && i < INLINE_DIMS;
       i++) {
    out[i] = PyLong_AsLongLong(PyTuple_GET_ITEM(py_tuple, i));
  }
  Py_XDECREF(py_tuple);
}

static int probe_read(struct probe *probe, PyObject *dispatch_keys) {
  PyObject *tensor = probe->py_tensor;
  PyObject *py_keys = PyObject_CallOneArg(dispatch_keys, tensor);
  PyObject *py_raw = py_keys ? PyObject_CallMethod(py_keys, "raw_repr", NULL) : NULL;
  probe->keys = py_raw ? PyLong_AsUnsignedLongLong(py_raw) : 0;
  Py_XDECREF(py_raw);
  Py_XDECREF(py_keys);
  probe->impl = (const char *)(uintptr_t)address_of(PyObject_GetAttrString(tensor, "_cdata"));
  PyObject *py_storage = PyObject_CallMethod(tensor, "untyped_storage", NULL);
  probe->storage =
      py_storage ? (const char *)(uintptr_t)address_of(PyObject_GetAttrString(py_storage, "_cdata")) : NULL;
  probe->data =
      py_storage ? (const void *)(uintptr_t)address_of(PyObject_CallMethod(py_storage, "data_ptr", NULL)) : NULL;
  Py_XDECREF(py_storage);
  probe->numel = int_of(PyObject_CallMethod(tensor, "numel", NULL));
  probe->offset = int_of(PyObject_CallMethod(tensor, "storage_offset", NULL));
  probe->ndim = int_of(PyObject_CallMethod(tensor, "dim", NULL));
  tuple_read(PyObject_CallMethod(tensor, "size", NULL), probe->sizes);
  tuple_read(PyObject_CallMethod(tensor, "stride", NULL), probe->strides);
  PyObject *py_dtype = PyObject_GetAttrString(tensor, "dtype");
  PyObject *py_text = py_dtype ? PyObject_Str(py_dtype) : NULL;
  const char *text = py_text ? PyUnicode_AsUTF8(py_text) : NULL;
  int dtype = text ? dit_dtype_find(text) : -1;
  Py_XDECREF(py_text);
  Py_XDECREF(py_dtype);
  PyObject *py_device = PyObject_GetAttrString(tensor, "device");
  if (py_device) {
    probe->device = *dit_device_object_get(py_device);
  }
  Py_XDECREF(py_device);
  PyObject *py_grad = PyObject_GetAttrString(tensor, "requires_grad");
  probe->grad = py_grad == Py_True;
  Py_XDECREF(py_grad);
  probe->dtype = (uint16_t)dtype;
  return PyErr_Occurred() || dtype < 0 || !probe->impl || !probe->storage ? -1 : 0;
}

// Where they are

typedef bool probe_test(const struct probe *probe, int offset);

static bool test_keys(const struct probe *p, int at) {
  return word_at(p->impl, at) == p->keys;
}
static bool test_numel(const struct probe *p, int at) {
  return word_at(p->impl, at) == (uint64_t)p->numel;
}
static bool test_offset(const struct probe *p, int at) {
  return word_at(p->impl, at) == (uint64_t)p->offset;
}
static bool test_storage(const struct probe *p, int at) {
  return word_at(p->impl, at) == (uint64_t)(uintptr_t)p->storage;
}
static bool test_grad(const struct probe *p, int at) {
  return p->grad ? word_at(p->impl, at) != 0 : !p->fresh || word_at(p->impl, at) == 0;
}
static bool test_data(const struct probe *p, int at) {
  return word_at(p->storage, at) == (uint64_t)(uintptr_t)p->data;
}
static bool test_dtype(const struct probe *p, int at) {
  uint16_t number;
  memcpy(&number, p->impl + at, sizeof number);
  return number == p->dtype;
}
// std::optional<Device>: the device, then whether there is one.
static bool test_device(const struct probe *p, int at) {
  return p->impl[at] == p->device.type && p->impl[at + 1] == p->device.index && p->impl[at + 2] == 1;
}
// The number of dimensions, five sizes, five strides.
static bool test_shape(const struct probe *p, int at) {
  if (at + 8 * (1 + 2 * INLINE_DIMS) > IMPL_BYTES || word_at(p->impl, at) != (uint64_t)p->ndim) {
    return false;
  }
  const char *sizes = p->impl + at + 8, *strides = sizes + 8 * INLINE_DIMS;
  return memcmp(sizes, p->sizes, (size_t)p->ndim * 8) == 0 && memcmp(strides, p->strides, (size_t)p->ndim * 8) == 0;
}
static bool test_object(const struct probe *p, int at) {
  return word_at((const char *)p->py_tensor, at) == (uint64_t)(uintptr_t)p->impl;
}

// The only offset at which every probe finds its answer; -1 when there is none or more than one.
static int offset_find(const struct probe *probes, int count, probe_test *test, int begin, int end, int step) {
  int found = -1;
  for (int at = begin; at < end; at += step) {
    bool right = true;
    for (int i = 0; i < count && right; i++) {
      right = test(&probes[i], at);
    }
    if (right && found >= 0) {
      return -1;
    }
    found = right ? at : found;
  }
  return found;
}

static bool layout_find(const struct probe *probes, int count) {
  int head = (int)sizeof(PyObject);
  layout.object = offset_find(probes, count, test_object, head, head + 24, 8);
  layout.keys = offset_find(probes, count, test_keys, 8, IMPL_BYTES - 7, 8);
  layout.numel = offset_find(probes, count, test_numel, 8, IMPL_BYTES - 7, 8);
  layout.offset = offset_find(probes, count, test_offset, 8, IMPL_BYTES - 7, 8);
  layout.storage = offset_find(probes, count, test_storage, 8, IMPL_BYTES - 7, 8);
  layout.shape = offset_find(probes, count, test_shape, 8, IMPL_BYTES - 7, 8);
  layout.dtype = offset_find(probes, count, test_dtype, 8, IMPL_BYTES - 1, 2);
  layout.device = offset_find(probes, count, test_device, 8, IMPL_BYTES - 2, 1);
  layout.grad = offset_find(probes, count, test_grad, 8, IMPL_BYTES - 7, 8);
  layout.data = offset_find(probes, count, test_data, 8, STORAGE_BYTES - 7, 8);
  return layout.object > 0 && layout.keys > 0 && layout.numel > 0 && layout.offset > 0 && layout.storage > 0 &&
         layout.shape > 0 && layout.dtype > 0 && layout.device > 0 && layout.grad > 0 && layout.data > 0;
}

// Tensors whose answers differ in every respect: dtypes, dimensions, offsets, devices, with and without gradient.
static const char probe_program[] =
    "import torch\n"
    "def grid(*sizes, dtype=torch.float32):\n"
    "    return torch.zeros(sizes, dtype=dtype, device='cpu')\n"
    "with torch.inference_mode(False), torch._C.DisableTorchFunction():\n"
    "    probes = [grid(3, 5), grid(2, 3, 7, dtype=torch.int64), grid(dtype=torch.bool), grid(11, "
    "dtype=torch.float64),\n"
    "              grid(2, 3, 4, 5, 6, dtype=torch.uint8), grid(13, 2, dtype=torch.bfloat16), grid(4, "
    "dtype=torch.int32),\n"
    "              grid(17, dtype=torch.complex64), grid(9, 9, dtype=torch.float16), grid(19, dtype=torch.int16)]\n"
    "    fresh = len(probes)\n"
    "    big = grid(23, 29)\n"
    "    probes += [big[3:, 2:], big.t()[5:], big[1, 1], grid(6, 7).requires_grad_(), torch.nn.Parameter(grid(31)),\n"
    "               grid(8, 3).requires_grad_(), torch.zeros(37, 41, device='meta'),\n"
    "               torch.frombuffer(bytearray(64), dtype=torch.float32)]\n";

static PyObject *probes_make(PyObject *py_scope) {
  PyObject *py_builtins = PyEval_GetBuiltins();  // borrowed
  if (PyDict_SetItemString(py_scope, "__builtins__", py_builtins) < 0) {
    return NULL;
  }
  PyObject *py_done = PyRun_String(probe_program, Py_file_input, py_scope, py_scope);
  Py_XDECREF(py_done);
  return py_done ? PyDict_GetItemString(py_scope, "probes") : NULL;  // borrowed
}

static bool probes_run(void) {
  struct probe probes[MAX_PROBES];
  memset(probes, 0, sizeof probes);
  PyObject *py_scope = torch_names.py_dispatch_keys ? PyDict_New() : NULL;
  PyObject *list = py_scope ? probes_make(py_scope) : NULL;
  PyObject *fresh = list ? PyDict_GetItemString(py_scope, "fresh") : NULL;
  int count = list && PyList_Check(list) && PyList_GET_SIZE(list) <= MAX_PROBES ? (int)PyList_GET_SIZE(list) : 0;
  bool ready = count > 0 && fresh;
  for (int i = 0; ready && i < count; i++) {
    probes[i].py_tensor = PyList_GET_ITEM(list, i);
    probes[i].fresh = i < (int)PyLong_AsLong(fresh);
    ready = probe_read(&probes[i], torch_names.py_dispatch_keys) == 0;
  }
  bool known = ready && layout_find(probes, count);
  py_error_drop();
  Py_XDECREF(py_scope);
  return known;
}

void engine_layout_load(void) {
  if (layout.tried) {
    return;
  }
  layout.tried = true;
  layout.known = probes_run();
}

void engine_layout_distrust(void) {
  layout.known = false;
  dit_log_write(DIT_LOG_WARNING,
                "tensors of this PyTorch are not laid out as its own getters say; the tools go the slower way");
}

bool engine_layout_is_known(void) {
  return layout.known;
}

bool engine_layout_read(PyObject *tensor, struct engine_layout *out) {
  if (!layout.known) {
    return false;
  }
  const char *impl = (const char *)(uintptr_t)word_at((const char *)tensor, layout.object);
  uint64_t ndim = impl ? word_at(impl, layout.shape) : UINT64_MAX;
  if (ndim > INLINE_DIMS) {
    return false;  // kept elsewhere
  }
  const char *storage = (const char *)(uintptr_t)word_at(impl, layout.storage);
  uint16_t dtype;
  memcpy(&dtype, impl + layout.dtype, sizeof dtype);
  out->keys = word_at(impl, layout.keys);
  out->ndim = (int32_t)ndim;
  out->sizes = (const int64_t *)(const void *)(impl + layout.shape + 8);
  out->strides = out->sizes + INLINE_DIMS;
  out->numel = (int64_t)word_at(impl, layout.numel);
  out->dtype = (int16_t)dtype;
  out->device_type = impl[layout.device];
  out->device_index = impl[layout.device + 1];
  out->may_require_grad = word_at(impl, layout.grad) != 0;
  char *data = storage ? (char *)(uintptr_t)word_at(storage, layout.data) : NULL;
  out->data = data ? data + (int64_t)word_at(impl, layout.offset) * (int64_t)dit_dtype_get_size(dtype) : NULL;
  return true;
}

// Metadata of tensors: DLPack's C exchange for ordinary ones, torch's attributes for the rest.
//
// The exchange fails slowly (milliseconds, a C++ exception) for tensors without plain memory, so those are recognised
// first by getters that cost some ten nanoseconds each: layout, meta, quantized, nested; wrapper subclasses by their
// type.
#include <string.h>

#include "device_object.h"
#include "dit/record.h"
#include "dit/runtime.h"
#include "dit/stage.h"
#include "engine/exchange.h"
#include "engine/internal.h"
#include "engine/tensor_layout.h"

// Types

enum family {
  FAMILY_PLAIN,    // memory of its own
  FAMILY_WRAPPER,  // intercepts dispatch (DTensor, jagged tensors ...): torch's operators can read it, we cannot
  FAMILY_FAKE,     // has no values at all
};

#define TYPE_CACHE 64
static struct {
  PyTypeObject *type;  // owned
  enum family family;
} type_cache[TYPE_CACHE];

static enum family subclass_get_family(PyTypeObject *type) {
  size_t at = ((uintptr_t)type >> 4) % TYPE_CACHE;
  if (type_cache[at].type == type) {
    return type_cache[at].family;
  }
  PyObject *py_own = PyObject_GetAttrString((PyObject *)type, "__torch_dispatch__");
  PyObject *py_base = PyObject_GetAttrString(torch_names.py_tensor_type, "__torch_dispatch__");
  py_error_drop();
  enum family family = py_own && py_own == py_base ? FAMILY_PLAIN : FAMILY_WRAPPER;
  if (strstr(type->tp_name, "FakeTensor") || strstr(type->tp_name, "FunctionalTensor")) {
    family = FAMILY_FAKE;
  }
  Py_XDECREF(py_own);
  Py_XDECREF(py_base);
  Py_INCREF(type);
  Py_XDECREF((PyObject *)type_cache[at].type);
  type_cache[at].type = type;
  type_cache[at].family = family;
  return family;
}

bool engine_is_tensor(PyObject *object) {
  PyTypeObject *type = Py_TYPE(object);
  return (PyObject *)type == torch_names.py_tensor_type || (PyObject *)type == torch_names.py_parameter_type ||
         PyType_IsSubtype(type, (PyTypeObject *)torch_names.py_tensor_type);
}

static bool type_is_ordinary(PyObject *tensor) {
  PyObject *type = (PyObject *)Py_TYPE(tensor);
  return type == torch_names.py_tensor_type || type == torch_names.py_parameter_type ||
         type == torch_names.py_buffer_type;
}

// Dtypes

// DLPack's (code, bits) -> enum dit_dtype.
static int16_t dtype_convert(uint8_t code, uint8_t bits) {
  static const struct {
    uint8_t code, bits;
    int16_t dtype;
  } table[] = {{2, 32, DIT_DTYPE_F32},     {4, 16, DIT_DTYPE_BF16},        {2, 16, DIT_DTYPE_F16},
               {0, 64, DIT_DTYPE_I64},     {6, 8, DIT_DTYPE_BOOL},         {2, 64, DIT_DTYPE_F64},
               {0, 32, DIT_DTYPE_I32},     {1, 8, DIT_DTYPE_U8},           {0, 8, DIT_DTYPE_I8},
               {0, 16, DIT_DTYPE_I16},     {1, 16, DIT_DTYPE_U16},         {1, 32, DIT_DTYPE_U32},
               {1, 64, DIT_DTYPE_U64},     {5, 32, DIT_DTYPE_C32},         {5, 64, DIT_DTYPE_C64},
               {5, 128, DIT_DTYPE_C128},   {10, 8, DIT_DTYPE_F8_E4M3FN},   {11, 8, DIT_DTYPE_F8_E4M3FNUZ},
               {12, 8, DIT_DTYPE_F8_E5M2}, {13, 8, DIT_DTYPE_F8_E5M2FNUZ}, {14, 8, DIT_DTYPE_F8_E8M0FNU}};
  for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
    if (table[i].code == code && table[i].bits == bits) {
      return table[i].dtype;
    }
  }
  return -1;
}

// torch.float32 -> its number, by its text.
static int16_t dtype_read(PyObject *tensor) {
  PyObject *py_dtype = engine_torch.dtype ? engine_tensor_get(tensor, engine_torch.dtype) : NULL;
  PyObject *py_text = py_dtype ? PyObject_Str(py_dtype) : NULL;
  const char *text = py_text ? PyUnicode_AsUTF8(py_text) : NULL;
  int16_t dtype = text ? (int16_t)dit_dtype_find(text) : -1;
  Py_XDECREF(py_text);
  Py_XDECREF(py_dtype);
  py_error_drop();
  return dtype;
}

// Places

/// Of ditorch's own device: memory that the host cannot read is read by torch's operators, as any accelerator's.
static uint8_t get_own_place(void) {
  return dit_runtime_is_active() && dit_stage_is_host_accessible() ? ENGINE_PLACE_HOST : ENGINE_PLACE_OTHER;
}

static uint8_t place_of_type(int device_type) {
  switch (device_type) {
    case DIT_C10_CPU:
      return ENGINE_PLACE_CPU;
    case DIT_C10_CUDA:
      return ENGINE_PLACE_CUDA;
    case DIT_C10_META:
      return ENGINE_PLACE_NONE;
    case DIT_C10_PRIVATEUSE1:
      return get_own_place();
    default:
      return ENGINE_PLACE_OTHER;
  }
}

static uint8_t place_of_exchange(int device_type) {
  switch (device_type) {
    case ENGINE_DL_CPU:
    case ENGINE_DL_CUDA_HOST:
      return ENGINE_PLACE_CPU;
    case ENGINE_DL_CUDA:
      return ENGINE_PLACE_CUDA;
    case ENGINE_DL_EXTENSION:
      return get_own_place();
    default:
      return ENGINE_PLACE_OTHER;
  }
}

static void device_read(PyObject *tensor, struct engine_tensor *out) {
  PyObject *py_device = engine_torch.device ? engine_tensor_get(tensor, engine_torch.device) : NULL;
  if (py_device && Py_IS_TYPE(py_device, (PyTypeObject *)torch_names.py_device_type)) {
    struct dit_c10_device device = *dit_device_object_get(py_device);
    out->device_index = device.index;
    out->place = place_of_type(device.type);
  }
  Py_XDECREF(py_device);
  py_error_drop();
}

// Reading

static bool getter_is_true(PyObject *tensor, const PyGetSetDef *getter) {
  if (!getter) {
    return false;
  }
  PyObject *py_value = engine_tensor_get(tensor, getter);
  bool yes = py_value != Py_False;  // an error counts as "unusual"
  Py_XDECREF(py_value);
  py_error_drop();
  return yes;
}

static bool memory_is_plain(PyObject *tensor) {
  PyObject *py_layout = engine_tensor_get(tensor, engine_torch.layout);
  bool strided = py_layout == torch_names.py_strided;
  Py_XDECREF(py_layout);
  py_error_drop();
  return strided && !getter_is_true(tensor, engine_torch.is_meta) &&
         !getter_is_true(tensor, engine_torch.is_quantized) && !getter_is_true(tensor, engine_torch.is_nested);
}

static bool method_is_true(PyObject *tensor, PyObject *descriptor) {
  PyObject *py_value = PyObject_CallOneArg(descriptor, tensor);
  bool yes = py_value == Py_True;
  Py_XDECREF(py_value);
  py_error_drop();
  return yes;
}

static bool exchange_read(PyObject *tensor, struct engine_tensor *out) {
  struct engine_dl_tensor dl;
  if (engine_torch.exchange->tensor_from_object(tensor, &dl) != 0) {
    py_error_drop();
    return false;
  }
  out->sizes = dl.shape;
  out->strides = dl.strides;
  out->ndim = dl.ndim;
  out->dtype = dtype_convert(dl.code, dl.bits);
  out->device_index = (int16_t)dl.device_id;
  out->place = place_of_exchange(dl.device_type);
  if (out->place == ENGINE_PLACE_CPU) {
    out->device_index = -1;
  }
  out->numel = 1;
  for (int i = 0; i < dl.ndim; i++) {
    out->numel *= dl.shape[i];
  }
  out->data = out->numel > 0 && dl.data ? (char *)dl.data + dl.byte_offset : NULL;
  out->flags |= ENGINE_TENSOR_STRIDED;
  if (out->numel > 0 && !dl.data) {
    out->place = ENGINE_PLACE_NONE;
  }
  return true;
}

// Sizes from the shape attribute; strides from the method when the layout has them.
static void attributes_read(PyObject *tensor, struct engine_tensor *out) {
  out->dtype = dtype_read(tensor);
  device_read(tensor, out);
  PyObject *py_shape = engine_tensor_get(tensor, engine_torch.shape);
  PyObject *py_strides = py_shape ? PyObject_CallMethod(tensor, "stride", NULL) : NULL;
  py_error_drop();
  Py_ssize_t ndim = py_shape && PyTuple_Check(py_shape) ? PyTuple_GET_SIZE(py_shape) : 0;
  bool strided = py_strides && PyTuple_Check(py_strides) && PyTuple_GET_SIZE(py_strides) == ndim;
  out->owned = PyMem_Malloc(sizeof(int64_t) * (size_t)(2 * ndim + 1));
  if (out->owned) {
    out->ndim = (int32_t)ndim;
    out->numel = 1;
    for (Py_ssize_t i = 0; i < ndim; i++) {
      out->owned[i] = PyLong_AsLongLong(PyTuple_GET_ITEM(py_shape, i));
      out->owned[ndim + i] = strided ? PyLong_AsLongLong(PyTuple_GET_ITEM(py_strides, i)) : 0;
      out->numel *= out->owned[i];
    }
    out->sizes = out->owned;
    out->strides = strided ? out->owned + ndim : NULL;
  }
  py_error_drop();
  Py_XDECREF(py_strides);
  Py_XDECREF(py_shape);
}

// Memory of an ordinary tensor on a torch without the exchange API.
static void pointer_read(PyObject *tensor, struct engine_tensor *out) {
  PyObject *py_address = PyObject_CallMethod(tensor, "data_ptr", NULL);
  out->data = py_address && out->numel > 0 ? PyLong_AsVoidPtr(py_address) : NULL;
  Py_XDECREF(py_address);
  if (PyErr_Occurred() || (!out->data && out->numel > 0) || !out->strides) {
    py_error_drop();
    out->place = ENGINE_PLACE_NONE;
    return;
  }
  out->flags |= ENGINE_TENSOR_STRIDED;
}

// What remains of the place of a tensor whose memory is not ours to read.
static void place_judge(PyObject *tensor, struct engine_tensor *out, bool fake, bool functorch) {
  bool device = out->place != ENGINE_PLACE_CPU && out->place != ENGINE_PLACE_NONE;
  bool empty = fake || getter_is_true(tensor, engine_torch.is_meta);
  out->place = device && !empty && !functorch ? ENGINE_PLACE_OTHER : ENGINE_PLACE_NONE;
  if (device && !empty) {
    out->flags |= ENGINE_TENSOR_DEVICE;
  }
  out->data = NULL;
}

static void slow_read(PyObject *tensor, struct engine_tensor *out, enum family family) {
  if (getter_is_true(tensor, engine_torch.requires_grad)) {
    out->flags |= ENGINE_TENSOR_GRAD;
  }
  bool functorch = engine_guard_has_functorch();
  if (family != FAMILY_PLAIN || functorch || !memory_is_plain(tensor)) {
    attributes_read(tensor, out);
    place_judge(tensor, out, family == FAMILY_FAKE, functorch);
    return;
  }
  if (!engine_torch.exchange || !exchange_read(tensor, out)) {
    attributes_read(tensor, out);
    pointer_read(tensor, out);
  }
  if (out->place != ENGINE_PLACE_CPU && out->place != ENGINE_PLACE_NONE) {
    out->flags |= ENGINE_TENSOR_DEVICE;
  }
  out->flags |= method_is_true(tensor, torch_names.py_is_conj) ? ENGINE_TENSOR_CONJ : 0;
  out->flags |= method_is_true(tensor, torch_names.py_is_neg) ? ENGINE_TENSOR_NEG : 0;
}

// The quick way: the tensor's own memory, judged by its key set

// Whether a tensor is plain, conjugated or negated is in its dispatch keys. Key sets are few; each is judged once, by
// the slow way.
#define VERDICTS 64
static struct verdict {
  uint64_t keys;  // 0: free
  bool plain;
  uint8_t flags;  // CONJ, NEG
} verdicts[VERDICTS];

static struct verdict *verdict_find(uint64_t keys) {
  size_t at = (keys * 0x9E3779B97F4A7C15u) >> 58;
  for (int tries = 0; tries < VERDICTS; tries++, at = (at + 1) % VERDICTS) {
    if (verdicts[at].keys == keys || verdicts[at].keys == 0) {
      return &verdicts[at];
    }
  }
  return NULL;
}

static bool reads_agree(const struct engine_tensor *a, const struct engine_tensor *b) {
  size_t bytes = (size_t)a->ndim * sizeof(int64_t);
  return a->ndim == b->ndim && a->numel == b->numel && a->data == b->data && a->place == b->place &&
         a->flags == b->flags && a->device_index == b->device_index && (a->dtype == b->dtype || b->dtype < 0) &&
         memcmp(a->sizes, b->sizes, bytes) == 0 && memcmp(a->strides, b->strides, bytes) == 0;
}

static void impl_fill(PyObject *tensor, const struct engine_layout *impl, uint8_t flags, struct engine_tensor *out) {
  out->sizes = impl->sizes;
  out->strides = impl->strides;
  out->numel = impl->numel;
  out->ndim = impl->ndim;
  out->dtype = impl->dtype;
  out->data = impl->numel > 0 ? impl->data : NULL;
  out->place = place_of_type(impl->device_type);
  out->device_index = out->place == ENGINE_PLACE_CPU ? -1 : impl->device_index;
  out->flags |= flags | ENGINE_TENSOR_STRIDED;
  if (impl->numel > 0 && !impl->data) {
    out->place = ENGINE_PLACE_NONE;
  }
  if (out->place != ENGINE_PLACE_CPU && out->place != ENGINE_PLACE_NONE) {
    out->flags |= ENGINE_TENSOR_DEVICE;
  }
  if (impl->may_require_grad && getter_is_true(tensor, engine_torch.requires_grad)) {
    out->flags |= ENGINE_TENSOR_GRAD;
  }
}

#define SHADOWED_READS 512

static void tensor_read(PyObject *tensor, struct engine_tensor *out) {
  static int shadowed;
  struct engine_layout impl;
  struct verdict *verdict = engine_layout_read(tensor, &impl) ? verdict_find(impl.keys) : NULL;
  if (!verdict || !verdict->keys || !verdict->plain) {
    slow_read(tensor, out, FAMILY_PLAIN);
    if (verdict && !verdict->keys && impl.keys && !engine_guard_has_functorch()) {
      uint8_t flags = out->flags & (ENGINE_TENSOR_CONJ | ENGINE_TENSOR_NEG);
      bool plain = (out->flags & ENGINE_TENSOR_STRIDED) && !out->owned;
      *verdict = (struct verdict){.keys = impl.keys, .plain = plain, .flags = flags};
    }
    return;
  }
  impl_fill(tensor, &impl, verdict->flags, out);
  if (shadowed < SHADOWED_READS && !engine_guard_has_functorch()) {
    struct engine_tensor other = {.py_tensor = tensor, .version = -1, .dtype = -1, .device_index = -1};
    other.place = ENGINE_PLACE_NONE;
    slow_read(tensor, &other, FAMILY_PLAIN);
    shadowed++;
    if (!reads_agree(out, &other)) {
      engine_layout_distrust();
      *out = other;
      return;
    }
    engine_tensor_reset(&other);
  }
}

void engine_tensor_read(PyObject *tensor, struct engine_tensor *out) {
  *out = (struct engine_tensor){.py_tensor = tensor, .version = -1, .dtype = -1, .device_index = -1};
  out->place = ENGINE_PLACE_NONE;
  if (type_is_ordinary(tensor)) {
    tensor_read(tensor, out);
    return;
  }
  // A subclass may have its own __torch_function__, which would answer for the getters.
  PyObject *py_disabled = engine_dispatch_disable();
  out->flags |= ENGINE_TENSOR_SUBCLASS;
  slow_read(tensor, out, subclass_get_family(Py_TYPE(tensor)));
  engine_dispatch_enable(py_disabled);
}

void engine_tensor_reset(struct engine_tensor *tensor) {
  PyMem_Free(tensor->owned);
  tensor->owned = NULL;
}

int64_t engine_tensor_get_version(PyObject *tensor) {
  PyObject *py_disabled = type_is_ordinary(tensor) ? NULL : engine_dispatch_disable();
  PyObject *py_version = engine_tensor_get(tensor, engine_torch.version);
  int64_t version = py_version ? PyLong_AsLongLong(py_version) : -1;
  Py_XDECREF(py_version);
  py_error_drop();
  engine_dispatch_enable(py_disabled);
  return version;
}

bool engine_tensor_get_view(const struct engine_tensor *tensor, struct dit_tensor_view *view) {
  bool readable = (tensor->flags & ENGINE_TENSOR_STRIDED) && tensor->ndim <= DIT_MAX_DIMS && tensor->dtype >= 0 &&
                  !(tensor->flags & (ENGINE_TENSOR_CONJ | ENGINE_TENSOR_NEG)) && tensor->place <= ENGINE_PLACE_CUDA;
  if (!readable) {
    return false;
  }
  *view = (struct dit_tensor_view){.data = tensor->data,
                                   .sizes = tensor->sizes,
                                   .strides = tensor->strides,
                                   .numel = tensor->numel,
                                   .storage = tensor->data,
                                   .handle = tensor->py_tensor,
                                   .ndim = tensor->ndim,
                                   .dtype = tensor->dtype,
                                   .device_index = (int8_t)tensor->device_index};
  view->flags = dit_shape_is_contiguous(view->ndim, view->sizes, view->strides) ? DIT_TENSOR_CONTIGUOUS : 0;
  if (tensor->place != ENGINE_PLACE_CPU) {
    view->flags |= DIT_TENSOR_ON_DEVICE;
  }
  return true;
}

uint32_t engine_tensor_get_device_key(const struct engine_tensor *tensor) {
  static uint32_t keys[ENGINE_PLACE_NONE + 1];
  static const char *const names[] = {"cpu", "cuda", "cuda", NULL, NULL};
  uint8_t place = tensor->place;
  if (keys[place]) {
    return keys[place];
  }
  uint32_t key = 0;
  if (names[place]) {
    if (dit_record_intern(names[place], strlen(names[place]), &key, NULL) != DIT_OK) {
      key = 0;
    }
    keys[place] = key;
    return key;
  }
  PyObject *py_device = engine_torch.device ? engine_tensor_get(tensor->py_tensor, engine_torch.device) : NULL;
  PyObject *py_type = py_device ? PyObject_GetAttrString(py_device, "type") : NULL;
  const char *text = py_type ? PyUnicode_AsUTF8(py_type) : NULL;
  if (text && dit_record_intern(text, strlen(text), &key, NULL) != DIT_OK) {
    key = 0;
  }
  Py_XDECREF(py_type);
  Py_XDECREF(py_device);
  py_error_drop();
  return key;
}

void *engine_stream_get_current(const struct engine_tensor *tensor) {
  void *stream = NULL;
  if (tensor->place == ENGINE_PLACE_HOST) {
    return dit_stream_get_current_raw(tensor->device_index);
  }
  if (tensor->place == ENGINE_PLACE_CUDA && engine_torch.exchange && engine_torch.exchange->current_stream) {
    if (engine_torch.exchange->current_stream(ENGINE_DL_CUDA, tensor->device_index, &stream) != 0) {
      py_error_drop();
      stream = NULL;
    }
  }
  return stream;
}

struct engine_span engine_tensor_get_span(const struct engine_tensor *tensor) {
  size_t size = tensor->data && tensor->numel > 0 ? dit_dtype_get_size(tensor->dtype) : 0;
  if (!size || !(tensor->flags & ENGINE_TENSOR_STRIDED)) {
    return (struct engine_span){0};
  }
  uintptr_t reach = 0;
  for (int i = 0; i < tensor->ndim; i++) {
    reach += (uintptr_t)(tensor->sizes[i] - 1) * (uintptr_t)tensor->strides[i];
  }
  return (struct engine_span){(uintptr_t)tensor->data, (uintptr_t)tensor->data + (reach + 1) * size};
}

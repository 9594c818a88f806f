// Tensors: over their storage where they have memory of their own; sparse, quantized, nested and meta ones in the form
// that torch.save gives them (their component tensors); all others (fake, functorch wrappers, foreign subclasses
// without memory) as a tagged description without data.
#include <string.h>

#include "tools/capture/pickle.h"

// Devices

#define DEVICE_TEXTS 64
static struct {
  uint8_t place;
  int16_t index;
  const char *text;
} device_texts[DEVICE_TEXTS];
static int device_text_count;

// "cuda:0" of the tensor's device attribute; a copy that is never freed, or NULL.
static const char *device_text_make(PyObject *tensor) {
  PyObject *py_device = PyObject_GetAttrString(tensor, "device");
  PyObject *py_text = py_device ? PyObject_Str(py_device) : NULL;
  const char *text = py_text ? PyUnicode_AsUTF8(py_text) : NULL;
  char *copy = text ? strdup(text) : NULL;
  Py_XDECREF(py_text);
  Py_XDECREF(py_device);
  py_error_drop();
  return copy;
}

_Thread_local const char *pickle_twin_device;

const char *pickle_device_text(const struct engine_tensor *tensor) {
  if (tensor->place == ENGINE_PLACE_CPU) {
    return pickle_twin_device && (tensor->flags & ENGINE_TENSOR_DEVICE) ? pickle_twin_device : "cpu";
  }
  // A place of OTHER or NONE may stand for several kinds of devices: those are looked up by text below.
  bool fixed = tensor->place == ENGINE_PLACE_HOST || tensor->place == ENGINE_PLACE_CUDA;
  for (int i = 0; fixed && i < device_text_count; i++) {
    if (device_texts[i].place == tensor->place && device_texts[i].index == tensor->device_index) {
      return device_texts[i].text;
    }
  }
  const char *text = device_text_make(tensor->py_tensor);
  if (!text) {
    return "cpu";
  }
  for (int i = 0; !fixed && i < device_text_count; i++) {
    if (strcmp(device_texts[i].text, text) == 0) {
      free((void *)(uintptr_t)text);
      return device_texts[i].text;
    }
  }
  if (device_text_count < DEVICE_TEXTS) {
    device_texts[device_text_count].place = tensor->place;
    device_texts[device_text_count].index = tensor->device_index;
    device_texts[device_text_count++].text = text;
  }
  return text;
}

bool pickle_tensor_is_negated(PyObject *tensor) {
  PyObject *py_answer = PyObject_CallOneArg(torch_names.py_is_neg, tensor);
  bool negated = py_answer == Py_True;
  Py_XDECREF(py_answer);
  py_error_drop();
  return negated;
}

// Tensors with memory

static void location_write(struct pickle *p, const struct engine_tensor *tensor) {
  const char *text = pickle_device_text(tensor);
  if (tensor->place == ENGINE_PLACE_CPU && text != pickle_twin_device) {
    pickle_global(p, PICKLE_CPU_TEXT);
    return;
  }
  if (p->location && p->location_text == text) {
    pickle_memo_get(p, p->location - 1);
    return;
  }
  pickle_text(p, text, strlen(text));
  p->location_text = text;
  p->location = pickle_memo_put(p);
}

// The storage object, by its persistent id the first time.
void pickle_storage(struct pickle *p, int key, bool typed) {
  struct capture_group *group = &p->blobs->group[key];
  if (group->memo) {
    pickle_memo_get(p, group->memo - 1);
    return;
  }
  pickle_opcode(p, '(');
  pickle_global(p, PICKLE_STORAGE);
  pickle_global(p, typed ? PICKLE_STORAGE_CLASS + group->dtype : PICKLE_UNTYPED);
  char digits[20];
  pickle_text(p, digits, (size_t)(capture_text_format_integer(digits, key) - digits));
  location_write(p, group->tensor);
  size_t element = typed ? dit_dtype_get_size(group->dtype) : 1;
  pickle_integer(p, (int64_t)((group->high - group->low) / element));
  CAPTURE_TEXT_LITERAL(p->out, "tQ");
  group->memo = pickle_memo_put(p);
}

static void hooks_write(struct pickle *p) {
  pickle_global(p, PICKLE_ORDERED_DICT);
  CAPTURE_TEXT_LITERAL(p->out, ")R");
}

static void metadata_write(struct pickle *p, bool conjugated, bool negated) {
  if (!conjugated && !negated) {
    return;
  }
  CAPTURE_TEXT_LITERAL(p->out, "}(");
  if (conjugated) {
    pickle_text(p, "conj", 4);
    pickle_bool(p, true);
  }
  if (negated) {
    pickle_text(p, "neg", 3);
    pickle_bool(p, true);
  }
  pickle_opcode(p, 'u');
}

static void plain_write(struct pickle *p, const struct capture_span *span, bool requires_grad) {
  const struct engine_tensor *tensor = span->tensor;
  const struct capture_group *group = &p->blobs->group[span->group];
  bool typed = pickle_has_storage_class(group->dtype);
  pickle_global(p, typed ? PICKLE_REBUILD_V2 : PICKLE_REBUILD_V3);
  pickle_opcode(p, '(');
  pickle_storage(p, span->group, typed);
  uintptr_t first = tensor->numel > 0 ? (uintptr_t)tensor->data : group->low;
  pickle_integer(p, (int64_t)((first - group->low) / span->element));
  pickle_integers(p, tensor->sizes, tensor->ndim);
  pickle_integers(p, tensor->strides, tensor->ndim);
  pickle_bool(p, requires_grad);
  hooks_write(p);
  if (!typed) {
    pickle_global(p, PICKLE_DTYPE + span->dtype);
  }
  metadata_write(p, tensor->flags & ENGINE_TENSOR_CONJ, pickle_tensor_is_negated(tensor->py_tensor));
  CAPTURE_TEXT_LITERAL(p->out, "tR");
}

static int span_find(struct pickle *p, PyObject *tensor) {
  const struct capture_blobs *blobs = p->blobs;
  for (int i = p->cursor; i < blobs->span_count; i++) {
    if (blobs->span[i].tensor->py_tensor == tensor) {
      p->cursor = i + 1;
      return blobs->span[i].same;
    }
  }
  for (int i = 0; i < p->cursor; i++) {
    if (blobs->span[i].tensor->py_tensor == tensor) {
      return blobs->span[i].same;
    }
  }
  return capture_blobs_join(p->blobs, tensor);
}

int pickle_tensor(struct pickle *p, PyObject *tensor) {
  int index = span_find(p, tensor);
  if (index < 0) {
    return -1;
  }
  const struct capture_span *span = &p->blobs->span[index];
  if (span->memo) {
    pickle_memo_get(p, span->memo - 1);
    return 0;
  }
  if (span->group < 0) {
    if (pickle_tensor_unusual(p, tensor, span->tensor) < 0) {
      return -1;
    }
  } else {
    bool grad = span->tensor->flags & ENGINE_TENSOR_GRAD;
    bool parameter = (PyObject *)Py_TYPE(tensor) == torch_names.py_parameter_type;
    if (parameter) {
      pickle_global(p, PICKLE_REBUILD_PARAMETER);
    }
    plain_write(p, span, grad && !parameter);
    if (parameter) {
      pickle_bool(p, grad);
      hooks_write(p);
      CAPTURE_TEXT_LITERAL(p->out, "\x87R");
    }
  }
  p->blobs->span[index].memo = pickle_memo_put(p);
  return 0;
}

void pickle_bytes_tensor(struct pickle *p, int key, size_t size) {
  int64_t sizes = (int64_t)size, stride = 1;
  pickle_global(p, PICKLE_REBUILD_V2);
  pickle_opcode(p, '(');
  pickle_storage(p, key, true);
  pickle_integer(p, 0);
  pickle_integers(p, &sizes, 1);
  pickle_integers(p, &stride, 1);
  pickle_bool(p, false);
  hooks_write(p);
  CAPTURE_TEXT_LITERAL(p->out, "tR");
}

// Components

// The result of a method of the tensor.
static int method_write(struct pickle *p, PyObject *tensor, const char *method) {
  PyObject *py_part = PyObject_CallMethod(tensor, method, NULL);
  int done = py_part ? pickle_value(p, py_part) : -1;
  Py_XDECREF(py_part);
  return done;
}

// Tensors that are parts of another one: without the graph that hangs on them.
static int part_write(struct pickle *p, PyObject *tensor, const char *method) {
  PyObject *py_part = PyObject_CallMethod(tensor, method, NULL);
  PyObject *py_plain = py_part ? PyObject_CallMethod(py_part, "detach", NULL) : NULL;
  int done = py_plain ? pickle_tensor(p, py_plain) : -1;
  Py_XDECREF(py_part);
  Py_XDECREF(py_plain);
  return done;
}

static int layout_is(PyObject *tensor, const char *name) {
  PyObject *py_layout = PyObject_GetAttrString(tensor, "layout");
  PyObject *py_text = py_layout ? PyObject_Str(py_layout) : NULL;
  int yes = py_text && PyUnicode_CompareWithASCIIString(py_text, name) == 0;
  Py_XDECREF(py_text);
  Py_XDECREF(py_layout);
  py_error_drop();
  return yes;
}

static void layout_write(struct pickle *p, const char *name) {
  pickle_global(p, PICKLE_LAYOUT);
  pickle_text(p, name, strlen(name));
  CAPTURE_TEXT_LITERAL(p->out, "\x85R");
}

// 1 when it was a sparse tensor, 0 when not, -1.
static int sparse_write(struct pickle *p, PyObject *tensor) {
  static const struct {
    const char *layout, *parts[3];
  } kinds[] = {
      {"torch.sparse_coo", {"_indices", "_values", NULL}},
      {"torch.sparse_csr", {"crow_indices", "col_indices", "values"}},
      {"torch.sparse_csc", {"ccol_indices", "row_indices", "values"}},
      {"torch.sparse_bsr", {"crow_indices", "col_indices", "values"}},
      {"torch.sparse_bsc", {"ccol_indices", "row_indices", "values"}},
  };
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
    if (!layout_is(tensor, kinds[i].layout)) {
      continue;
    }
    pickle_global(p, PICKLE_REBUILD_SPARSE);
    layout_write(p, kinds[i].layout);
    pickle_opcode(p, '(');
    for (int part = 0; part < 3 && kinds[i].parts[part]; part++) {
      if (part_write(p, tensor, kinds[i].parts[part]) < 0) {
        return -1;
      }
    }
    if (method_write(p, tensor, "size") < 0 || (i == 0 && method_write(p, tensor, "is_coalesced") < 0)) {
      return -1;
    }
    CAPTURE_TEXT_LITERAL(p->out, "t\x86R");
    return 1;
  }
  return 0;
}

// (storage, offset, size, stride, (scheme, scale, zero point) or (scheme, scales, zero points, axis), grad, hooks)
static int quantized_write(struct pickle *p, PyObject *tensor, const struct engine_tensor *known) {
  PyObject *py_scheme = PyObject_CallMethod(tensor, "qscheme", NULL);
  PyObject *py_scheme_text = py_scheme ? PyObject_Str(py_scheme) : NULL;
  PyObject *py_numbers = py_scheme_text ? PyObject_CallMethod(tensor, "int_repr", NULL) : NULL;
  int done = -1;
  int index = py_numbers ? capture_blobs_join(p->blobs, py_numbers) : -1;
  const struct capture_span *span = index >= 0 ? &p->blobs->span[index] : NULL;
  bool affine = py_scheme_text && PyUnicode_CompareWithASCIIString(py_scheme_text, "torch.per_tensor_affine") == 0;
  bool channels = py_scheme_text && PyUnicode_CompareWithASCIIString(py_scheme_text, "torch.per_channel_affine") == 0;
  if (span && span->group >= 0 && (affine || channels) && known->dtype >= 0) {
    struct capture_group *group = &p->blobs->group[span->group];
    group->dtype = known->dtype;
    const int64_t *sizes = span->tensor->sizes, *strides = span->tensor->strides;
    int ndim = span->tensor->ndim;
    pickle_global(p, PICKLE_REBUILD_QUANTIZED);
    pickle_opcode(p, '(');
    pickle_storage(p, span->group, true);
    pickle_integer(p, 0);
    pickle_integers(p, sizes, ndim);
    pickle_integers(p, strides, ndim);
    pickle_opcode(p, '(');
    done = pickle_value(p, py_scheme);
    if (affine) {
      done = done == 0 && method_write(p, tensor, "q_scale") == 0 ? method_write(p, tensor, "q_zero_point") : -1;
    } else {
      done = done == 0 && method_write(p, tensor, "q_per_channel_scales") == 0 &&
                     method_write(p, tensor, "q_per_channel_zero_points") == 0
                 ? method_write(p, tensor, "q_per_channel_axis")
                 : -1;
    }
    pickle_opcode(p, 't');
    pickle_bool(p, known->flags & ENGINE_TENSOR_GRAD);
    pickle_global(p, PICKLE_ORDERED_DICT);
    CAPTURE_TEXT_LITERAL(p->out, ")RtR");
  } else if (!PyErr_Occurred()) {
    PyErr_SetString(PyExc_NotImplementedError, "this quantization scheme");
  }
  Py_XDECREF(py_scheme);
  Py_XDECREF(py_scheme_text);
  Py_XDECREF(py_numbers);
  return done;
}

static int nested_write(struct pickle *p, PyObject *tensor) {
  pickle_global(p, PICKLE_REBUILD_NESTED);
  pickle_opcode(p, '(');
  if (part_write(p, tensor, "values") < 0 || method_write(p, tensor, "_nested_tensor_size") < 0 ||
      method_write(p, tensor, "_nested_tensor_strides") < 0 ||
      method_write(p, tensor, "_nested_tensor_storage_offsets") < 0) {
    return -1;
  }
  CAPTURE_TEXT_LITERAL(p->out, "tR");
  return 0;
}

static int meta_write(struct pickle *p, const struct engine_tensor *known) {
  if (known->dtype < 0 || !known->strides) {
    return -1;
  }
  pickle_global(p, PICKLE_REBUILD_META);
  pickle_opcode(p, '(');
  pickle_global(p, PICKLE_DTYPE + known->dtype);
  pickle_integers(p, known->sizes, known->ndim);
  pickle_integers(p, known->strides, known->ndim);
  pickle_bool(p, known->flags & ENGINE_TENSOR_GRAD);
  CAPTURE_TEXT_LITERAL(p->out, "tR");
  return 0;
}

// Descriptions

static int described_write(struct pickle *p, PyObject *tensor, const struct engine_tensor *known) {
  pickle_tag_begin(p, "tensor");
  pickle_text(p, "type", 4);
  const char *name = Py_TYPE(tensor)->tp_name;
  pickle_text(p, name, strlen(name));
  pickle_text(p, "device", 6);
  const char *device = pickle_device_text(known);
  pickle_text(p, device, strlen(device));
  pickle_text(p, "dtype", 5);
  const char *dtype = dit_dtype_get_name(known->dtype);
  pickle_text(p, dtype, strlen(dtype));
  pickle_text(p, "shape", 5);
  if (known->sizes) {
    pickle_integers(p, known->sizes, known->ndim);
  } else {
    pickle_none(p);
  }
  pickle_text(p, "stride", 6);
  if (known->strides) {
    pickle_integers(p, known->strides, known->ndim);
  } else {
    pickle_none(p);
  }
  pickle_text(p, "requires_grad", 13);
  pickle_bool(p, known->flags & ENGINE_TENSOR_GRAD);
  pickle_tag_end(p);
  return 0;
}

static bool flag_is_set(PyObject *tensor, const char *name) {
  PyObject *py_flag = PyObject_GetAttrString(tensor, name);
  bool yes = py_flag == Py_True;
  Py_XDECREF(py_flag);
  py_error_drop();
  return yes;
}

static int components_write(struct pickle *p, PyObject *tensor, const struct engine_tensor *known) {
  if ((known->flags & ENGINE_TENSOR_SUBCLASS)) {
    return 0;
  }
  int done = sparse_write(p, tensor);
  if (done != 0) {
    return done;
  }
  if (flag_is_set(tensor, "is_quantized")) {
    return quantized_write(p, tensor, known) < 0 ? -1 : 1;
  }
  if (flag_is_set(tensor, "is_nested")) {
    return nested_write(p, tensor) < 0 ? -1 : 1;
  }
  if (flag_is_set(tensor, "is_meta")) {
    return meta_write(p, known) < 0 ? -1 : 1;
  }
  return 0;
}

int pickle_tensor_unusual(struct pickle *p, PyObject *tensor, const struct engine_tensor *known) {
  struct pickle_mark mark;
  pickle_mark_set(p, &mark);
  int done = components_write(p, tensor, known);
  if (done < 0) {
    if (PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_MemoryError)) {
      return -1;
    }
    py_error_drop();
    pickle_mark_return(p, &mark);
  }
  return done > 0 ? 0 : described_write(p, tensor, known);
}

// The companion `.pth.json`: the arguments without their data, as json.dumps(..., indent=4) would print the mapping
// {"args": [...], "kwargs": {...} (only if any), "op": name}.
//
// A tensor is a mapping of its metadata, lists and tuples are lists, mappings are mappings, everything else is its
// str() as text (numbers and None too). Text is ASCII with \u escapes.
#include <string.h>

#include "tools/capture/pickle.h"

struct json {
  struct capture_text *out;
  const struct engine_tensor *tensors;
  int tensor_count, cursor;
  int depth;
  int open_count;
  PyObject *open[PICKLE_MAX_DEPTH];  // containers being written: a cycle ends at them
};

static int value_write(struct json *j, PyObject *value);

// Text

static void indent_write(struct json *j) {
  char *at = capture_text_reserve(j->out, 1 + 4 * (size_t)j->depth);
  if (at) {
    *at = '\n';
    memset(at + 1, ' ', 4 * (size_t)j->depth);
    capture_text_advance(j->out, at + 1 + 4 * (size_t)j->depth);
  }
}

static char *escape_put(char *at, unsigned code) {
  static const char digits[] = "0123456789abcdef";
  *at++ = '\\';
  *at++ = 'u';
  for (int shift = 12; shift >= 0; shift -= 4) {
    *at++ = digits[code >> shift & 15];
  }
  return at;
}

static char *character_put(char *at, Py_UCS4 code) {
  static const char shorts[] = "\"\"\\\\\bb\ff\nn\rr\tt";
  for (const char *pair = shorts; *pair; pair += 2) {
    if (code == (unsigned char)*pair) {
      *at++ = '\\';
      *at++ = pair[1];
      return at;
    }
  }
  if (code >= ' ' && code <= '~') {
    *at++ = (char)code;
    return at;
  }
  if (code >= 0x10000) {
    code -= 0x10000;
    at = escape_put(at, 0xd800 | code >> 10);
    return escape_put(at, 0xdc00 | (code & 0x3ff));
  }
  return escape_put(at, code);
}

static void unicode_write(struct json *j, PyObject *text) {
  Py_ssize_t length = PyUnicode_GET_LENGTH(text);
  int kind = PyUnicode_KIND(text);
  const void *data = PyUnicode_DATA(text);
  char *at = capture_text_reserve(j->out, 12 * (size_t)length + 2);
  if (!at) {
    return;
  }
  *at++ = '"';
  for (Py_ssize_t i = 0; i < length; i++) {
    at = character_put(at, PyUnicode_READ(kind, data, i));
  }
  *at++ = '"';
  capture_text_advance(j->out, at);
}

// Text that is known to be plain ASCII.
static void plain_write(struct json *j, const char *text, size_t size) {
  char *at = capture_text_reserve(j->out, size + 2);
  if (at) {
    *at = '"';
    memcpy(at + 1, text, size);
    at[1 + size] = '"';
    capture_text_advance(j->out, at + size + 2);
  }
}

// str(value) as text; what cannot be printed is named by its type.
static int text_write(struct json *j, PyObject *value) {
  PyObject *py_text = PyObject_Str(value);
  if (!py_text) {
    if (PyErr_ExceptionMatches(PyExc_MemoryError)) {
      return -1;
    }
    py_error_drop();
    py_text = PyUnicode_FromFormat("<%s object>", Py_TYPE(value)->tp_name);
  }
  if (py_text) {
    unicode_write(j, py_text);
  }
  Py_XDECREF(py_text);
  return py_text ? 0 : -1;
}

// Tensors

#define KEY(j, literal)                                  \
  do {                                                   \
    indent_write(j);                                     \
    CAPTURE_TEXT_LITERAL((j)->out, "\"" literal "\": "); \
  } while (0)

static void integer_write(struct json *j, int64_t value) {
  char *at = capture_text_reserve(j->out, 20);
  if (at) {
    capture_text_advance(j->out, capture_text_format_integer(at, value));
  }
}

// "(2, 3)" of a tuple.
static void shape_write(struct json *j, const struct engine_tensor *tensor) {
  char *at = capture_text_reserve(j->out, 22 * (size_t)tensor->ndim + 5);
  if (!at) {
    return;
  }
  *at++ = '"';
  *at++ = '(';
  for (int i = 0; i < tensor->ndim; i++) {
    at = capture_text_format_integer(at, tensor->sizes[i]);
    if (i + 1 < tensor->ndim) {
      *at++ = ',';
      *at++ = ' ';
    } else if (i == 0) {
      *at++ = ',';
    }
  }
  *at++ = ')';
  *at++ = '"';
  capture_text_advance(j->out, at);
}

static void strides_write(struct json *j, const struct engine_tensor *tensor) {
  if (!tensor->strides || tensor->ndim == 0) {
    CAPTURE_TEXT_LITERAL(j->out, "[]");
    return;
  }
  j->depth++;
  for (int i = 0; i < tensor->ndim; i++) {
    capture_text_add_byte(j->out, i ? ',' : '[');
    indent_write(j);
    integer_write(j, tensor->strides[i]);
  }
  j->depth--;
  indent_write(j);
  capture_text_add_byte(j->out, ']');
}

static int attribute_write(struct json *j, PyObject *tensor, const char *name, size_t skip) {
  PyObject *py_value = PyObject_GetAttrString(tensor, name);
  PyObject *py_text = py_value ? PyObject_Str(py_value) : NULL;
  PyObject *py_rest = py_text ? PyUnicode_Substring(py_text, (Py_ssize_t)skip, PY_SSIZE_T_MAX) : NULL;
  if (py_rest) {
    unicode_write(j, py_rest);
  } else {
    py_error_drop();
    CAPTURE_TEXT_LITERAL(j->out, "\"?\"");
  }
  Py_XDECREF(py_value);
  Py_XDECREF(py_text);
  Py_XDECREF(py_rest);
  return 0;
}

static int tensor_write(struct json *j, const struct engine_tensor *tensor) {
  capture_text_add_byte(j->out, '{');
  j->depth++;
  KEY(j, "device");
  const char *device = pickle_device_text(tensor);
  bool placed = tensor->place != ENGINE_PLACE_NONE;
  if (placed) {
    plain_write(j, device, strlen(device));
  } else {
    (void)attribute_write(j, tensor->py_tensor, "device", 0);
  }
  capture_text_add_byte(j->out, ',');
  KEY(j, "dtype");
  int16_t number = capture_dtype_find(tensor);
  if (number >= 0) {
    const char *dtype = dit_dtype_get_name(number);
    plain_write(j, dtype, strlen(dtype));
  } else {
    (void)attribute_write(j, tensor->py_tensor, "dtype", strlen("torch."));
  }
  capture_text_add_byte(j->out, ',');
  KEY(j, "numel");
  integer_write(j, tensor->numel);
  capture_text_add_byte(j->out, ',');
  KEY(j, "shape");
  shape_write(j, tensor);
  capture_text_add_byte(j->out, ',');
  KEY(j, "stride");
  strides_write(j, tensor);
  capture_text_add_byte(j->out, ',');
  KEY(j, "requires_grad");
  if (tensor->flags & ENGINE_TENSOR_GRAD) {
    CAPTURE_TEXT_LITERAL(j->out, "true,");
  } else {
    CAPTURE_TEXT_LITERAL(j->out, "false,");
  }
  KEY(j, "layout");
  if (tensor->flags & ENGINE_TENSOR_STRIDED) {
    CAPTURE_TEXT_LITERAL(j->out, "\"torch.strided\"");
  } else {
    (void)attribute_write(j, tensor->py_tensor, "layout", 0);
  }
  capture_text_add_byte(j->out, ',');
  KEY(j, "data_ptr");
  integer_write(j, (int64_t)(intptr_t)tensor->data);
  j->depth--;
  indent_write(j);
  capture_text_add_byte(j->out, '}');
  return 0;
}

static int tensor_find_write(struct json *j, PyObject *value) {
  for (int i = 0; i < j->tensor_count; i++) {
    int at = (j->cursor + i) % j->tensor_count;
    if (j->tensors[at].py_tensor == value) {
      j->cursor = at + 1;
      return tensor_write(j, &j->tensors[at]);
    }
  }
  struct engine_tensor tensor;
  engine_tensor_read(value, &tensor);
  int done = tensor_write(j, &tensor);
  engine_tensor_reset(&tensor);
  return done;
}

// Containers

static int sequence_write(struct json *j, PyObject *const *items, Py_ssize_t count) {
  if (count == 0) {
    CAPTURE_TEXT_LITERAL(j->out, "[]");
    return 0;
  }
  j->depth++;
  for (Py_ssize_t i = 0; i < count; i++) {
    capture_text_add_byte(j->out, i ? ',' : '[');
    indent_write(j);
    if (value_write(j, items[i] ? items[i] : Py_None) < 0) {
      return -1;
    }
  }
  j->depth--;
  indent_write(j);
  capture_text_add_byte(j->out, ']');
  return 0;
}

static int key_write(struct json *j, PyObject *key) {
  if (key == Py_None) {
    CAPTURE_TEXT_LITERAL(j->out, "\"null\"");
  } else if (PyBool_Check(key)) {
    plain_write(j, key == Py_True ? "true" : "false", key == Py_True ? 4 : 5);
  } else {
    return text_write(j, key);
  }
  return 0;
}

static int mapping_write(struct json *j, PyObject *dict) {
  PyObject *py_pairs = PyDict_Items(dict);
  if (!py_pairs) {
    return -1;
  }
  Py_ssize_t count = PyList_GET_SIZE(py_pairs);
  int done = 0;
  if (count == 0) {
    CAPTURE_TEXT_LITERAL(j->out, "{}");
  } else {
    j->depth++;
    for (Py_ssize_t i = 0; done == 0 && i < count; i++) {
      PyObject *pair = PyList_GET_ITEM(py_pairs, i);
      capture_text_add_byte(j->out, i ? ',' : '{');
      indent_write(j);
      done = key_write(j, PyTuple_GET_ITEM(pair, 0));
      CAPTURE_TEXT_LITERAL(j->out, ": ");
      done = done == 0 ? value_write(j, PyTuple_GET_ITEM(pair, 1)) : -1;
    }
    j->depth--;
    indent_write(j);
    capture_text_add_byte(j->out, '}');
  }
  Py_DECREF(py_pairs);
  return done;
}

static int opened_write(struct json *j, PyObject *value) {
  if (PyTuple_Check(value)) {
    return sequence_write(j, ((PyTupleObject *)value)->ob_item, PyTuple_GET_SIZE(value));
  }
  if (PyDict_Check(value)) {
    return mapping_write(j, value);
  }
  PyObject *py_items = PyList_AsTuple(value);  // describing items may run code that changes the list
  int done = py_items ? sequence_write(j, ((PyTupleObject *)py_items)->ob_item, PyTuple_GET_SIZE(py_items)) : -1;
  Py_XDECREF(py_items);
  return done;
}

static int container_write(struct json *j, PyObject *value) {
  bool closed = j->open_count == PICKLE_MAX_DEPTH;
  for (int i = 0; i < j->open_count; i++) {
    closed = closed || j->open[i] == value;
  }
  if (closed) {
    CAPTURE_TEXT_LITERAL(j->out, "\"...\"");
    return 0;
  }
  j->open[j->open_count++] = value;
  int done = opened_write(j, value);
  j->open_count--;
  return done;
}

// The text of a number that was written before: optimizers pass the same few to every call. Guarded by the GIL.
static int float_write(struct json *j, PyObject *value) {
  enum { TEXTS = 64, TEXT_BYTES = 31 };
  static struct {
    uint64_t bits;
    unsigned char size;  // 0: free
    char text[TEXT_BYTES];
  } texts[TEXTS];
  double number = PyFloat_AS_DOUBLE(value);
  uint64_t bits;
  memcpy(&bits, &number, sizeof bits);
  size_t place = (bits * UINT64_C(0x9E3779B97F4A7C15)) >> 58;
  if (!texts[place].size || texts[place].bits != bits) {
    PyObject *py_text = PyObject_Repr(value);
    Py_ssize_t size = 0;
    const char *text = py_text ? PyUnicode_AsUTF8AndSize(py_text, &size) : NULL;
    if (!text || size > TEXT_BYTES) {
      Py_XDECREF(py_text);
      py_error_drop();
      return text_write(j, value);
    }
    memcpy(texts[place].text, text, (size_t)size);
    texts[place].size = (unsigned char)size;
    texts[place].bits = bits;
    Py_DECREF(py_text);
  }
  plain_write(j, texts[place].text, texts[place].size);
  return 0;
}

static bool number_write(struct json *j, PyObject *value) {
  if (PyLong_CheckExact(value)) {
    int overflow;
    long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
    if (overflow) {
      return false;
    }
    char digits[24];
    plain_write(j, digits, (size_t)(capture_text_format_integer(digits, number) - digits));
    return true;
  }
  if (value == Py_None || PyBool_Check(value)) {
    const char *text = value == Py_None ? "None" : value == Py_True ? "True" : "False";
    plain_write(j, text, strlen(text));
    return true;
  }
  return false;
}

static int value_write(struct json *j, PyObject *value) {
  if (j->out->failed) {
    PyErr_SetString(PyExc_MemoryError, "the description of the call does not fit into memory");
    return -1;
  }
  if (engine_is_tensor(value)) {
    return tensor_find_write(j, value);
  }
  if (number_write(j, value)) {
    return 0;
  }
  if (PyFloat_CheckExact(value)) {
    return float_write(j, value);
  }
  if (PyUnicode_CheckExact(value)) {
    unicode_write(j, value);
    return 0;
  }
  bool container = PyTuple_Check(value) || PyList_Check(value) || PyDict_Check(value);
  if (container && !torch_is(value, torch_names.py_size_type)) {
    return container_write(j, value);
  }
  return text_write(j, value);
}

int pickle_json(struct capture_text *out, const struct engine_tensor *tensors, int tensor_count, const char *name,
                PyObject *const *args, Py_ssize_t count, PyObject *kwargs) {
  struct json json;
  json.out = out;
  json.tensors = tensors;
  json.tensor_count = tensor_count;
  json.cursor = json.open_count = 0;
  json.depth = 1;
  CAPTURE_TEXT_LITERAL(out, "{\n    \"args\": ");
  if (sequence_write(&json, args, count) < 0) {
    return -1;
  }
  if (kwargs && PyDict_GET_SIZE(kwargs) > 0) {
    CAPTURE_TEXT_LITERAL(out, ",\n    \"kwargs\": ");
    if (mapping_write(&json, kwargs) < 0) {
      return -1;
    }
  }
  CAPTURE_TEXT_LITERAL(out, ",\n    \"op\": ");
  PyObject *py_name = PyUnicode_FromString(name);
  if (!py_name) {
    return -1;
  }
  unicode_write(&json, py_name);
  Py_DECREF(py_name);
  CAPTURE_TEXT_LITERAL(out, "\n}");
  if (out->failed) {
    PyErr_SetString(PyExc_MemoryError, "the description of the call does not fit into memory");
    return -1;
  }
  return 0;
}

// The stream and the plain values; see capture/pickle.h.
//
// Opcodes are those of protocol 2. Only what is needed again enters the memo: globals, the tensors, their storages.
#include "tools/capture/pickle.h"

#include <string.h>

// Opcodes

void pickle_opcode(struct pickle *p, char opcode) {
  capture_text_add_byte(p->out, opcode);
}

void pickle_none(struct pickle *p) {
  pickle_opcode(p, 'N');
}

void pickle_bool(struct pickle *p, bool value) {
  pickle_opcode(p, value ? '\x88' : '\x89');
}

static char *little_put(char *at, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; i++) {
    *at++ = (char)(value >> (8 * i));
  }
  return at;
}

// At most 11 bytes.
static char *integer_put(char *at, int64_t value) {
  if (value >= 0 && value < 256) {
    *at++ = 'K';
    return little_put(at, (uint64_t)value, 1);
  }
  if (value >= 0 && value < 65536) {
    *at++ = 'M';
    return little_put(at, (uint64_t)value, 2);
  }
  if (value >= INT32_MIN && value <= INT32_MAX) {
    *at++ = 'J';
    return little_put(at, (uint64_t)value, 4);
  }
  *at++ = '\x8a';
  *at++ = 8;
  return little_put(at, (uint64_t)value, 8);
}

void pickle_integer(struct pickle *p, int64_t value) {
  char *at = capture_text_reserve(p->out, 11);
  if (at) {
    capture_text_advance(p->out, integer_put(at, value));
  }
}

void pickle_integers(struct pickle *p, const int64_t *values, int count) {
  char *at = capture_text_reserve(p->out, 11 * (size_t)count + 2);
  if (!at) {
    return;
  }
  if (count > 3) {
    *at++ = '(';
  }
  for (int i = 0; i < count; i++) {
    at = integer_put(at, values[i]);
  }
  static const char close[] = {')', '\x85', '\x86', '\x87', 't'};
  *at++ = close[count > 3 ? 4 : count];
  capture_text_advance(p->out, at);
}

void pickle_float(struct pickle *p, double value) {
  char *at = capture_text_reserve(p->out, 9);
  if (at) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    *at++ = 'G';
    for (int i = 7; i >= 0; i--) {
      *at++ = (char)(bits >> (8 * i));
    }
    capture_text_advance(p->out, at);
  }
}

void pickle_text(struct pickle *p, const char *text, size_t size) {
  char *at = size <= INT32_MAX ? capture_text_reserve(p->out, 5 + size) : NULL;
  if (!at) {
    p->out->failed = true;
    return;
  }
  *at++ = 'X';
  at = little_put(at, size, 4);
  memcpy(at, text, size);
  capture_text_advance(p->out, at + size);
}

int pickle_unicode(struct pickle *p, PyObject *text) {
  Py_ssize_t size;
  const char *utf8 = PyUnicode_AsUTF8AndSize(text, &size);
  if (utf8) {
    pickle_text(p, utf8, (size_t)size);
    return 0;
  }
  py_error_drop();  // lone surrogates
  PyObject *py_bytes = PyUnicode_AsEncodedString(text, "utf-8", "surrogatepass");
  if (!py_bytes) {
    return -1;
  }
  pickle_text(p, PyBytes_AS_STRING(py_bytes), (size_t)PyBytes_GET_SIZE(py_bytes));
  Py_DECREF(py_bytes);
  return 0;
}

void pickle_memo_get(struct pickle *p, uint32_t entry) {
  char *at = capture_text_reserve(p->out, 5);
  if (at) {
    *at++ = entry < 256 ? 'h' : 'j';
    capture_text_advance(p->out, little_put(at, entry, entry < 256 ? 1 : 4));
  }
}

uint32_t pickle_memo_put(struct pickle *p) {
  uint32_t entry = p->memo++;
  char *at = capture_text_reserve(p->out, 5);
  if (at) {
    *at++ = entry < 256 ? 'q' : 'r';
    capture_text_advance(p->out, little_put(at, entry, entry < 256 ? 1 : 4));
  }
  return entry + 1;
}

// Globals

#define GLOBAL(module, name) "c" module "\n" name "\n"
static const char *const global_texts[PICKLE_STORAGE_CLASS] = {
    [PICKLE_REBUILD_V2] = GLOBAL("torch._utils", "_rebuild_tensor_v2"),
    [PICKLE_REBUILD_V3] = GLOBAL("torch._utils", "_rebuild_tensor_v3"),
    [PICKLE_REBUILD_PARAMETER] = GLOBAL("torch._utils", "_rebuild_parameter"),
    [PICKLE_REBUILD_QUANTIZED] = GLOBAL("torch._utils", "_rebuild_qtensor"),
    [PICKLE_REBUILD_SPARSE] = GLOBAL("torch._utils", "_rebuild_sparse_tensor"),
    [PICKLE_REBUILD_NESTED] = GLOBAL("torch._utils", "_rebuild_nested_tensor"),
    [PICKLE_REBUILD_META] = GLOBAL("torch._utils", "_rebuild_meta_tensor_no_storage"),
    [PICKLE_ORDERED_DICT] = GLOBAL("collections", "OrderedDict"),
    [PICKLE_UNTYPED] = GLOBAL("torch.storage", "UntypedStorage"),
    [PICKLE_SIZE] = GLOBAL("torch", "Size"),
    [PICKLE_DEVICE] = GLOBAL("torch", "device"),
    [PICKLE_LAYOUT] = GLOBAL("torch.serialization", "_get_layout"),
    [PICKLE_ENCODE] = GLOBAL("_codecs", "encode"),
    [PICKLE_BYTEARRAY] = GLOBAL("__builtin__", "bytearray"),
    [PICKLE_SET] = GLOBAL("__builtin__", "set"),
    [PICKLE_COMPLEX] = GLOBAL("__builtin__", "complex"),
};

// Types with a typed storage class of their own; the others are stored untyped.
static const char *const storage_classes[DIT_DTYPE_COUNT] = {
    [DIT_DTYPE_F64] = "Double",
    [DIT_DTYPE_F32] = "Float",
    [DIT_DTYPE_F16] = "Half",
    [DIT_DTYPE_I64] = "Long",
    [DIT_DTYPE_I32] = "Int",
    [DIT_DTYPE_I16] = "Short",
    [DIT_DTYPE_I8] = "Char",
    [DIT_DTYPE_U8] = "Byte",
    [DIT_DTYPE_BOOL] = "Bool",
    [DIT_DTYPE_BF16] = "BFloat16",
    [DIT_DTYPE_C128] = "ComplexDouble",
    [DIT_DTYPE_C64] = "ComplexFloat",
    [DIT_DTYPE_QU8] = "QUInt8",
    [DIT_DTYPE_QI8] = "QInt8",
    [DIT_DTYPE_QI32] = "QInt32",
};

bool pickle_has_storage_class(int dtype) {
  return dtype >= 0 && storage_classes[dtype];
}

static void global_write(struct pickle *p, int global) {
  if (global < PICKLE_STORAGE_CLASS) {
    const char *text = global_texts[global];
    if (text) {
      capture_text_add(p->out, text, strlen(text));
    } else if (global == PICKLE_STORAGE) {
      pickle_text(p, "storage", 7);
    } else {
      pickle_text(p, global == PICKLE_TAG_TEXT ? PICKLE_TAG : "cpu",
                  global == PICKLE_TAG_TEXT ? strlen(PICKLE_TAG) : 3);
    }
    return;
  }
  bool dtype = global >= PICKLE_DTYPE;
  const char *name = dtype ? dit_dtype_get_name(global - PICKLE_DTYPE) : storage_classes[global - PICKLE_STORAGE_CLASS];
  CAPTURE_TEXT_LITERAL(p->out, "ctorch\n");
  capture_text_add(p->out, name, strlen(name));
  if (!dtype) {
    CAPTURE_TEXT_LITERAL(p->out, "Storage");
  }
  pickle_opcode(p, '\n');
}

void pickle_global(struct pickle *p, int global) {
  if (p->global[global]) {
    pickle_memo_get(p, p->global[global] - 1);
    return;
  }
  global_write(p, global);
  p->global[global] = pickle_memo_put(p);
}

// Values

void pickle_tag_begin(struct pickle *p, const char *kind) {
  CAPTURE_TEXT_LITERAL(p->out, "}(");
  pickle_global(p, PICKLE_TAG_TEXT);
  pickle_text(p, kind, strlen(kind));
}

void pickle_tag_end(struct pickle *p) {
  pickle_opcode(p, 'u');
}

int pickle_enter(struct pickle *p, PyObject *container) {
  bool cycle = false;
  for (int i = 0; i < p->depth; i++) {
    cycle = cycle || p->open[i] == container;
  }
  if (cycle || p->depth == PICKLE_MAX_DEPTH) {
    pickle_tag_begin(p, cycle ? "cycle" : "too_deep");
    pickle_tag_end(p);
    return 0;
  }
  p->open[p->depth++] = container;
  return 1;
}

void pickle_leave(struct pickle *p) {
  p->depth--;
}

int pickle_whole(struct pickle *p, PyObject *value) {
  int overflow;
  long long small = PyLong_AsLongLongAndOverflow(value, &overflow);
  if (small == -1 && PyErr_Occurred()) {
    return -1;
  }
  if (!overflow) {
    pickle_integer(p, small);
    return 0;
  }
  PyObject *py_size = PyObject_CallMethod(value, "bit_length", NULL);
  Py_ssize_t bytes = py_size ? PyLong_AsSsize_t(py_size) / 8 + 1 : 0;  // one bit for the sign
  Py_XDECREF(py_size);
  if (!bytes) {
    return -1;
  }
  if (bytes > 255) {  // the loader knows no opcode for more
    PyObject *py_hex = PyNumber_ToBase(value, 16);
    pickle_tag_begin(p, "int");
    pickle_text(p, "hex", 3);
    int done = py_hex ? pickle_unicode(p, py_hex) : -1;
    Py_XDECREF(py_hex);
    pickle_tag_end(p);
    return done;
  }
  PyObject *py_method = PyObject_GetAttrString(value, "to_bytes");
  PyObject *py_args = py_method ? Py_BuildValue("(ns)", bytes, "little") : NULL;
  PyObject *py_signed = py_args ? Py_BuildValue("{s:O}", "signed", Py_True) : NULL;
  PyObject *py_bytes = py_signed ? PyObject_Call(py_method, py_args, py_signed) : NULL;
  if (py_bytes) {
    const char head[] = {'\x8a', (char)bytes};
    capture_text_add(p->out, head, 2);
    capture_text_add(p->out, PyBytes_AS_STRING(py_bytes), (size_t)bytes);
  }
  Py_XDECREF(py_method);
  Py_XDECREF(py_args);
  Py_XDECREF(py_signed);
  Py_XDECREF(py_bytes);
  return py_bytes ? 0 : -1;
}

void pickle_mark_set(const struct pickle *p, struct pickle_mark *mark) {
  mark->state = *p;
  mark->size = p->out->size;
}

void pickle_mark_return(struct pickle *p, const struct pickle_mark *mark) {
  uint32_t kept = mark->state.memo;
  for (int i = 0; i < p->blobs->span_count; i++) {
    struct capture_span *span = &p->blobs->span[i];
    span->memo = span->memo > kept ? 0 : span->memo;
  }
  for (int i = 0; i < p->blobs->group_count; i++) {
    struct capture_group *group = &p->blobs->group[i];
    group->memo = group->memo > kept ? 0 : group->memo;
  }
  *p = mark->state;
  p->out->size = mark->size;
}

static int tuple_write(struct pickle *p, PyObject *const *items, Py_ssize_t count) {
  if (count > 3) {
    pickle_opcode(p, '(');
  }
  for (Py_ssize_t i = 0; i < count; i++) {
    if (!items[i]) {
      pickle_none(p);
    } else if (pickle_value(p, items[i]) < 0) {
      return -1;
    }
  }
  static const char close[] = {')', '\x85', '\x86', '\x87', 't'};
  pickle_opcode(p, close[count > 3 ? 4 : count]);
  return 0;
}

static int list_write(struct pickle *p, PyObject *list) {
  pickle_opcode(p, ']');
  if (PyList_GET_SIZE(list) == 0) {
    return 0;
  }
  pickle_opcode(p, '(');
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); i++) {
    PyObject *py_item = Py_NewRef(PyList_GET_ITEM(list, i));  // describing it may run code that changes the list
    int done = pickle_value(p, py_item);
    Py_DECREF(py_item);
    if (done < 0) {
      return -1;
    }
  }
  pickle_opcode(p, 'e');
  return 0;
}

static int pairs_write(struct pickle *p, PyObject *dict) {
  PyObject *py_pairs = PyDict_Items(dict);
  if (!py_pairs) {
    return -1;
  }
  int done = 0;
  for (Py_ssize_t i = 0; done == 0 && i < PyList_GET_SIZE(py_pairs); i++) {
    PyObject *pair = PyList_GET_ITEM(py_pairs, i);
    done = pickle_value(p, PyTuple_GET_ITEM(pair, 0)) < 0 || pickle_value(p, PyTuple_GET_ITEM(pair, 1)) < 0 ? -1 : 0;
  }
  Py_DECREF(py_pairs);
  return done;
}

// Keys that come back as something unhashable (a tagged value, a list) would break the loader.
static bool integer_is_small(PyObject *value) {
  int overflow;
  (void)PyLong_AsLongLongAndOverflow(value, &overflow);
  return !overflow;
}

static bool key_is_plain(PyObject *key) {
  if (PyTuple_CheckExact(key)) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(key); i++) {
      if (!key_is_plain(PyTuple_GET_ITEM(key, i))) {
        return false;
      }
    }
    return true;
  }
  bool text = PyUnicode_CheckExact(key);
  return (text && PyUnicode_CompareWithASCIIString(key, PICKLE_TAG) != 0) || key == Py_None || PyBool_Check(key) ||
         PyFloat_CheckExact(key) || torch_is(key, torch_names.py_dtype_type) ||
         (PyLong_CheckExact(key) && integer_is_small(key));
}

static int dict_write(struct pickle *p, PyObject *dict) {
  PyObject *key;
  Py_ssize_t at = 0;
  bool plain = true;
  while (plain && PyDict_Next(dict, &at, &key, NULL)) {
    plain = key_is_plain(key);
  }
  if (!plain) {
    pickle_tag_begin(p, "dict");
    pickle_text(p, "items", 5);
    PyObject *py_items = PyDict_Items(dict);
    int done = py_items ? pickle_value(p, py_items) : -1;
    Py_XDECREF(py_items);
    pickle_tag_end(p);
    return done;
  }
  pickle_opcode(p, '}');
  if (PyDict_GET_SIZE(dict) == 0) {
    return 0;
  }
  pickle_opcode(p, '(');
  int done = pairs_write(p, dict);
  pickle_opcode(p, 'u');
  return done;
}

static int container_write(struct pickle *p, PyObject *value) {
  int entered = pickle_enter(p, value);
  if (entered == 0) {
    return 0;
  }
  int done;
  if (PyTuple_Check(value)) {
    done = tuple_write(p, ((PyTupleObject *)value)->ob_item, PyTuple_GET_SIZE(value));
  } else {
    done = PyList_Check(value) ? list_write(p, value) : dict_write(p, value);
  }
  pickle_leave(p);
  return done;
}

int pickle_value(struct pickle *p, PyObject *value) {
  PyTypeObject *type = Py_TYPE(value);
  if (p->out->failed) {
    PyErr_SetString(PyExc_MemoryError, "the description of the call does not fit into memory");
    return -1;
  }
  if ((PyObject *)type == torch_names.py_tensor_type || (PyObject *)type == torch_names.py_parameter_type) {
    return pickle_tensor(p, value);
  }
  if (value == Py_None) {
    pickle_none(p);
    return 0;
  }
  if (type == &PyBool_Type) {
    pickle_bool(p, value == Py_True);
    return 0;
  }
  if (type == &PyLong_Type) {
    return pickle_whole(p, value);
  }
  if (type == &PyFloat_Type) {
    pickle_float(p, PyFloat_AS_DOUBLE(value));
    return 0;
  }
  if (type == &PyUnicode_Type) {
    return pickle_unicode(p, value);
  }
  if (type == &PyTuple_Type || type == &PyList_Type || type == &PyDict_Type) {
    return container_write(p, value);
  }
  return pickle_special(p, value);
}

int pickle_item(struct capture_text *out, struct capture_blobs *blobs, const char *name, PyObject *const *args,
                Py_ssize_t count, PyObject *kwargs, const char *identifier, size_t identifier_size, PyObject *state) {
  struct pickle pickle;
  pickle.out = out;
  pickle.blobs = blobs;
  pickle.cursor = pickle.depth = 0;
  pickle.memo = pickle.location = 0;
  memset(pickle.global, 0, sizeof pickle.global);
  CAPTURE_TEXT_LITERAL(out, "\x80\x02}(X\x04\0\0\0name");
  pickle_text(&pickle, name, strlen(name));
  CAPTURE_TEXT_LITERAL(out, "X\x04\0\0\0args");
  if (tuple_write(&pickle, args, count) < 0) {
    return -1;
  }
  CAPTURE_TEXT_LITERAL(out, "X\x06\0\0\0kwargs");
  if (!kwargs || PyDict_GET_SIZE(kwargs) == 0) {
    pickle_opcode(&pickle, '}');
  } else if (container_write(&pickle, kwargs) < 0) {
    return -1;
  }
  CAPTURE_TEXT_LITERAL(out, "X\x0a\0\0\0identifier");
  pickle_text(&pickle, identifier, identifier_size);
  if (state) {
    CAPTURE_TEXT_LITERAL(out, "X\x05\0\0\0state");
    if (container_write(&pickle, state) < 0) {
      return -1;
    }
  }
  CAPTURE_TEXT_LITERAL(out, "u.");
  if (out->failed) {
    PyErr_SetString(PyExc_MemoryError, "the description of the call does not fit into memory");
    return -1;
  }
  return 0;
}

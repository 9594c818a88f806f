// Values without a plain form: torch's small types natively, everything else as a tagged dictionary.
//
// Describing an object may run its own Python code (str, properties). What raises is not allowed to cost the item: the
// stream goes back to where the object began and a description of its type is written instead.
#include <string.h>

#include "tools/capture/pickle.h"
#include "torch_tensor.h"

// Helpers

// `key` and an attribute of `value`.
static int attribute_write(struct pickle *p, PyObject *value, const char *key) {
  PyObject *py_attribute = PyObject_GetAttrString(value, key);
  if (!py_attribute) {
    return -1;
  }
  pickle_text(p, key, strlen(key));
  int done = pickle_value(p, py_attribute);
  Py_DECREF(py_attribute);
  return done;
}

// str(value), cut to `limit` characters.
static int text_write(struct pickle *p, PyObject *value, Py_ssize_t limit) {
  PyObject *py_text = PyObject_Str(value);
  if (py_text && PyUnicode_GET_LENGTH(py_text) > limit) {
    PyObject *py_cut = PyUnicode_Substring(py_text, 0, limit);
    Py_DECREF(py_text);
    py_text = py_cut;
  }
  int done = py_text ? pickle_unicode(p, py_text) : -1;
  Py_XDECREF(py_text);
  return done;
}

// "module.qualified.name" of a class, function or module-like object; None where it has none.
static int name_write(struct pickle *p, PyObject *object) {
  PyObject *py_module = PyObject_GetAttrString(object, "__module__");
  py_error_drop();
  PyObject *py_name = PyObject_GetAttrString(object, "__qualname__");
  if (!py_name) {
    py_error_drop();
    py_name = PyObject_GetAttrString(object, "__name__");
  }
  py_error_drop();
  int done = 0;
  if (!py_name || !PyUnicode_Check(py_name)) {
    pickle_none(p);
  } else if (!py_module || !PyUnicode_Check(py_module)) {
    done = pickle_unicode(p, py_name);
  } else {
    PyObject *py_full = PyUnicode_FromFormat("%U.%U", py_module, py_name);
    done = py_full ? pickle_unicode(p, py_full) : -1;
    Py_XDECREF(py_full);
  }
  Py_XDECREF(py_module);
  Py_XDECREF(py_name);
  return done;
}

static int type_name_write(struct pickle *p, PyObject *value) {
  pickle_text(p, "type", 4);
  return name_write(p, (PyObject *)Py_TYPE(value));
}

// A GLOBAL of an object whose text is "torch.<name>": dtype, qscheme.
static int torch_name_write(struct pickle *p, PyObject *value) {
  PyObject *py_text = PyObject_Str(value);
  const char *text = py_text ? PyUnicode_AsUTF8(py_text) : NULL;
  int done = text && strncmp(text, "torch.", 6) == 0 && !strchr(text, '\n') ? 0 : -1;
  if (done == 0) {
    int dtype = torch_is(value, torch_names.py_dtype_type) ? dit_dtype_find(text) : -1;
    if (dtype >= 0) {
      pickle_global(p, PICKLE_DTYPE + dtype);
    } else {
      CAPTURE_TEXT_LITERAL(p->out, "ctorch\n");
      capture_text_add(p->out, text + 6, strlen(text + 6));
      pickle_opcode(p, '\n');
    }
  } else if (!PyErr_Occurred()) {
    PyErr_SetString(PyExc_ValueError, "not a name of torch");
  }
  Py_XDECREF(py_text);
  return done;
}

// global(str(value))
static int reduce_text_write(struct pickle *p, int global, PyObject *value) {
  pickle_global(p, global);
  int done = text_write(p, value, PY_SSIZE_T_MAX);
  CAPTURE_TEXT_LITERAL(p->out, "\x85R");
  return done;
}

// Builtins

static int latin_write(struct pickle *p, int global, const char *data, Py_ssize_t size, const char *encoding) {
  PyObject *py_text = PyUnicode_DecodeLatin1(data, size, NULL);
  if (!py_text) {
    return -1;
  }
  pickle_global(p, global);
  int done = pickle_unicode(p, py_text);
  pickle_text(p, encoding, strlen(encoding));
  CAPTURE_TEXT_LITERAL(p->out, "\x86R");
  Py_DECREF(py_text);
  return done;
}

static int slice_write(struct pickle *p, PyObject *value) {
  pickle_tag_begin(p, "slice");
  const PySliceObject *slice = (PySliceObject *)(void *)value;
  const struct {
    const char *key;
    PyObject *value;
  } parts[] = {{"start", slice->start}, {"stop", slice->stop}, {"step", slice->step}};
  for (int i = 0; i < 3; i++) {
    pickle_text(p, parts[i].key, strlen(parts[i].key));
    if (pickle_value(p, parts[i].value) < 0) {
      return -1;
    }
  }
  pickle_tag_end(p);
  return 0;
}

static int range_write(struct pickle *p, PyObject *value) {
  pickle_tag_begin(p, "range");
  if (attribute_write(p, value, "start") < 0 || attribute_write(p, value, "stop") < 0 ||
      attribute_write(p, value, "step") < 0) {
    return -1;
  }
  pickle_tag_end(p);
  return 0;
}

// Members are written as a list; a set whose members come back unhashable stays a list under its tag.
static int set_write(struct pickle *p, PyObject *value) {
  bool plain = PyAnySet_CheckExact(value) && !PyFrozenSet_Check(value);
  PyObject *py_list = PySequence_List(value);
  for (Py_ssize_t i = 0; py_list && plain && i < PyList_GET_SIZE(py_list); i++) {
    PyObject *item = PyList_GET_ITEM(py_list, i);
    plain = item == Py_None || PyBool_Check(item) || PyLong_CheckExact(item) || PyFloat_CheckExact(item) ||
            PyUnicode_CheckExact(item) || torch_is(item, torch_names.py_dtype_type) ||
            (PyObject *)Py_TYPE(item) == torch_names.py_tensor_type;
  }
  int done = -1;
  if (py_list && plain) {
    pickle_global(p, PICKLE_SET);
    done = pickle_value(p, py_list);
    CAPTURE_TEXT_LITERAL(p->out, "\x85R");
  } else if (py_list) {
    pickle_tag_begin(p, PyFrozenSet_Check(value) ? "frozenset" : "set");
    pickle_text(p, "values", 6);
    done = pickle_value(p, py_list);
    pickle_tag_end(p);
  }
  Py_XDECREF(py_list);
  return done;
}

static int complex_write(struct pickle *p, PyObject *value) {
  Py_complex number = PyComplex_AsCComplex(value);
  pickle_global(p, PICKLE_COMPLEX);
  pickle_float(p, number.real);
  pickle_float(p, number.imag);
  CAPTURE_TEXT_LITERAL(p->out, "\x86R");
  return 0;
}

// 1 when `value` was one of these, 0 when not.
static int builtin_write(struct pickle *p, PyObject *value) {
  PyTypeObject *type = Py_TYPE(value);
  int done;
  if (type == &PySlice_Type) {
    done = slice_write(p, value);
  } else if (value == Py_Ellipsis) {
    pickle_tag_begin(p, "ellipsis");
    pickle_tag_end(p);
    done = 0;
  } else if (PyComplex_Check(value)) {
    done = complex_write(p, value);
  } else if (PyBytes_Check(value)) {
    done = latin_write(p, PICKLE_ENCODE, PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value), "latin1");
  } else if (PyByteArray_Check(value)) {
    done = latin_write(p, PICKLE_BYTEARRAY, PyByteArray_AS_STRING(value), PyByteArray_GET_SIZE(value), "latin-1");
  } else if (PyAnySet_Check(value)) {
    done = set_write(p, value);
  } else if (type == &PyRange_Type) {
    done = range_write(p, value);
  } else {
    return 0;
  }
  return done < 0 ? -1 : 1;
}

// Torch's own

static int memory_format_write(struct pickle *p, PyObject *value) {
  pickle_tag_begin(p, "memory_format");
  pickle_text(p, "name", 4);
  int done = text_write(p, value, PICKLE_MAX_TEXT);
  pickle_tag_end(p);
  return done;
}

static int generator_write(struct pickle *p, PyObject *value) {
  PyObject *py_device = PyObject_GetAttrString(value, "device");
  PyObject *py_state = py_device ? PyObject_CallMethod(value, "get_state", NULL) : NULL;
  int done = -1;
  if (py_state) {
    pickle_tag_begin(p, "generator");
    pickle_text(p, "device", 6);
    done = text_write(p, py_device, PICKLE_MAX_TEXT);
    pickle_text(p, "state", 5);
    done = done == 0 ? pickle_value(p, py_state) : -1;
    pickle_tag_end(p);
  }
  Py_XDECREF(py_device);
  Py_XDECREF(py_state);
  return done;
}

// The bytes of a storage object as a tensor of bytes.
static int storage_object_write(struct pickle *p, PyObject *value) {
  bool untyped = torch_is_instance(value, torch_names.py_untyped_storage_type);
  PyObject *py_untyped = untyped ? Py_NewRef(value) : PyObject_CallMethod(value, "untyped", NULL);
  PyObject *py_device = py_untyped ? PyObject_GetAttr(py_untyped, torch_names.py_text_device) : NULL;
  PyObject *py_bytes = py_device ? torch_empty_make(torch_names.py_dtypes[DIT_DTYPE_U8], py_device) : NULL;
  PyObject *py_tensor = py_bytes ? PyObject_CallMethod(py_bytes, "set_", "O", py_untyped) : NULL;
  int done = -1;
  if (py_tensor) {
    pickle_tag_begin(p, "storage");
    done = type_name_write(p, value);
    if (done == 0 && !untyped) {
      done = attribute_write(p, value, "dtype");
    }
    pickle_text(p, "data", 4);
    done = done == 0 ? pickle_tensor(p, py_tensor) : -1;
    pickle_tag_end(p);
  }
  Py_XDECREF(py_tensor);
  Py_XDECREF(py_bytes);
  Py_XDECREF(py_device);
  Py_XDECREF(py_untyped);
  return done;
}

static int torch_type_write(struct pickle *p, PyObject *value) {
  int done;
  if (torch_is(value, torch_names.py_dtype_type) || torch_is(value, torch_names.py_qscheme_type)) {
    done = torch_name_write(p, value);
  } else if (torch_is(value, torch_names.py_device_type)) {
    done = reduce_text_write(p, PICKLE_DEVICE, value);
  } else if (torch_is(value, torch_names.py_layout_type)) {
    done = reduce_text_write(p, PICKLE_LAYOUT, value);
  } else if (torch_is(value, torch_names.py_memory_format_type)) {
    done = memory_format_write(p, value);
  } else if (torch_is_instance(value, torch_names.py_generator_type)) {
    done = generator_write(p, value);
  } else if (torch_is_instance(value, torch_names.py_untyped_storage_type) ||
             torch_is_instance(value, torch_names.py_typed_storage_type)) {
    done = storage_object_write(p, value);
  } else {
    return 0;
  }
  return done < 0 ? -1 : 1;
}

// Subclasses of the containers

static int plain_tuple_write(struct pickle *p, PyObject *value) {
  PyObject *py_tuple = PyTuple_New(PyTuple_GET_SIZE(value));
  if (!py_tuple) {
    return -1;
  }
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(value); i++) {
    PyTuple_SET_ITEM(py_tuple, i, Py_NewRef(PyTuple_GET_ITEM(value, i)));
  }
  int done = pickle_value(p, py_tuple);
  Py_DECREF(py_tuple);
  return done;
}

static int tuple_type_write(struct pickle *p, PyObject *value) {
  if (torch_is(value, torch_names.py_size_type)) {
    pickle_global(p, PICKLE_SIZE);
    int done = plain_tuple_write(p, value);
    CAPTURE_TEXT_LITERAL(p->out, "\x85R");
    return done;
  }
  PyObject *py_fields = PyObject_GetAttrString((PyObject *)Py_TYPE(value), "_fields");
  py_error_drop();
  PyObject *py_sequence = PyObject_GetAttrString((PyObject *)Py_TYPE(value), "n_sequence_fields");
  py_error_drop();
  int done;
  if (!py_fields && !py_sequence) {
    done = plain_tuple_write(p, value);
  } else {
    pickle_tag_begin(p, py_fields ? "namedtuple" : "return_type");
    done = type_name_write(p, value);
    if (done == 0 && py_fields) {
      pickle_text(p, "fields", 6);
      done = pickle_value(p, py_fields);
    }
    pickle_text(p, "values", 6);
    done = done == 0 ? plain_tuple_write(p, value) : -1;
    pickle_tag_end(p);
  }
  Py_XDECREF(py_fields);
  Py_XDECREF(py_sequence);
  return done;
}

// Subclasses of list and dict are written as what they are subclasses of; OrderedDict keeps its type.
static int copied_write(struct pickle *p, PyObject *value) {
  PyObject *py_copy = PyList_Check(value) ? PySequence_List(value) : PyDict_Copy(value);
  if (!py_copy) {
    return -1;
  }
  bool ordered = strcmp(Py_TYPE(value)->tp_name, "collections.OrderedDict") == 0;
  int done;
  if (ordered) {
    PyObject *py_items = PyDict_Items(py_copy);
    pickle_tag_begin(p, "ordereddict");
    pickle_text(p, "items", 5);
    done = py_items ? pickle_value(p, py_items) : -1;
    pickle_tag_end(p);
    Py_XDECREF(py_items);
  } else {
    done = pickle_value(p, py_copy);
  }
  Py_DECREF(py_copy);
  return done;
}

static int dataclass_write(struct pickle *p, PyObject *value, PyObject *fields) {
  pickle_tag_begin(p, "dataclass");
  int done = type_name_write(p, value);
  pickle_text(p, "fields", 6);
  CAPTURE_TEXT_LITERAL(p->out, "}(");
  PyObject *key;
  Py_ssize_t at = 0;
  while (done == 0 && PyDict_Next(fields, &at, &key, NULL)) {
    PyObject *py_attribute = PyObject_GetAttr(value, key);
    done = py_attribute && pickle_unicode(p, key) == 0 ? pickle_value(p, py_attribute) : -1;
    Py_XDECREF(py_attribute);
  }
  CAPTURE_TEXT_LITERAL(p->out, "u");
  pickle_tag_end(p);
  return done;
}

// Objects that show memory by the buffer protocol: NumPy arrays and scalars, memoryview, array.array.
static int buffer_write(struct pickle *p, PyObject *value) {
  Py_buffer buffer;
  if (PyObject_GetBuffer(value, &buffer, PyBUF_FULL_RO) < 0) {
    return -1;
  }
  const char *format = buffer.format ? buffer.format : "B";
  int done = -1;
  unsigned char *bytes = NULL;
  if (strpbrk(format, "OPsp&X")) {
    PyErr_SetString(PyExc_TypeError, "elements are not plain numbers");
  } else if (!(bytes = PyMem_Malloc(buffer.len ? (size_t)buffer.len : 1))) {
    PyErr_NoMemory();
  } else if (PyBuffer_ToContiguous(bytes, &buffer, buffer.len, 'C') == 0) {
    int key = capture_blobs_join_bytes(p->blobs, bytes, (size_t)buffer.len);
    if (key >= 0) {
      pickle_tag_begin(p, "buffer");
      done = type_name_write(p, value);
      pickle_text(p, "format", 6);
      pickle_text(p, format, strlen(format));
      pickle_text(p, "itemsize", 8);
      pickle_integer(p, buffer.itemsize);
      pickle_text(p, "shape", 5);
      pickle_opcode(p, '(');
      for (int i = 0; i < buffer.ndim; i++) {
        pickle_integer(p, buffer.shape[i]);
      }
      pickle_opcode(p, 't');
      pickle_text(p, "data", 4);
      pickle_bytes_tensor(p, key, (size_t)buffer.len);
      pickle_tag_end(p);
    }
  }
  PyMem_Free(bytes);
  PyBuffer_Release(&buffer);
  return done;
}

// Objects that are only named or described

static int named_write(struct pickle *p, PyObject *value, const char *kind) {
  pickle_tag_begin(p, kind);
  pickle_text(p, "name", 4);
  int done = name_write(p, value);
  pickle_tag_end(p);
  return done;
}

static int enum_write(struct pickle *p, PyObject *value) {
  pickle_tag_begin(p, "enum");
  int done = type_name_write(p, value);
  done = done == 0 ? attribute_write(p, value, "name") : -1;
  done = done == 0 ? attribute_write(p, value, "value") : -1;
  pickle_tag_end(p);
  return done;
}

static int object_write(struct pickle *p, PyObject *value, bool with_text) {
  pickle_tag_begin(p, "object");
  int done = type_name_write(p, value);
  if (done == 0 && with_text) {
    pickle_text(p, "text", 4);
    done = text_write(p, value, PICKLE_MAX_TEXT);
  }
  pickle_tag_end(p);
  return done;
}

static int object_kind_write(struct pickle *p, PyObject *value) {
  PyTypeObject *type = Py_TYPE(value);
  if (PyType_Check(value)) {
    return named_write(p, value, "class");
  }
  if (PyFunction_Check(value) || PyCFunction_Check(value) || PyMethod_Check(value) || type == &PyMethodDescr_Type ||
      type == &PyWrapperDescr_Type) {
    return named_write(p, value, "function");
  }
  if (torch_is_instance(value, torch_names.py_enumeration_type)) {
    return enum_write(p, value);
  }
  PyObject *py_fields = PyObject_GetAttrString((PyObject *)type, "__dataclass_fields__");
  py_error_drop();
  int done;
  if (py_fields && PyDict_Check(py_fields)) {
    done = dataclass_write(p, value, py_fields);
  } else if (PyObject_CheckBuffer(value)) {
    done = buffer_write(p, value);
  } else {
    done = object_write(p, value, true);
  }
  Py_XDECREF(py_fields);
  return done;
}

static int special_write(struct pickle *p, PyObject *value) {
  int done = torch_type_write(p, value);
  if (done == 0) {
    done = builtin_write(p, value);
  }
  if (done != 0) {
    return done < 0 ? -1 : 0;
  }
  if (engine_is_tensor(value)) {
    return pickle_tensor(p, value);
  }
  if (PyTuple_Check(value)) {
    return tuple_type_write(p, value);
  }
  if (PyList_Check(value) || PyDict_Check(value)) {
    return copied_write(p, value);
  }
  if (torch_is_instance(value, torch_names.py_enumeration_type) && !PyLong_Check(value)) {
    return enum_write(p, value);
  }
  if (PyLong_Check(value)) {
    return pickle_whole(p, value);
  }
  if (PyFloat_Check(value)) {
    pickle_float(p, PyFloat_AS_DOUBLE(value));
    return 0;
  }
  if (PyUnicode_Check(value)) {
    return pickle_unicode(p, value);
  }
  return object_kind_write(p, value);
}

int pickle_special(struct pickle *p, PyObject *value) {
  if (!pickle_enter(p, value)) {
    return 0;
  }
  struct pickle_mark mark;
  pickle_mark_set(p, &mark);
  int done = special_write(p, value);
  if (done < 0 && !p->out->failed && !PyErr_ExceptionMatches(PyExc_MemoryError)) {
    py_error_drop();
    pickle_mark_return(p, &mark);
    done = object_write(p, value, false);
  }
  pickle_leave(p);
  return done;
}

// What the Python redirect needs to know of devices: the layout of torch.device objects, and their name in error texts.
//
// Depends on: CPython; Python-level torch, called through the class it is given.
#include "device_object.h"

#include <stdbool.h>
#include <string.h>

int dit_device_object_check(PyTypeObject *device_class, int cuda_type, int other_type) {
  const struct {
    const char *text;
    int type, other, index;
  } known[] = {{"cpu", DIT_C10_CPU, DIT_C10_CPU, -1},
               {"cuda:3", cuda_type, other_type, 3},
               {"meta", DIT_C10_META, DIT_C10_META, -1}};
  for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
    PyObject *py_device = PyObject_CallFunction((PyObject *)device_class, "s", known[i].text);
    if (!py_device) {
      return -1;
    }
    struct dit_c10_device found = {-1, -1};
    if (Py_TYPE(py_device) == device_class &&
        device_class->tp_basicsize >= (Py_ssize_t)(sizeof(PyObject) + sizeof(struct dit_c10_device))) {
      found = *dit_device_object_get(py_device);
    }
    Py_DECREF(py_device);
    if ((found.type != known[i].type && found.type != known[i].other) || found.index != known[i].index) {
      PyErr_Format(PyExc_NotImplementedError,
                   "a torch.device('%s') object holds type %d index %d where type %d index %d was expected: nothing is "
                   "redirected",
                   known[i].text, found.type, found.index, known[i].type, known[i].index);
      return -1;
    }
  }
  return 0;
}

static bool is_word(char c) {
  return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_';
}

// *text followed by `size` bytes and `more`; *text is NULL after a failure.
static void text_extend(PyObject **text, const char *bytes, Py_ssize_t size, const char *more) {
  PyObject *py_part = PyUnicode_FromStringAndSize(bytes, size);
  PyObject *py_whole = py_part ? PyUnicode_FromFormat("%U%U%s", *text, py_part, more) : NULL;
  Py_XDECREF(py_part);
  Py_SETREF(*text, py_whole);
}

// `text` with the real name, where it stands as a word, replaced by "cuda". New reference.
static PyObject *text_show(PyObject *text, const char *name) {
  Py_ssize_t size = 0, name_size = (Py_ssize_t)strlen(name), from = 0;
  const char *bytes = PyUnicode_AsUTF8AndSize(text, &size);
  PyObject *py_result = bytes ? PyUnicode_FromString("") : NULL;
  for (Py_ssize_t i = 0; py_result && i + name_size <= size; i++) {
    if (memcmp(bytes + i, name, (size_t)name_size) == 0 && (i == 0 || !is_word(bytes[i - 1])) &&
        !is_word(bytes[i + name_size])) {
      text_extend(&py_result, bytes + from, i - from, "cuda");
      from = i + name_size;
    }
  }
  if (py_result) {
    text_extend(&py_result, bytes + from, size - from, "");
  }
  return py_result;
}

void py_error_show(const char *name) {
  PyObject *kind, *value, *traceback;
  PyErr_Fetch(&kind, &value, &traceback);
  PyErr_NormalizeException(&kind, &value, &traceback);
  PyObject *py_args = value ? PyObject_GetAttrString(value, "args") : NULL;
  if (py_args && PyTuple_CheckExact(py_args) && PyTuple_GET_SIZE(py_args) == 1 &&
      PyUnicode_Check(PyTuple_GET_ITEM(py_args, 0))) {
    PyObject *py_text = text_show(PyTuple_GET_ITEM(py_args, 0), name);
    PyObject *py_new = py_text ? PyTuple_Pack(1, py_text) : NULL;
    if (py_new) {
      (void)PyObject_SetAttrString(value, "args", py_new);
    }
    Py_XDECREF(py_new);
    Py_XDECREF(py_text);
  }
  Py_XDECREF(py_args);
  PyErr_Clear();
  PyErr_Restore(kind, value, traceback);
}

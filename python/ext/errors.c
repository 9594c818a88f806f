// The one border from enum dit_status to Python exceptions, and small helpers for building results.
//
//   NOMEM -> torch.OutOfMemoryError (MemoryError without torch)     INVALID, CORRUPT -> ValueError
//   RANGE -> IndexError     ORDINAL, DEVICE, INTERNAL -> RuntimeError     UNSUPPORTED -> NotImplementedError
//   IO -> OSError
#include <string.h>

#include "dit/runtime.h"
#include "module.h"

// Looked up only in a torch that is already imported: an allocation failure is no time to import one.
static PyObject *out_of_memory_get(PyObject *module) {
  struct module_state *state = PyModule_GetState(module);
  if (state->py_out_of_memory) {
    return state->py_out_of_memory;
  }
  PyObject *torch = PyDict_GetItemString(PyImport_GetModuleDict(), "torch");  // borrowed
  PyObject *py_class = torch ? PyObject_GetAttrString(torch, "OutOfMemoryError") : NULL;
  if (!py_class || !PyExceptionClass_Check(py_class)) {
    PyErr_Clear();
    Py_XDECREF(py_class);
    return PyExc_MemoryError;
  }
  state->py_out_of_memory = py_class;
  return py_class;
}

static PyObject *exception_get(PyObject *module, enum dit_status status) {
  switch (status) {
    case DIT_ERR_NOMEM:
      return out_of_memory_get(module);
    case DIT_ERR_INVALID:
      return PyExc_ValueError;
    case DIT_ERR_RANGE:
      return PyExc_IndexError;
    case DIT_ERR_UNSUPPORTED:
      return PyExc_NotImplementedError;
    case DIT_ERR_IO:
      return PyExc_OSError;
    case DIT_ERR_CORRUPT:
      return PyExc_ValueError;
    default:
      return PyExc_RuntimeError;
  }
}

PyObject *py_status_raise(PyObject *module, enum dit_status status, const struct dit_error *err) {
  const char *message = err->message[0] ? err->message : dit_status_get_name(status);
  // Messages may quote file names and environment values: what is not UTF-8 is shown, not refused.
  PyObject *py_text =
      PyUnicode_DecodeUTF8(message, (Py_ssize_t)strnlen(message, sizeof err->message), "backslashreplace");
  if (py_text) {
    PyErr_SetObject(exception_get(module, status), py_text);
    Py_DECREF(py_text);
  }
  return NULL;
}

PyObject *py_status_return(PyObject *module, enum dit_status status, const struct dit_error *err) {
  if (status != DIT_OK) {
    return py_status_raise(module, status, err);
  }
  Py_RETURN_NONE;
}

int py_device_check(PyObject *module, int device) {
  struct dit_error err = {0};
  enum dit_status status = dit_device_check(device, &err);
  if (status == DIT_OK) {
    return 0;
  }
  (void)py_status_raise(module, status == DIT_ERR_INVALID ? DIT_ERR_DEVICE : status, &err);
  return -1;
}

int py_dict_take(PyObject *dict, const char *key, PyObject *value) {
  if (!value) {
    return -1;
  }
  int result = PyDict_SetItemString(dict, key, value);
  Py_DECREF(value);
  return result;
}

PyObject *py_numbers_pack(const int64_t *numbers, int count) {
  PyObject *py_tuple = PyTuple_New(count);
  for (int i = 0; py_tuple && i < count; i++) {
    PyObject *py_number = PyLong_FromLongLong(numbers[i]);
    if (!py_number) {
      Py_CLEAR(py_tuple);
      break;
    }
    PyTuple_SET_ITEM(py_tuple, i, py_number);
  }
  return py_tuple;
}

int py_optional_text(PyObject *argument, const char *what, const char **out) {
  if (argument == Py_None) {
    *out = NULL;
    return 0;
  }
  if (!PyUnicode_Check(argument)) {
    PyErr_Format(PyExc_TypeError, "%s must be a str or None, not %.100s", what, Py_TYPE(argument)->tp_name);
    return -1;
  }
  Py_ssize_t length = 0;
  const char *text = PyUnicode_AsUTF8AndSize(argument, &length);
  if (!text) {
    return -1;
  }
  if (strlen(text) != (size_t)length) {
    PyErr_Format(PyExc_ValueError, "%s contains a NUL character: %R", what, argument);
    return -1;
  }
  *out = text;
  return 0;
}

int py_address_convert(PyObject *argument, void *out) {
  if (!PyLong_Check(argument)) {
    PyErr_Format(PyExc_TypeError, "an address must be an int, not %.100s", Py_TYPE(argument)->tp_name);
    return -1;
  }
  void *address = PyLong_AsVoidPtr(argument);
  if (!address && PyErr_Occurred()) {
    return -1;
  }
  *(void **)out = address;
  return 0;
}

// See option.h.
#include "tools/option.h"

PyObject *option_get(PyObject *options, const char *name) {
  PyObject *value = PyDict_GetItemString(options, name);  // borrowed
  return value == Py_None ? NULL : value;
}

int option_read_flag(PyObject *options, const char *name, bool *flag) {
  PyObject *value = option_get(options, name);
  int yes = value ? PyObject_IsTrue(value) : *flag;
  *flag = yes > 0;
  return yes < 0 ? -1 : 0;
}

int option_read_number(PyObject *options, const char *tool, const char *name, int64_t least, int64_t *number) {
  PyObject *value = option_get(options, name);
  long long got = value ? PyLong_AsLongLong(value) : *number;
  if (got == -1 && PyErr_Occurred()) {
    return -1;
  }
  if (value && got < least) {
    PyErr_Format(PyExc_ValueError, "option %s of %s is %lld; valid: %lld or more", name, tool, got, (long long)least);
    return -1;
  }
  *number = got;
  return 0;
}

int option_read_choice(PyObject *options, const char *tool, const char *name, const char *const *words, int *choice) {
  PyObject *value = option_get(options, name);
  PyObject *py_words = NULL;
  if (!value) {
    return 0;
  }
  for (int i = 0; words[i]; i++) {
    if (PyUnicode_Check(value) && PyUnicode_CompareWithASCIIString(value, words[i]) == 0) {
      *choice = i;
      Py_XDECREF(py_words);
      return 0;
    }
    PyObject *py_longer =
        py_words ? PyUnicode_FromFormat("%U, '%s'", py_words, words[i]) : PyUnicode_FromFormat("'%s'", words[i]);
    Py_XSETREF(py_words, py_longer);
  }
  if (py_words) {
    PyErr_Format(PyExc_ValueError, "option %s of %s is %R; valid: %U", name, tool, value, py_words);
  }
  Py_XDECREF(py_words);
  return -1;
}

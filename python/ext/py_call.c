// See py_call.h.
#include "py_call.h"

#include <stdio.h>

static int answer_drop(PyObject *py_answer) {
  Py_XDECREF(py_answer);
  return py_answer ? 0 : -1;
}

int py_call_none(PyObject *function, PyObject *argument) {
  return answer_drop(PyObject_CallOneArg(function, argument));
}

int py_call_pair(PyObject *function, PyObject *first, PyObject *second) {
  return answer_drop(PyObject_CallFunctionObjArgs(function, first, second, NULL));
}

int py_call_bool(PyObject *function, PyObject *argument) {
  PyObject *py_answer = argument ? PyObject_CallOneArg(function, argument) : PyObject_CallNoArgs(function);
  int yes = py_answer ? PyObject_IsTrue(py_answer) : -1;
  Py_XDECREF(py_answer);
  return yes;
}

bool py_call_is_true(PyObject *function, PyObject *argument) {
  bool yes = function && py_call_bool(function, argument) > 0;
  py_error_drop();
  return yes;
}

long py_call_long(PyObject *function) {
  PyObject *py_number = PyObject_CallNoArgs(function);
  long number = py_number ? PyLong_AsLong(py_number) : -1;
  Py_XDECREF(py_number);
  return number;
}

PyObject *py_call_take(PyObject *function, PyObject *py_argument) {
  PyObject *py_answer = py_argument ? PyObject_CallOneArg(function, py_argument) : NULL;
  Py_XDECREF(py_argument);
  return py_answer;
}

PyObject *py_context_enter(PyObject *py_context) {
  PyObject *py_entered = py_context ? PyObject_CallMethod(py_context, "__enter__", NULL) : NULL;
  if (!py_entered) {
    Py_CLEAR(py_context);
  }
  Py_XDECREF(py_entered);
  return py_context;
}

void py_context_leave(PyObject *py_context) {
  if (!py_context) {
    return;
  }
  PyObject *kind, *value, *traceback;
  PyErr_Fetch(&kind, &value, &traceback);
  Py_XDECREF(PyObject_CallMethod(py_context, "__exit__", "OOO", Py_None, Py_None, Py_None));
  Py_DECREF(py_context);
  py_error_drop();
  PyErr_Restore(kind, value, traceback);
}

void py_error_take(char *text, size_t size, const char **name) {
  PyObject *kind, *value, *traceback;
  PyErr_Fetch(&kind, &value, &traceback);
  PyErr_NormalizeException(&kind, &value, &traceback);
  PyObject *py_text = value ? PyObject_Str(value) : NULL;
  const char *words = py_text ? PyUnicode_AsUTF8(py_text) : NULL;
  py_error_drop();
  (void)snprintf(text, size, "%s", words ? words : "");
  if (name) {
    *name = value ? Py_TYPE(value)->tp_name : "unknown error";
  }
  Py_XDECREF(py_text);
  Py_XDECREF(kind);
  Py_XDECREF(value);
  Py_XDECREF(traceback);
}

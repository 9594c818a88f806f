// Bindings of dit/options.h: the typed options.
#include <string.h>

#include "dit/options.h"
#include "module.h"

PyDoc_STRVAR(options_load_doc,
             "options_load(path)\n\nRead the TOML file (None: none) and the environment. Nothing changes on error.");
static PyObject *py_options_load(PyObject *module, PyObject *argument) {
  PyObject *py_bytes = NULL;
  if (argument != Py_None && !PyUnicode_FSConverter(argument, &py_bytes)) {
    return NULL;
  }
  const char *path = py_bytes ? PyBytes_AS_STRING(py_bytes) : NULL;
  struct dit_error err = {0};
  // The GIL stays: texts that options() borrows must not change under it, and the file is small.
  enum dit_status status = dit_options_load(path, &err);
  Py_XDECREF(py_bytes);
  return py_status_return(module, status, &err);
}

PyDoc_STRVAR(option_set_doc, "option_set(name, text)\n\nThe keyword form: highest precedence.");
static PyObject *py_option_set(PyObject *module, PyObject *args) {
  const char *name = NULL, *text = NULL;
  if (!PyArg_ParseTuple(args, "ss:option_set", &name, &text)) {
    return NULL;
  }
  struct dit_error err = {0};
  return py_status_return(module, dit_option_set(name, text, &err), &err);
}

static PyObject *py_options_reset(PyObject *module, PyObject *unused) {
  (void)module;
  (void)unused;
  dit_options_reset();
  Py_RETURN_NONE;
}

// "a|b|c" as a list; None for NULL.
static PyObject *choices_describe(const char *choices) {
  if (!choices) {
    Py_RETURN_NONE;
  }
  PyObject *py_text = PyUnicode_FromString(choices);
  PyObject *py_bar = py_text ? PyUnicode_FromString("|") : NULL;
  PyObject *py_list = py_bar ? PyUnicode_Split(py_text, py_bar, -1) : NULL;
  Py_XDECREF(py_bar);
  Py_XDECREF(py_text);
  return py_list;
}

static PyObject *value_describe(int index, enum dit_option_type type) {
  switch (type) {
    case DIT_OPTION_BOOL:
      return PyBool_FromLong(dit_option_get_int(index) != 0);
    case DIT_OPTION_INT:
    case DIT_OPTION_SIZE:
      return PyLong_FromLongLong(dit_option_get_int(index));
    default: {
      const char *text = dit_option_get_text(index);
      return PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "surrogateescape");
    }
  }
}

static PyObject *option_describe(int index) {
  static const char *const types[] = {"bool", "int", "size", "choice", "string"};
  static const char *const sources[] = {"default", "file", "environment", "argument"};
  const struct dit_option_info *info = dit_option_get_info(index);
  bool ranged = info->type == DIT_OPTION_INT || info->type == DIT_OPTION_SIZE;
  const char *text = dit_option_get_text(index);
  // Py_BuildValue with N fails as a whole, and frees the rest, when one of its objects is NULL.
  return Py_BuildValue("{s:s,s:s,s:s,s:s,s:N,s:N,s:N,s:s,s:N,s:N,s:s}", "name", info->name, "environment",
                       info->environment, "type", types[info->type], "default", info->default_text, "choices",
                       choices_describe(info->choices), "min",
                       ranged ? PyLong_FromLongLong(info->min) : Py_NewRef(Py_None), "max",
                       ranged ? PyLong_FromLongLong(info->max) : Py_NewRef(Py_None), "help", info->help, "value",
                       value_describe(index, info->type), "text",
                       PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "surrogateescape"), "source",
                       sources[dit_option_get_source(index)]);
}

PyDoc_STRVAR(options_doc,
             "options() -> list of dict\n\nThe schema and the values in force: name, environment, type, default, "
             "choices, min, max, "
             "help, value (bool, int or str), text (canonical form), source.");
static PyObject *py_options_list(PyObject *module, PyObject *unused) {
  (void)module;
  (void)unused;
  int count = dit_option_get_count();
  PyObject *py_list = PyList_New(count);
  for (int i = 0; py_list && i < count; i++) {
    PyObject *py_option = option_describe(i);
    if (!py_option) {
      Py_CLEAR(py_list);
      break;
    }
    PyList_SET_ITEM(py_list, i, py_option);
  }
  return py_list;
}

PyMethodDef py_options_methods[] = {
    {"options_load", py_options_load, METH_O, options_load_doc},
    {"option_set", py_option_set, METH_VARARGS, option_set_doc},
    {"options", py_options_list, METH_NOARGS, options_doc},
    {"options_reset", py_options_reset, METH_NOARGS, "options_reset()\n\nBack to the defaults."},
    {NULL, NULL, 0, NULL},
};

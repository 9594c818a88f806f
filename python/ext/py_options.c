// Bindings of dit/options.h: the typed options of ditorch, and those of the operator tools.
#include <string.h>

#include "dit/options.h"
#include "module.h"

PyDoc_STRVAR(options_load_doc,
             "options_load(path: str | PathLike[str] | None, /) -> None\n\nRead the TOML file (None: none) and the "
             "environment. Nothing changes on error.");
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

PyDoc_STRVAR(option_set_doc, "option_set(name: str, text: str, /) -> None\n\nThe keyword form: highest precedence.");
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

static const char *const types[] = {"bool",  "int",      "size",   "choice", "string",
                                    "names", "patterns", "ranges", "casts",  "tolerance"};
static const char *const sources[] = {"default", "file", "environment", "argument"};

static PyObject *option_describe(int index) {
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
             "options() -> list[dict[str, Any]]\n\nThe schema and the values in force: name, environment, type, "
             "default, choices, min, max, help, value (bool, int or str), text (canonical form), source.");
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

// Options of the operator tools

static PyObject *text_decode(const char *text) {
  return PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "surrogateescape");
}

// Names of the tools that have the option: {name: [variables, strongest first]}.
static PyObject *variables_describe(int index) {
  PyObject *py_tools = PyDict_New();
  for (int tool = 0; py_tools && tool < DIT_TOOL_COUNT; tool++) {
    if (!(dit_tool_option_get_info(index)->tools & 1u << tool)) {
      continue;
    }
    PyObject *py_list = PyList_New(0);
    char name[128];
    for (int at = 0; py_list && dit_tool_option_get_variable(index, tool, at, name, sizeof name); at++) {
      PyObject *py_name = PyUnicode_FromString(name);
      if (!py_name || PyList_Append(py_list, py_name) < 0) {
        Py_CLEAR(py_list);
      }
      Py_XDECREF(py_name);
    }
    if (py_dict_take(py_tools, dit_tool_get_name(tool), py_list) < 0) {
      Py_CLEAR(py_tools);
    }
  }
  return py_tools;
}

static PyObject *tool_option_describe(int index) {
  static const char *const scopes[] = {"shared", "own", "named", "pattern"};
  const struct dit_tool_option_info *info = dit_tool_option_get_info(index);
  const struct dit_option_info *option = &info->option;
  bool ranged = option->type == DIT_OPTION_INT || option->type == DIT_OPTION_SIZE;
  return Py_BuildValue("{s:s,s:N,s:s,s:s,s:s,s:N,s:N,s:N,s:s}", "name", option->name, "tools",
                       variables_describe(index), "scope", scopes[info->scope], "type", types[option->type], "default",
                       option->default_text, "choices", choices_describe(option->choices), "min",
                       ranged ? PyLong_FromLongLong(option->min) : Py_NewRef(Py_None), "max",
                       ranged ? PyLong_FromLongLong(option->max) : Py_NewRef(Py_None), "help", option->help);
}

PyDoc_STRVAR(tool_options_doc,
             "tool_options() -> list[dict[str, Any]]\n\nThe schema of the operator tools: name, tools (tool -> "
             "environment variables, strongest first), scope, type, default, choices, min, max, help.");
static PyObject *py_tool_options_list(PyObject *module, PyObject *unused) {
  (void)module;
  (void)unused;
  int count = dit_tool_option_get_count();
  PyObject *py_list = PyList_New(count);
  for (int i = 0; py_list && i < count; i++) {
    PyObject *py_option = tool_option_describe(i);
    if (!py_option) {
      Py_CLEAR(py_list);
      break;
    }
    PyList_SET_ITEM(py_list, i, py_option);
  }
  return py_list;
}

static PyObject *tool_value_describe(const struct dit_tool_value *value) {
  const struct dit_option_info *info = &dit_tool_option_get_info(value->option)->option;
  PyObject *py_value = info->type == DIT_OPTION_BOOL    ? PyBool_FromLong(value->number != 0)
                       : info->type < DIT_OPTION_CHOICE ? PyLong_FromLongLong(value->number)
                                                        : text_decode(value->text);
  return Py_BuildValue("{s:s,s:z,s:s,s:N,s:N,s:s,s:N}", "name", info->name, "key", value->key, "type",
                       types[info->type], "value", py_value, "text", text_decode(value->text), "source",
                       sources[value->source], "origin", text_decode(value->origin));
}

static PyObject *tool_values_describe(const struct dit_tool_options *options) {
  PyObject *py_list = PyList_New(0);
  const struct dit_tool_value *value = NULL;
  for (size_t i = 0; py_list && (value = dit_tool_options_get(options, i)); i++) {
    PyObject *py_value = tool_value_describe(value);
    if (!py_value || PyList_Append(py_list, py_value) < 0) {
      Py_CLEAR(py_list);
    }
    Py_XDECREF(py_value);
  }
  return py_list;
}

// The items of a dict of str to str, borrowed from it; new memory (PyMem_Free).
static struct dit_tool_argument *arguments_read(PyObject *py_dict) {
  struct dit_tool_argument *arguments = PyMem_Calloc((size_t)PyDict_Size(py_dict) + 1, sizeof *arguments);
  PyObject *key = NULL, *text = NULL;
  Py_ssize_t position = 0;
  for (size_t i = 0; arguments && PyDict_Next(py_dict, &position, &key, &text); i++) {
    arguments[i].name = PyUnicode_AsUTF8(key);
    arguments[i].text = arguments[i].name ? PyUnicode_AsUTF8(text) : NULL;
    if (!arguments[i].text) {
      PyMem_Free(arguments);
      return NULL;
    }
  }
  return arguments ? arguments : (struct dit_tool_argument *)PyErr_NoMemory();
}

PyDoc_STRVAR(tool_options_resolve_doc,
             "tool_options_resolve(tool: str, path: str | PathLike[str] | None, arguments: dict[str, str], /) -> "
             "list[dict[str, Any]]\n\nThe values of one tool from arguments (dict of str), environment, TOML file "
             "(path or None) and defaults: name, key (of a pattern), type, value, text, source, origin.");
static PyObject *py_tool_options_resolve(PyObject *module, PyObject *args) {
  const char *name = NULL;
  PyObject *path = NULL, *py_path = NULL, *arguments = NULL;
  if (!PyArg_ParseTuple(args, "sOO!:tool_options_resolve", &name, &path, &PyDict_Type, &arguments) ||
      (path != Py_None && !PyUnicode_FSConverter(path, &py_path))) {
    return NULL;
  }
  PyObject *py_list = NULL;
  struct dit_tool_options *options = NULL;
  struct dit_error err = {0};
  struct dit_tool_argument *pairs = arguments_read(arguments);
  int tool = dit_tool_find(name);
  if (tool < 0) {
    PyErr_Format(PyExc_ValueError, "'%s' is not an operator tool", name);
  } else if (pairs) {
    // The GIL stays: os.environ changes the environment under it.
    enum dit_status status = dit_tool_options_create((enum dit_tool)tool, py_path ? PyBytes_AS_STRING(py_path) : NULL,
                                                     pairs, (size_t)PyDict_Size(arguments), &options, &err);
    py_list = status == DIT_OK ? tool_values_describe(options) : py_status_raise(module, status, &err);
  }
  dit_tool_options_destroy(options);
  PyMem_Free(pairs);
  Py_XDECREF(py_path);
  return py_list;
}

PyMethodDef py_options_methods[] = {
    {"options_load", py_options_load, METH_O, options_load_doc},
    {"option_set", py_option_set, METH_VARARGS, option_set_doc},
    {"options", py_options_list, METH_NOARGS, options_doc},
    {"options_reset", py_options_reset, METH_NOARGS, "options_reset() -> None\n\nBack to the defaults."},
    {"tool_options", py_tool_options_list, METH_NOARGS, tool_options_doc},
    {"tool_options_resolve", py_tool_options_resolve, METH_VARARGS, tool_options_resolve_doc},
    {NULL, NULL, 0, NULL},
};

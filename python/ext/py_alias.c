// Python bindings of the alias, and its last check: what PyTorch itself says once the slots are written.
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "alias.h"
#include "torch_names.h"

static PyObject *library_describe(const struct dit_alias_library *library) {
  PyObject *py_counts = PyDict_New();
  for (int h = 0; py_counts && h < DIT_ALIAS_HOOKS; h++) {
    if (library->counts[h] &&
        py_dict_take(py_counts, dit_alias_hooks[h].label, PyLong_FromLong(library->counts[h])) < 0) {
      Py_CLEAR(py_counts);
    }
  }
  return py_counts;
}

PyDoc_STRVAR(alias_status_doc,
             "alias_status() -> dict[str, Any]\n\nWhat is patched: installed, device_type, show, slots, libraries "
             "(file name -> symbol -> number of slots), paths (file name -> path).");
static PyObject *py_alias_status(PyObject *module, PyObject *unused) {
  (void)module;
  (void)unused;
  const struct dit_alias_status *status = dit_alias_get_status();
  PyObject *py_result = PyDict_New();
  PyObject *py_libraries = PyDict_New();
  PyObject *py_paths = PyDict_New();
  if (!py_result || !py_libraries || !py_paths) {
    goto error;
  }
  for (int i = 0; i < status->library_count; i++) {
    const struct dit_alias_library *library = &status->libraries[i];
    if (py_dict_take(py_libraries, library->name, library_describe(library)) < 0 ||
        py_dict_take(py_paths, library->name, PyUnicode_DecodeFSDefault(library->path)) < 0) {
      goto error;
    }
  }
  PyObject *py_type = status->installed ? PyLong_FromLong(status->device_type) : Py_NewRef(Py_None);
  if (py_dict_take(py_result, "installed", PyBool_FromLong(status->installed)) < 0) {
    Py_XDECREF(py_type);
    goto error;
  }
  if (py_dict_take(py_result, "device_type", py_type) < 0 ||
      py_dict_take(py_result, "show", PyBool_FromLong(status->show)) < 0 ||
      py_dict_take(py_result, "slots", PyLong_FromLong(status->slot_count)) < 0 ||
      PyDict_SetItemString(py_result, "libraries", py_libraries) < 0 ||
      PyDict_SetItemString(py_result, "paths", py_paths) < 0) {
    goto error;
  }
  Py_DECREF(py_libraries);
  Py_DECREF(py_paths);
  return py_result;
error:
  Py_XDECREF(py_result);
  Py_XDECREF(py_libraries);
  Py_XDECREF(py_paths);
  return NULL;
}

static PyObject *device_create(const char *name, int index) {
  char text[80];
  (void)snprintf(text, sizeof text, "%s:%d", name, index);
  return PyObject_CallFunction(torch_names.py_device_type, "s", text);
}

// torch.device("cuda:3") must be the target's device 3 and print as asked. 0, or -1 with an exception.
static int probe_result(PyObject *module) {
  char name[64];
  struct dit_error err = {0};
  enum dit_status status = dit_alias_get_real_name(name, sizeof name, &err);
  if (status != DIT_OK) {
    (void)py_status_raise(module, status, &err);
    return -1;
  }
  int result = -1;
  PyObject *py_alias = torch_names_load(TORCH_BASE) == 0 ? device_create("cuda", 3) : NULL;
  PyObject *py_real = py_alias ? device_create(name, 3) : NULL;
  PyObject *py_text = py_real ? PyObject_Str(py_real) : NULL;
  const char *text = py_text ? PyUnicode_AsUTF8(py_text) : NULL;
  if (!text) {
    goto done;
  }
  char expected[80];
  (void)snprintf(expected, sizeof expected, "%s:3", dit_alias_get_show() ? "cuda" : name);
  int same = PyObject_RichCompareBool(py_alias, py_real, Py_EQ);
  if (same < 0) {
    goto done;
  }
  if (dit_alias_take_failure(DIT_ALIAS_STAGE_PROBE) || !same || strcmp(text, expected) != 0) {
    PyErr_Format(
        PyExc_NotImplementedError,
        "after patching, torch.device('cuda:3') %s torch.device('%s:3') and prints '%s' (expected '%s'): the alias "
        "was taken out again",
        same ? "equals" : "differs from", name, text, expected);
    goto done;
  }
  result = 0;
done:
  Py_XDECREF(py_text);
  Py_XDECREF(py_real);
  Py_XDECREF(py_alias);
  return result;
}

// A list of str as an array of C strings, borrowed from the list's items. -1 with an exception.
static int names_read(PyObject *list, const char **names) {
  if (!PyList_Check(list) && !PyTuple_Check(list)) {
    PyErr_Format(PyExc_TypeError, "libraries must be a list of str or None, not %.100s", Py_TYPE(list)->tp_name);
    return -1;
  }
  Py_ssize_t count = PySequence_Fast_GET_SIZE(list);
  if (count < 1 || count > DIT_ALIAS_MAX_LIBRARIES) {
    PyErr_Format(PyExc_ValueError, "libraries has %zd entries; between 1 and %d are possible", count,
                 DIT_ALIAS_MAX_LIBRARIES);
    return -1;
  }
  for (Py_ssize_t i = 0; i < count; i++) {
    PyObject *item = PySequence_Fast_GET_ITEM(list, i);
    names[i] = NULL;
    if (py_optional_text(item, "a library name", &names[i]) < 0) {
      return -1;
    }
    if (!names[i]) {
      PyErr_SetString(PyExc_TypeError, "a library name must be a str, not None");
      return -1;
    }
  }
  return (int)count;
}

PyDoc_STRVAR(
    alias_install_doc,
    "alias_install(device_type: int, show: bool = True, libraries: Sequence[str] | None = None) -> dict[str, "
    "Any]\n\nMake 'cuda' parse to the device type of this number in PyTorch (and, with show, make that type print as "
    "'cuda'). libraries: file names of the PyTorch libraries to patch, default libtorch_python.so and libtorch_cpu.so. "
    "Everything is verified before anything is written; on an error nothing is changed. Returns alias_status().");
static PyObject *py_alias_install(PyObject *module, PyObject *args, PyObject *kwargs) {
  static char *keywords[] = {"device_type", "show", "libraries", NULL};
  int device_type = 0, show = 1;
  PyObject *libraries = Py_None;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "i|pO:alias_install", keywords, &device_type, &show, &libraries)) {
    return NULL;
  }
  const char *names[DIT_ALIAS_MAX_LIBRARIES];
  int count = libraries == Py_None ? 0 : names_read(libraries, names);
  if (count < 0) {
    return NULL;
  }
  bool fresh = !dit_alias_get_status()->installed;
  struct dit_error err = {0};
  enum dit_status status = dit_alias_install(device_type, show, count ? names : NULL, count, &err);
  if (status != DIT_OK) {
    return py_status_raise(module, status, &err);
  }
  if (fresh && probe_result(module) < 0) {
    (void)!dit_alias_restore(NULL);
    return NULL;
  }
  return py_alias_status(module, NULL);
}

PyDoc_STRVAR(alias_second_name_doc,
             "alias_second_name(name: str | None, cuda: bool = True, /) -> None\n\nMake `name` (and `name:1` ...) "
             "parse to the aliased device type too; None takes that back. cuda: whether 'cuda' means the device type "
             "as well, or PyTorch's own.");
static PyObject *py_alias_second_name(PyObject *module, PyObject *args) {
  (void)module;
  const char *name = NULL;
  int cuda = 1;
  if (!PyArg_ParseTuple(args, "z|p:alias_second_name", &name, &cuda)) {
    return NULL;
  }
  const struct dit_alias_status *status = dit_alias_get_status();
  if (!status->installed) {
    PyErr_SetString(PyExc_ValueError, "the alias is not installed; call alias_install() first");
    return NULL;
  }
  if (name && (!*name || strlen(name) > DIT_ALIAS_SECOND_MAX || strchr(name, ':') || strcmp(name, "cuda") == 0)) {
    return PyErr_Format(PyExc_ValueError,
                        "'%s' cannot be a device name; valid: 1 to %d bytes without a colon, not cuda", name,
                        DIT_ALIAS_SECOND_MAX);
  }
  dit_alias_set_target(cuda ? (int8_t)status->device_type : (int8_t)DIT_C10_CUDA);
  dit_alias_set_second(name, (int8_t)status->device_type);
  Py_RETURN_NONE;
}

PyDoc_STRVAR(alias_restore_doc,
             "alias_restore() -> None\n\nPut every import slot back. Does nothing when not installed.");
static PyObject *py_alias_restore(PyObject *module, PyObject *unused) {
  (void)unused;
  struct dit_error err = {0};
  return py_status_return(module, dit_alias_restore(&err), &err);
}

PyDoc_STRVAR(alias_fail_doc,
             "_alias_set_failure(stage: str | None, /) -> None\n\nFor tests: the next alias_install fails at 'symbol', "
             "'layout', 'slot', 'protect', 'write' or 'probe'; None takes it back.");
static PyObject *py_alias_set_failure(PyObject *module, PyObject *argument) {
  (void)module;
  static const char *const stages[DIT_ALIAS_STAGES] = {"none", "symbol", "layout", "slot", "protect", "write", "probe"};
  const char *text = NULL;
  if (py_optional_text(argument, "stage", &text) < 0) {
    return NULL;
  }
  for (int i = 0; i < DIT_ALIAS_STAGES; i++) {
    if (strcmp(text ? text : "none", stages[i]) == 0) {
      dit_alias_set_failure((enum dit_alias_stage)i);
      Py_RETURN_NONE;
    }
  }
  return PyErr_Format(PyExc_ValueError, "stage '%s' is unknown; valid: symbol, layout, slot, protect, write, probe",
                      text);
}

PyMethodDef py_alias_methods[] = {
    {"alias_install", (PyCFunction)(void (*)(void))py_alias_install, METH_VARARGS | METH_KEYWORDS, alias_install_doc},
    {"alias_restore", py_alias_restore, METH_NOARGS, alias_restore_doc},
    {"alias_second_name", py_alias_second_name, METH_VARARGS, alias_second_name_doc},
    {"alias_status", py_alias_status, METH_NOARGS, alias_status_doc},
    {"_alias_set_failure", py_alias_set_failure, METH_O, alias_fail_doc},
    {NULL, NULL, 0, NULL},
};

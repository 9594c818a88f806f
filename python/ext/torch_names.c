// The loader of torch_names.inc; see torch_names.h.
#include "torch_names.h"

#include <stddef.h>
#include <string.h>

struct torch_names torch_names;

struct row {
  size_t offset;  // of the field
  const char *module, *path, *since;
  uint16_t group;
  bool is_required, is_class;
};

static const struct row rows[] = {
#define REQUIRED(group, field, module, path) \
  {offsetof(struct torch_names, py_##field), module, path, NULL, TORCH_##group, true, false},
#define CLASS(group, field, module, path) \
  {offsetof(struct torch_names, py_##field), module, path, NULL, TORCH_##group, true, true},
#define OPTIONAL(group, field, module, path, since) \
  {offsetof(struct torch_names, py_##field), module, path, since, TORCH_##group, false, false},
#define TEXT(field, text)
#include "torch_names.inc"
#undef REQUIRED
#undef CLASS
#undef OPTIONAL
#undef TEXT
};

static const struct {
  size_t offset;
  const char *text;
} texts[] = {
#define REQUIRED(group, field, module, path)
#define CLASS(group, field, module, path)
#define OPTIONAL(group, field, module, path, since)
#define TEXT(field, text) {offsetof(struct torch_names, py_##field), text},
#include "torch_names.inc"
#undef REQUIRED
#undef CLASS
#undef OPTIONAL
#undef TEXT
};

static PyObject **slot_get(size_t offset) {
  return (PyObject **)(void *)((char *)&torch_names + offset);
}

// Takes the reference; another thread may have been quicker while modules were imported. 0, or -1 for NULL.
static int slot_put(PyObject **slot, PyObject *py_value) {
  if (*slot) {
    Py_XDECREF(py_value);
  } else {
    *slot = py_value;
  }
  return *slot ? 0 : -1;
}

// The object behind module and dotted path; new reference, or NULL with an exception.
static PyObject *path_walk(const char *module, const char *path) {
  PyObject *py_object = PyImport_ImportModule(module);
  while (py_object && *path) {
    size_t size = strcspn(path, ".");
    PyObject *py_part = PyUnicode_FromStringAndSize(path, (Py_ssize_t)size);
    PyObject *py_next = py_part ? PyObject_GetAttr(py_object, py_part) : NULL;
    Py_XDECREF(py_part);
    Py_SETREF(py_object, py_next);
    path += path[size] ? size + 1 : size;
  }
  return py_object;
}

// Instead of the AttributeError or ImportError that is pending; whatever else happened stays. -1.
static int missing_raise(const struct row *row) {
  if (!PyErr_ExceptionMatches(PyExc_AttributeError) && !PyErr_ExceptionMatches(PyExc_ImportError)) {
    return -1;
  }
  PyErr_Clear();
  PyObject *torch = PyDict_GetItemString(PyImport_GetModuleDict(), "torch");  // borrowed
  PyObject *py_version = torch ? PyObject_GetAttrString(torch, "__version__") : NULL;
  PyErr_Clear();
  if (!py_version) {
    PyErr_Format(PyExc_ImportError, "ditorch needs %s, which cannot be imported", row->module);
  } else {
    PyErr_Format(
        PyExc_NotImplementedError,
        "torch %S has no %s.%s, which this part of ditorch needs: it supports the PyTorch releases that have it",
        py_version, row->module, row->path);
  }
  Py_XDECREF(py_version);
  return -1;
}

static int row_load(const struct row *row) {
  PyObject **slot = slot_get(row->offset);
  if (*slot) {
    return 0;
  }
  PyObject *py_object = path_walk(row->module, row->path);
  if (!py_object && row->is_required) {
    return missing_raise(row);
  }
  if (py_object && row->is_class && !PyType_Check(py_object)) {
    PyErr_Format(PyExc_NotImplementedError, "%s.%s is %.100s, not a class: this PyTorch is not supported", row->module,
                 row->path, Py_TYPE(py_object)->tp_name);
    Py_DECREF(py_object);
    return -1;
  }
  py_error_drop();
  (void)slot_put(slot, py_object);
  return 0;
}

// Texts, dtypes and devices: with every first load.
static int constants_load(void) {
  int status = 0;
  for (size_t i = 0; status == 0 && i < sizeof texts / sizeof *texts; i++) {
    status = slot_put(slot_get(texts[i].offset), PyUnicode_InternFromString(texts[i].text));
  }
  for (int i = 0; status == 0 && i < DIT_DTYPE_COUNT; i++) {
    const char *name = dit_dtype_get_name(i);
    (void)slot_put(&torch_names.py_dtypes[i], name ? PyObject_GetAttrString(torch_names.py_torch, name) : NULL);
    py_error_drop();
  }
  PyObject *type = torch_names.py_device_type;
  if (status < 0 || slot_put(&torch_names.py_host, PyObject_CallFunction(type, "s", "cpu")) < 0 ||
      slot_put(&torch_names.py_meta, PyObject_CallFunction(type, "s", "meta")) < 0) {
    return -1;
  }
  return slot_put(&torch_names.py_dtype_device, PyTuple_Pack(2, torch_names.py_text_dtype, torch_names.py_text_device));
}

int torch_names_fill(unsigned groups) {
  groups = (groups | TORCH_BASE) & ~torch_names.loaded;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    if ((rows[i].group & groups) && row_load(&rows[i]) < 0) {
      return -1;
    }
  }
  if ((groups & TORCH_BASE) && constants_load() < 0) {
    return -1;
  }
  torch_names.loaded |= groups;
  return 0;
}

PyObject *torch_dtype_get(int dtype) {
  bool valid = dit_dtype_is_valid(dtype);
  if (torch_names_load(TORCH_BASE) < 0 || (valid && torch_names.py_dtypes[dtype])) {
    return valid ? torch_names.py_dtypes[dtype] : NULL;
  }
  PyErr_Format(PyExc_NotImplementedError, "this PyTorch has no dtype %s (%d)",
               valid ? dit_dtype_get_name(dtype) : "of this number", dtype);
  return NULL;
}

int torch_dtype_find(PyObject *dtype) {
  for (int i = 0; i < DIT_DTYPE_COUNT; i++) {
    if (torch_names.py_dtypes[i] == dtype) {
      return i;
    }
  }
  return -1;
}

// For tests

PyDoc_STRVAR(names_doc,
             "torch_names() -> list[tuple[str, str | None, bool]]\n\nEvery name of PyTorch that the extension looks "
             "up, the first torch that has it where it is optional, and whether this one has it. Loads them all.");
static PyObject *py_torch_names(PyObject *module, PyObject *unused) {
  (void)module;
  (void)unused;
  PyObject *py_list = torch_names_load(TORCH_ALL) == 0 ? PyList_New(0) : NULL;
  for (size_t i = 0; py_list && i < sizeof rows / sizeof *rows; i++) {
    const struct row *row = &rows[i];
    PyObject *py_name = PyUnicode_FromFormat("%s%s%s", row->module, *row->path ? "." : "", row->path);
    PyObject *py_row = Py_BuildValue("(NzO)", py_name, row->since, *slot_get(row->offset) ? Py_True : Py_False);
    if (!py_row || PyList_Append(py_list, py_row) < 0) {
      Py_CLEAR(py_list);
    }
    Py_XDECREF(py_row);
  }
  return py_list;
}

PyMethodDef py_torch_names_methods[] = {
    {"torch_names", py_torch_names, METH_NOARGS, names_doc},
    {NULL, NULL, 0, NULL},
};

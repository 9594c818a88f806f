// Attributes of classes, set and deleted without making a sequence of a class that was none.
//
// Python mirrors `__getitem__` and `__setitem__` in two slots each, of mappings and of sequences. A class of C such as
// the base of torch.Tensor fills the mapping's alone. Assigning either name fills both, and deleting it again does not
// empty the second: PySequence_Check() then takes every tensor for a sequence, and `torch.tensor([x.sum()])` asks a
// tensor without dimensions for its length.
#include "module.h"

struct kept_slots {
  PyTypeObject *type;  // borrowed: `py_types` of the walk owns it
  ssizeargfunc item;
  ssizeobjargproc assign;
};

/// Append `type` and the classes below it to `list`. 0 or -1.
static int types_collect(PyObject *type, PyObject *list) {
  if (PyList_Append(list, type) < 0) {
    return -1;
  }
  PyObject *py_below = PyObject_CallMethod((PyObject *)&PyType_Type, "__subclasses__", "O", type);
  if (!py_below) {
    return -1;
  }
  int status = 0;
  for (Py_ssize_t i = 0; status == 0 && i < PyList_GET_SIZE(py_below); i++) {
    PyObject *below = PyList_GET_ITEM(py_below, i);
    int known = PySequence_Contains(list, below);
    status = known < 0 ? -1 : known ? 0 : types_collect(below, list);
  }
  Py_DECREF(py_below);
  return status;
}

static struct kept_slots slots_read(PyTypeObject *type) {
  PySequenceMethods *sequence = type->tp_as_sequence;
  return (struct kept_slots){type, sequence ? sequence->sq_item : NULL, sequence ? sequence->sq_ass_item : NULL};
}

static void slots_put_back(const struct kept_slots *kept) {
  PySequenceMethods *sequence = kept->type->tp_as_sequence;
  if (sequence && !kept->item) {
    sequence->sq_item = NULL;
  }
  if (sequence && !kept->assign) {
    sequence->sq_ass_item = NULL;
  }
}

PyDoc_STRVAR(type_attribute_set_doc,
             "type_attribute_set(owner: type, name: str, value: object) -> None\n\n"
             "setattr, after which neither the class nor one below it is a sequence that was none before.");
PyDoc_STRVAR(type_attribute_delete_doc,
             "type_attribute_delete(owner: type, name: str) -> None\n\n"
             "delattr, after which neither the class nor one below it is a sequence that was none before.");

static PyObject *attribute_change(PyTypeObject *type, PyObject *name, PyObject *value) {
  PyObject *py_types = PyList_New(0);
  struct kept_slots *kept = NULL;
  PyObject *py_answer = NULL;
  if (!py_types || types_collect((PyObject *)type, py_types) < 0) {
    goto done;
  }
  Py_ssize_t count = PyList_GET_SIZE(py_types);
  kept = PyMem_New(struct kept_slots, (size_t)count);
  if (!kept) {
    PyErr_NoMemory();
    goto done;
  }
  for (Py_ssize_t i = 0; i < count; i++) {
    kept[i] = slots_read((PyTypeObject *)PyList_GET_ITEM(py_types, i));
  }
  if (PyObject_SetAttr((PyObject *)type, name, value) < 0) {
    goto done;
  }
  for (Py_ssize_t i = 0; i < count; i++) {
    slots_put_back(&kept[i]);
  }
  py_answer = Py_NewRef(Py_None);
done:
  PyMem_Free(kept);
  Py_XDECREF(py_types);
  return py_answer;
}

static PyObject *py_type_attribute_set(PyObject *module, PyObject *args) {
  (void)module;
  PyTypeObject *type;
  PyObject *name, *value;
  return PyArg_ParseTuple(args, "O!UO:type_attribute_set", &PyType_Type, &type, &name, &value)
             ? attribute_change(type, name, value)
             : NULL;
}

static PyObject *py_type_attribute_delete(PyObject *module, PyObject *args) {
  (void)module;
  PyTypeObject *type;
  PyObject *name;
  return PyArg_ParseTuple(args, "O!U:type_attribute_delete", &PyType_Type, &type, &name)
             ? attribute_change(type, name, NULL)
             : NULL;
}

PyMethodDef py_type_attribute_methods[] = {
    {"type_attribute_set", py_type_attribute_set, METH_VARARGS, type_attribute_set_doc},
    {"type_attribute_delete", py_type_attribute_delete, METH_VARARGS, type_attribute_delete_doc},
    {NULL, NULL, 0, NULL},
};

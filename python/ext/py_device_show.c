// torch.device objects of one device type that say "cuda": type, str, repr and pickling; torch.Stream and torch.Event
// likewise. Or, under the binary alias, that say their real name to exempt packages.
//
// For the Python redirect, where PyTorch's own code prints the real name. Each replacement hands a CUDA twin of the
// device to the original function, so the texts stay PyTorch's own. Under the binary alias the originals say "cuda"
// already; the replacements then only look who asks. Invariant: everything is checked before anything is written, and
// restore puts back every pointer. Depends on: CPython's descriptors and type slots, Python-level torch.
#include <stdbool.h>
#include <string.h>

#include "device_object.h"
#include "exempt.h"

enum { PRINTED = 2 };  // torch.Stream and torch.Event

static struct {
  PyTypeObject
      *py_class;  // torch.device; owned, kept once set, because replaced functions may outlive the installation
  bool installed;
  bool truth;  // the originals say "cuda"
  int8_t target;
  PyObject *py_cuda;  // "cuda"
  PyObject *py_name;  // "dit"
  PyObject *py_real;  // "device_type=dit", as the repr of streams and events says it
  PyObject *py_shown;
  PyGetSetDescrObject *py_type;
  PyGetSetDef *type_before;
  PyGetSetDef type_now;
  PyMethodDescrObject *py_reduce;
  PyMethodDef *reduce_before;
  PyMethodDef reduce_now;
  reprfunc repr_before, str_before;
  PyTypeObject *py_printed[PRINTED];
  reprfunc printed_before[PRINTED];
} state;

static bool is_target(PyObject *self) {
  return state.installed && Py_TYPE(self) == state.py_class && dit_device_object_get(self)->type == state.target;
}

static bool is_exempt(void) {
  return dit_exempt_is(DIT_EXEMPT_NAMES, "torch.device");
}

// Says "cuda" by our doing.
static bool is_shown(PyObject *self) {
  return !state.truth && is_target(self);
}

// The device itself or, for one of the target type, a CUDA device with its index. New reference.
static PyObject *twin_create(PyObject *self) {
  if (!is_shown(self)) {
    return Py_NewRef(self);
  }
  PyObject *py_twin = state.py_class->tp_alloc(state.py_class, 0);
  if (py_twin) {
    *dit_device_object_get(py_twin) = *dit_device_object_get(self);
    dit_device_object_get(py_twin)->type = DIT_C10_CUDA;
  }
  return py_twin;
}

static PyObject *twin_print(PyObject *self, reprfunc original) {
  PyObject *py_twin = twin_create(self);
  PyObject *py_text = py_twin ? original(py_twin) : NULL;
  Py_XDECREF(py_twin);
  return py_text;
}

static PyObject *device_repr(PyObject *self) {
  if (!is_target(self) || !is_exempt()) {
    return twin_print(self, state.repr_before);
  }
  int index = dit_device_object_get(self)->index;
  return index < 0 ? PyUnicode_FromFormat("device(type='%U')", state.py_name)
                   : PyUnicode_FromFormat("device(type='%U', index=%d)", state.py_name, index);
}

static PyObject *device_str(PyObject *self) {
  if (!is_target(self) || !is_exempt()) {
    return twin_print(self, state.str_before);
  }
  int index = dit_device_object_get(self)->index;
  return index < 0 ? Py_NewRef(state.py_name) : PyUnicode_FromFormat("%U:%d", state.py_name, index);
}

static PyObject *device_get_type(PyObject *self, void *closure) {
  if (is_target(self) && is_exempt()) {
    return Py_NewRef(state.py_name);
  }
  return is_shown(self) ? Py_NewRef(state.py_cuda) : state.type_before->get(self, closure);
}

static PyObject *device_reduce(PyObject *self, PyObject *unused) {
  PyObject *py_twin = twin_create(self);
  PyObject *py_result = py_twin ? state.reduce_before->ml_meth(py_twin, unused) : NULL;
  Py_XDECREF(py_twin);
  return py_result;
}

static PyObject *printed_repr(PyObject *self) {
  for (int i = 0; i < PRINTED; i++) {
    if (!state.py_printed[i] || !PyType_IsSubtype(Py_TYPE(self), state.py_printed[i])) {
      continue;
    }
    PyObject *py_text = state.printed_before[i](self);
    if (!py_text || !state.installed) {
      return py_text;
    }
    PyObject *py_result = PyUnicode_Replace(py_text, state.py_real, state.py_shown, 1);
    Py_DECREF(py_text);
    return py_result;
  }
  return PyErr_Format(PyExc_TypeError, "%.100s is neither a torch.Stream nor a torch.Event", Py_TYPE(self)->tp_name);
}

// Install and restore

// The slot of the class, the wrapper that stands for it in the class's dictionary, and the slots that subclasses
// copied.
static int slot_replace(PyTypeObject *type, reprfunc *slot, const char *name, reprfunc before, reprfunc now) {
  PyObject *py_wrapper = type->tp_dict ? PyDict_GetItemString(type->tp_dict, name) : NULL;
  if (py_wrapper && Py_TYPE(py_wrapper) == &PyWrapperDescr_Type) {
    void **wrapped = &((PyWrapperDescrObject *)py_wrapper)->d_wrapped;
    if (*wrapped == (void *)(uintptr_t)before) {
      *wrapped = (void *)(uintptr_t)now;
    }
  }
  if (*slot == before) {
    *slot = now;
  }
  PyObject *py_subclasses = PyObject_CallMethod((PyObject *)type, "__subclasses__", NULL);
  if (!py_subclasses) {
    return -1;
  }
  ptrdiff_t offset = (char *)slot - (char *)type;
  int result = 0;
  for (Py_ssize_t i = 0; result == 0 && i < PyList_GET_SIZE(py_subclasses); i++) {
    PyTypeObject *subclass = (PyTypeObject *)PyList_GET_ITEM(py_subclasses, i);
    result = slot_replace(subclass, (reprfunc *)(void *)((char *)subclass + offset), name, before, now);
  }
  Py_DECREF(py_subclasses);
  return result;
}

static int class_check(PyTypeObject *device_class) {
  PyObject *py_type = PyDict_GetItemString(device_class->tp_dict, "type");
  PyObject *py_reduce = PyDict_GetItemString(device_class->tp_dict, "__reduce__");
  if (!device_class->tp_repr || !device_class->tp_str || !py_type || Py_TYPE(py_type) != &PyGetSetDescr_Type ||
      !py_reduce || Py_TYPE(py_reduce) != &PyMethodDescr_Type ||
      (((PyMethodDescrObject *)py_reduce)->d_method->ml_flags & ~METH_COEXIST) != METH_NOARGS) {
    PyErr_SetString(PyExc_NotImplementedError,
                    "torch.device has no type getter, __repr__, __str__ or __reduce__() of the expected kinds: devices "
                    "keep printing their real name (set DITORCH_SHOW_DEVICE_AS_CUDA=0 to accept that)");
    return -1;
  }
  return 0;
}

static int class_prepare(PyTypeObject *device_class) {
  if (class_check(device_class) < 0) {
    return -1;
  }
  Py_XSETREF(state.py_class, (PyTypeObject *)Py_NewRef(device_class));
  Py_XSETREF(state.py_type, (PyGetSetDescrObject *)Py_NewRef(PyDict_GetItemString(device_class->tp_dict, "type")));
  Py_XSETREF(state.py_reduce,
             (PyMethodDescrObject *)Py_NewRef(PyDict_GetItemString(device_class->tp_dict, "__reduce__")));
  state.type_before = state.py_type->d_getset;
  state.type_now = *state.type_before;
  state.type_now.get = device_get_type;
  state.reduce_before = state.py_reduce->d_method;
  state.reduce_now = *state.reduce_before;
  state.reduce_now.ml_meth = device_reduce;
  state.repr_before = device_class->tp_repr;
  state.str_before = device_class->tp_str;
  return 0;
}

static int texts_prepare(const char *real_name) {
  Py_XSETREF(state.py_cuda, PyUnicode_InternFromString("cuda"));
  Py_XSETREF(state.py_name, PyUnicode_InternFromString(real_name));
  Py_XSETREF(state.py_real, PyUnicode_FromFormat("device_type=%s", real_name));
  Py_XSETREF(state.py_shown, PyUnicode_FromString("device_type=cuda"));
  return state.py_cuda && state.py_name && state.py_real && state.py_shown ? 0 : -1;
}

static int printed_replace(bool install) {
  for (int i = 0; i < PRINTED; i++) {
    PyTypeObject *type = state.py_printed[i];
    reprfunc original = state.printed_before[i];
    if (type && slot_replace(type, &type->tp_repr, "__repr__", install ? original : printed_repr,
                             install ? printed_repr : original) < 0) {
      return -1;
    }
  }
  return 0;
}

static int everything_restore(void) {
  if (!state.installed) {
    return 0;
  }
  state.installed = false;
  state.py_type->d_getset = state.type_before;
  state.py_reduce->d_method = state.reduce_before;
  int result = slot_replace(state.py_class, &state.py_class->tp_repr, "__repr__", device_repr, state.repr_before);
  result |= slot_replace(state.py_class, &state.py_class->tp_str, "__str__", device_str, state.str_before);
  return result | printed_replace(false);
}

static int everything_install(void) {
  state.installed = true;
  state.py_type->d_getset = &state.type_now;
  state.py_reduce->d_method = &state.reduce_now;
  int result = slot_replace(state.py_class, &state.py_class->tp_repr, "__repr__", state.repr_before, device_repr);
  result |= slot_replace(state.py_class, &state.py_class->tp_str, "__str__", state.str_before, device_str);
  return result | printed_replace(true);
}

PyDoc_STRVAR(
    device_show_install_doc,
    "device_show_install(device_class: type, device_type: int, real_name: str, stream_class: type | None, event_class: "
    "type | None, truth: bool = False, /) -> None\n\nMake torch.device objects of the device type of this number say "
    "'cuda' (type, str, repr, pickle), and the repr of streams and events too (None where this torch has no such "
    "class). truth: they say so already; exempt packages alone get the real name. Installed already: does nothing.");
static PyObject *py_device_show_install(PyObject *module, PyObject *args) {
  (void)module;
  PyObject *device_class = NULL, *printed[PRINTED] = {NULL};
  int target = 0, truth = 0;
  const char *real_name = NULL;
  if (!PyArg_ParseTuple(args, "O!isOO|p:device_show_install", &PyType_Type, &device_class, &target, &real_name,
                        &printed[0], &printed[1], &truth)) {
    return NULL;
  }
  if (state.installed) {
    Py_RETURN_NONE;
  }
  if (dit_device_object_check((PyTypeObject *)device_class, DIT_C10_CUDA, target) < 0 || texts_prepare(real_name) < 0 ||
      class_prepare((PyTypeObject *)device_class) < 0) {
    return NULL;
  }
  state.target = (int8_t)target;
  state.truth = truth;
  for (int i = 0; i < PRINTED; i++) {
    Py_XSETREF(state.py_printed[i], PyType_Check(printed[i]) ? (PyTypeObject *)Py_NewRef(printed[i]) : NULL);
    state.printed_before[i] = state.py_printed[i] ? state.py_printed[i]->tp_repr : NULL;
  }
  if (everything_install() < 0) {
    PyObject *kind, *value, *traceback;
    PyErr_Fetch(&kind, &value, &traceback);
    (void)everything_restore();
    PyErr_Restore(kind, value, traceback);
    return NULL;
  }
  Py_RETURN_NONE;
}

PyDoc_STRVAR(
    device_show_restore_doc,
    "device_show_restore() -> None\n\nLet devices say their real name again. Does nothing when not installed.");
static PyObject *py_device_show_restore(PyObject *module, PyObject *unused) {
  (void)module;
  (void)unused;
  if (everything_restore() < 0) {
    return NULL;
  }
  Py_RETURN_NONE;
}

PyMethodDef py_device_show_methods[] = {
    {"device_show_install", py_device_show_install, METH_VARARGS, device_show_install_doc},
    {"device_show_restore", py_device_show_restore, METH_NOARGS, device_show_restore_doc},
    {NULL, NULL, 0, NULL},
};

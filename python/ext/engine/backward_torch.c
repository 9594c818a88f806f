// Autograd nodes and graph tasks, reached through the C functions behind their Python attributes.
//
// The node types of PyTorch's own operators are static and share a handful of C functions: their table entries are
// cached by type and called directly. The types of custom functions (torch.autograd.Function) come and go: they are
// looked up each time.
#include "engine/backward_torch.h"

#include <string.h>

#include "py_call.h"

#define TYPE_CACHE 256

// A builtin without arguments.
struct quick {
  PyObject *function;  // borrowed from torch_names
  PyCFunction direct;  // NULL: call it as an object
  PyObject *self;
};

static struct {
  bool loaded;
  struct quick sequence_nr, task_id, is_grad_enabled;
  struct backward_node_type types[TYPE_CACHE];
} torch;

// Loading

static struct quick quick_make(PyObject *function) {
  struct quick quick = {.function = function};
  if (PyCFunction_CheckExact(function) && PyCFunction_GET_FLAGS(function) == METH_NOARGS) {
    quick.direct = PyCFunction_GET_FUNCTION(function);
    quick.self = PyCFunction_GET_SELF(function);
  }
  return quick;
}

static PyObject *quick_call(const struct quick *quick) {
  return quick->direct ? quick->direct(quick->self, NULL) : PyObject_CallNoArgs(quick->function);
}

int backward_torch_load(void) {
  if (torch.loaded) {
    return 0;
  }
  if (engine_torch_load() < 0 || torch_names_load(TORCH_AUTOGRAD) < 0) {
    return -1;
  }
  if (!engine_torch.output_nr || !engine_torch.base) {
    PyErr_SetString(
        PyExc_NotImplementedError,
        "torch.Tensor has no C getters for output_nr and _base: this PyTorch is not supported by the tools' "
        "backward side");
    return -1;
  }
  torch.sequence_nr = quick_make(torch_names.py_sequence_nr);
  torch.task_id = quick_make(torch_names.py_task_id);
  torch.is_grad_enabled = quick_make(torch_names.py_grad_is_enabled);
  torch.loaded = true;
  return 0;
}

// Node types

static PyCFunction method_find(PyTypeObject *type, PyObject *name, int flags) {
  PyObject *py_method = PyObject_GetAttr((PyObject *)type, name);
  PyCFunction found = NULL;
  if (py_method && Py_IS_TYPE(py_method, &PyMethodDescr_Type)) {
    const PyMethodDef *definition = ((PyMethodDescrObject *)(void *)py_method)->d_method;
    found = definition->ml_flags == flags ? definition->ml_meth : NULL;
  }
  py_error_drop();
  Py_XDECREF(py_method);  // the type keeps it
  return found;
}

static const PyGetSetDef *getter_find(PyTypeObject *type, PyObject *name) {
  PyObject *py_getter = PyObject_GetAttr((PyObject *)type, name);
  const PyGetSetDef *found = NULL;
  if (py_getter && Py_IS_TYPE(py_getter, &PyGetSetDescr_Type)) {
    found = ((PyGetSetDescrObject *)(void *)py_getter)->d_getset;
  }
  py_error_drop();
  Py_XDECREF(py_getter);
  return found && found->get ? found : NULL;
}

// 0, or -1 (no exception) for a type that is no node as we know them.
static int type_load(PyTypeObject *type, struct backward_node_type *out) {
  const char *dot = strrchr(type->tp_name, '.');
  const char *name = dot ? dot + 1 : type->tp_name;
  *out = (struct backward_node_type){
      .type = type,
      .sequence_nr = method_find(type, torch_names.py_text_sequence_nr, METH_NOARGS),
      .register_hook = method_find(type, torch_names.py_text_register_hook, METH_O),
      .register_prehook = method_find(type, torch_names.py_text_register_prehook, METH_O),
      .next_functions = getter_find(type, torch_names.py_text_next_functions),
  };
  if (!(type->tp_flags & Py_TPFLAGS_HEAPTYPE) && strcmp(name, "AccumulateGrad") == 0) {
    out->variable = getter_find(type, torch_names.py_text_variable);
    out->kind = out->variable ? BACKWARD_NODE_ACCUMULATE : BACKWARD_NODE_PLAIN;
  } else if (!(type->tp_flags & Py_TPFLAGS_HEAPTYPE) && strcmp(name, "CopySlices") == 0) {
    out->kind = BACKWARD_NODE_COPY_SLICES;
  } else if (!(type->tp_flags & Py_TPFLAGS_HEAPTYPE) && strcmp(name, "ToCopyBackward0") == 0) {
    out->kind = BACKWARD_NODE_CAST;
  }
  if (out->sequence_nr && out->register_hook && out->register_prehook && out->next_functions) {
    return 0;
  }
  out->type = NULL;
  return -1;
}

const struct backward_node_type *backward_node_get_type(PyObject *node, struct backward_node_type *storage) {
  PyTypeObject *type = Py_TYPE(node);
  if (type->tp_flags & Py_TPFLAGS_HEAPTYPE) {
    return type_load(type, storage) < 0 ? NULL : storage;
  }
  struct backward_node_type *cached = &torch.types[((uintptr_t)type >> 4) % TYPE_CACHE];
  if (cached->type != type && type_load(type, cached) < 0) {
    return NULL;
  }
  // Another type may take the entry over while the caller still uses it.
  *storage = *cached;
  return storage;
}

uint64_t backward_node_get_sequence(PyObject *node, const struct backward_node_type *type) {
  if (type->kind == BACKWARD_NODE_ACCUMULATE) {
    return UINT64_MAX;
  }
  PyObject *py_number = type->sequence_nr(node, NULL);
  uint64_t number = py_number ? PyLong_AsUnsignedLongLong(py_number) : UINT64_MAX;
  Py_XDECREF(py_number);
  return number;
}

// Thread state

int backward_sequence_get(uint64_t *sequence) {
  PyObject *py_number = quick_call(&torch.sequence_nr);
  if (!py_number) {
    return -1;
  }
  *sequence = PyLong_AsUnsignedLongLong(py_number);
  Py_DECREF(py_number);
  return *sequence == UINT64_MAX && PyErr_Occurred() ? -1 : 0;
}

int backward_grad_is_enabled(void) {
  PyObject *py_enabled = quick_call(&torch.is_grad_enabled);
  int enabled = py_enabled ? py_enabled == Py_True : -1;
  Py_XDECREF(py_enabled);
  return enabled;
}

bool backward_autocast_is_enabled(void) {
  if (torch_names_load(TORCH_MODES) < 0) {
    py_error_drop();
    return true;
  }
  return !torch_names.py_autocast_is_any || py_call_is_true(torch_names.py_autocast_is_any, NULL);
}

int64_t backward_task_get_id(void) {
  PyObject *py_id = quick_call(&torch.task_id);
  int64_t id = py_id ? PyLong_AsLongLong(py_id) : -2;
  if (id < 0 && PyErr_Occurred()) {
    id = -2;
  }
  Py_XDECREF(py_id);
  return id;
}

int backward_task_add_callback(PyObject *callable) {
  PyObject *py_done = PyObject_CallOneArg(torch_names.py_queue_callback, callable);
  Py_XDECREF(py_done);
  return py_done ? 0 : -1;
}

bool engine_backward_is_running(void) {
  if (!torch.loaded) {
    return false;
  }
  int64_t id = backward_task_get_id();
  if (id == -2) {
    py_error_drop();
  }
  return id >= 0;
}

PyObject *backward_gradients_add(PyObject *left, PyObject *right) {
  PyObject *py_enabled = quick_call(&torch.is_grad_enabled);
  PyObject *py_off = py_enabled ? PyObject_CallOneArg(torch_names.py_grad_set, Py_False) : NULL;
  PyObject *py_sum = py_off ? PyNumber_Add(left, right) : NULL;
  PyObject *kind, *value, *traceback;
  PyErr_Fetch(&kind, &value, &traceback);
  PyObject *py_on = py_off ? PyObject_CallOneArg(torch_names.py_grad_set, py_enabled) : NULL;
  if (py_off && !py_on) {
    Py_CLEAR(py_sum);
    Py_XDECREF(kind);
    Py_XDECREF(value);
    Py_XDECREF(traceback);
  } else {
    PyErr_Restore(kind, value, traceback);
  }
  Py_XDECREF(py_enabled);
  Py_XDECREF(py_off);
  Py_XDECREF(py_on);
  return py_sum;
}

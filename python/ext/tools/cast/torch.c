// What the dtype-cast tool knows of PyTorch, looked up once, and the few calls that all its files make.
#include "tools/cast/torch.h"

#include "dit/dtype.h"

struct cast_torch cast_torch;

// ---- torch's functions

static PyObject *attribute_get(PyObject *module, const char *name) {
  PyObject *py_value = module ? PyObject_GetAttrString(module, name) : NULL;
  py_error_drop();
  return py_value;
}

// The type of the autograd node of a cast, from one. A torch that names it otherwise leaves NULL.
static void cast_node_find(PyObject *py_torch) {
  PyObject *py_kwargs = Py_BuildValue("{s:O}", "requires_grad", Py_True);
  PyObject *py_ones = attribute_get(py_torch, "ones");
  PyObject *py_args = Py_BuildValue("(i)", 1);
  PyObject *py_tensor = py_ones && py_args && py_kwargs ? PyObject_Call(py_ones, py_args, py_kwargs) : NULL;
  PyObject *py_cast = py_tensor ? PyObject_CallOneArg(cast_torch.py_double, py_tensor) : NULL;
  PyObject *py_node = py_cast ? engine_tensor_get(py_cast, engine_torch.grad_fn) : NULL;
  cast_torch.cast_node = py_node && py_node != Py_None ? (PyTypeObject *)Py_NewRef((PyObject *)Py_TYPE(py_node)) : NULL;
  py_error_drop();
  Py_XDECREF(py_node);
  Py_XDECREF(py_cast);
  Py_XDECREF(py_tensor);
  Py_XDECREF(py_args);
  Py_XDECREF(py_ones);
  Py_XDECREF(py_kwargs);
}

int cast_torch_load(void) {
  if (cast_torch.py_to) {
    return 0;
  }
  PyObject *py_torch = PyImport_ImportModule("torch");
  PyObject *py_c = attribute_get(py_torch, "_C");
  PyObject *py_base = attribute_get(py_c, "TensorBase");
  const struct {
    PyObject **slot, *owner;
    const char *name;
  } wanted[] = {
      {&cast_torch.py_copy, py_base, "copy_"},
      {&cast_torch.py_resize, py_base, "resize_"},
      {&cast_torch.py_as_strided, py_base, "as_strided_"},
      {&cast_torch.py_narrow, py_base, "narrow"},
      {&cast_torch.py_expand, py_base, "expand"},
      {&cast_torch.py_conj, py_base, "conj"},
      {&cast_torch.py_neg_view, py_torch, "_neg_view"},
      {&cast_torch.py_float, py_base, "float"},
      {&cast_torch.py_double, py_base, "double"},
      {&cast_torch.py_half, py_base, "half"},
      {&cast_torch.py_bfloat16, py_base, "bfloat16"},
      {&cast_torch.py_empty_strided, py_torch, "empty_strided"},
      {&cast_torch.py_get_grad, py_torch, "is_grad_enabled"},
      {&cast_torch.py_set_grad, py_c, "_set_grad_enabled"},
      {&cast_torch.py_inference, py_c, "_InferenceMode"},
  };
  bool found = py_torch && py_c && py_base;
  for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
    Py_XSETREF(*wanted[i].slot, attribute_get(wanted[i].owner, wanted[i].name));
    found = found && *wanted[i].slot;
  }
  Py_XSETREF(cast_torch.py_autocast, attribute_get(py_c, "_is_any_autocast_enabled"));
  if (found && !cast_torch.cast_node) {
    int token = engine_guard_raise();
    cast_node_find(py_torch);
    engine_guard_lower(token);
  }
  cast_torch.py_to = found ? attribute_get(py_base, "to") : NULL;
  Py_XDECREF(py_base);
  Py_XDECREF(py_c);
  Py_XDECREF(py_torch);
  if (!cast_torch.py_to && !PyErr_Occurred()) {
    PyErr_SetString(PyExc_NotImplementedError, "this PyTorch lacks a function that OpDtypeCast needs");
  }
  return cast_torch.py_to ? 0 : -1;
}

PyObject *cast_convert_find(int dtype) {
  switch (dtype) {
    case DIT_DTYPE_F32:
      return cast_torch.py_float;
    case DIT_DTYPE_F64:
      return cast_torch.py_double;
    case DIT_DTYPE_F16:
      return cast_torch.py_half;
    case DIT_DTYPE_BF16:
      return cast_torch.py_bfloat16;
    default:
      return NULL;
  }
}

bool cast_autocast_is_on(void) {
  PyObject *py_on = cast_torch.py_autocast ? PyObject_CallNoArgs(cast_torch.py_autocast) : NULL;
  bool on = py_on == Py_True;
  Py_XDECREF(py_on);
  py_error_drop();
  return on;
}

// ---- grad mode

// Switch it; the state before for cast_grad_restore, or NULL with an exception.
PyObject *cast_grad_switch(PyObject *wanted) {
  PyObject *py_before = PyObject_CallNoArgs(cast_torch.py_get_grad);
  if (py_before && py_before != wanted) {
    PyObject *py_done = PyObject_CallOneArg(cast_torch.py_set_grad, wanted);
    if (!py_done) {
      Py_CLEAR(py_before);
    }
    Py_XDECREF(py_done);
  }
  return py_before;
}

// Takes the reference. Keeps a pending exception.
void cast_grad_restore(PyObject *py_before) {
  PyObject *kind, *value, *traceback;
  PyErr_Fetch(&kind, &value, &traceback);
  Py_XDECREF(PyObject_CallOneArg(cast_torch.py_set_grad, py_before));
  Py_DECREF(py_before);
  PyErr_Restore(kind, value, traceback);
}

// ---- tensors

PyObject *cast_tensor_convert(PyObject *tensor, PyObject *convert, PyObject *dtype) {
  if (convert) {
    return PyObject_CallOneArg(convert, tensor);
  }
  return PyObject_CallFunctionObjArgs(cast_torch.py_to, tensor, dtype, NULL);
}

// What the dtype-cast tool knows of PyTorch, looked up once, and the few calls that all its files make.
#include "tools/cast/torch.h"

#include "py_call.h"

static PyTypeObject *cast_node;  // kept for ever

// The type of the autograd node of a cast, from one. A torch that names it otherwise leaves NULL.
static void cast_node_find(void) {
  PyObject *py_args = Py_BuildValue("(i)", 1);
  PyObject *py_kwargs = Py_BuildValue("{s:O}", "requires_grad", Py_True);
  PyObject *py_tensor = py_args && py_kwargs ? PyObject_Call(torch_names.py_ones, py_args, py_kwargs) : NULL;
  PyObject *py_cast = py_tensor ? PyObject_CallOneArg(torch_names.py_to_double, py_tensor) : NULL;
  PyObject *py_node = py_cast ? engine_tensor_get(py_cast, engine_torch.grad_fn) : NULL;
  cast_node = py_node && py_node != Py_None ? (PyTypeObject *)Py_NewRef((PyObject *)Py_TYPE(py_node)) : NULL;
  py_error_drop();
  Py_XDECREF(py_node);
  Py_XDECREF(py_cast);
  Py_XDECREF(py_tensor);
  Py_XDECREF(py_kwargs);
  Py_XDECREF(py_args);
}

int cast_torch_load(void) {
  if (engine_torch_load() < 0) {
    return -1;
  }
  if (!cast_node) {
    int token = engine_guard_raise();
    cast_node_find();
    engine_guard_lower(token);
  }
  return 0;
}

bool cast_node_is(PyObject *node) {
  return Py_TYPE(node) == cast_node;
}

PyObject *cast_convert_find(int dtype) {
  switch (dtype) {
    case DIT_DTYPE_F32:
      return torch_names.py_to_float;
    case DIT_DTYPE_F64:
      return torch_names.py_to_double;
    case DIT_DTYPE_F16:
      return torch_names.py_to_half;
    case DIT_DTYPE_BF16:
      return torch_names.py_to_bfloat16;
    default:
      return NULL;
  }
}

bool cast_autocast_is_on(void) {
  return py_call_is_true(torch_names.py_autocast_is_any, NULL);
}

// Tensors

PyObject *cast_tensor_convert(PyObject *tensor, PyObject *convert, PyObject *dtype) {
  if (convert) {
    return PyObject_CallOneArg(convert, tensor);
  }
  return PyObject_CallFunctionObjArgs(torch_names.py_to, tensor, dtype, NULL);
}

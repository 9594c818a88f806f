// See torch_tensor.h.
#include "torch_tensor.h"

#include <string.h>

#include "engine/internal.h"
#include "py_call.h"

PyObject *torch_empty_make(PyObject *dtype, PyObject *device) {
  PyObject *py_zero = PyLong_FromLong(0), *py_empty = NULL;
  if (py_zero) {
    PyObject *arguments[] = {py_zero, dtype, device};
    py_empty = PyObject_Vectorcall(torch_names.py_empty, arguments, 1, torch_names.py_dtype_device);
  }
  Py_XDECREF(py_zero);
  return py_empty;
}

PyObject *torch_strided_make(const int64_t *sizes, const int64_t *strides, int ndim, PyObject *dtype,
                             PyObject *device) {
  PyObject *py_sizes = py_numbers_pack(sizes, ndim), *py_strides = py_numbers_pack(strides, ndim), *py_made = NULL;
  if (py_sizes && py_strides) {
    PyObject *arguments[] = {py_sizes, py_strides, dtype, device};
    py_made = PyObject_Vectorcall(torch_names.py_empty_strided, arguments, 2, torch_names.py_dtype_device);
  }
  Py_XDECREF(py_strides);
  Py_XDECREF(py_sizes);
  return py_made;
}

// Plain ones

static bool is_set(PyObject *tensor, const PyGetSetDef *getter) {
  PyObject *py_answer = getter ? engine_tensor_get(tensor, getter) : NULL;
  bool yes = py_answer == Py_True;
  Py_XDECREF(py_answer);
  py_error_drop();
  return yes;
}

static int values_check(PyObject *tensor) {
  if (!is_set(tensor, engine_torch.is_meta) && !strstr(Py_TYPE(tensor)->tp_name, "FakeTensor")) {
    return 0;
  }
  PyObject *py_device = engine_tensor_get(tensor, engine_torch.device);
  PyErr_Format(PyExc_TypeError, "a tensor on device '%S' has no values; move it to a real device first",
               py_device ? py_device : Py_None);
  Py_XDECREF(py_device);
  return -1;
}

// The parts of a nested tensor one behind the other; takes the reference.
static PyObject *nested_join(PyObject *py_tensor) {
  PyObject *py_parts = PyObject_CallMethod(py_tensor, "unbind", NULL);
  PyObject *py_list = py_parts ? PySequence_List(py_parts) : NULL;
  for (Py_ssize_t i = 0; py_list && i < PyList_GET_SIZE(py_list); i++) {
    PyObject *py_flat = PyObject_CallFunction(torch_names.py_reshape, "Oi", PyList_GET_ITEM(py_list, i), -1);
    if (!py_flat || PyList_SetItem(py_list, i, py_flat) < 0) {
      Py_CLEAR(py_list);
    }
  }
  Py_XDECREF(py_parts);
  Py_DECREF(py_tensor);
  return py_call_take(torch_names.py_cat, py_list);
}

// With autograd and torch functions off.
static PyObject *plain_make(PyObject *tensor, bool on_cpu) {
  PyObject *py_plain = PyObject_CallOneArg(torch_names.py_detach, tensor);
  if (py_plain && values_check(py_plain) < 0) {
    Py_CLEAR(py_plain);
  }
  if (py_plain && is_set(py_plain, engine_torch.is_nested)) {
    py_plain = nested_join(py_plain);
  }
  PyObject *py_layout = py_plain ? engine_tensor_get(py_plain, engine_torch.layout) : NULL;
  if (py_plain && py_layout != torch_names.py_strided) {
    py_plain = py_call_take(torch_names.py_to_dense, py_plain);
  }
  Py_XDECREF(py_layout);
  py_plain = py_call_take(torch_names.py_resolve_neg, py_call_take(torch_names.py_resolve_conj, py_plain));
  return on_cpu ? py_call_take(torch_names.py_cpu, py_plain) : py_plain;
}

PyObject *torch_plain_make(PyObject *tensor, bool on_cpu) {
  int token = engine_guard_raise();
  PyObject *py_disabled = engine_dispatch_disable();  // the guard alone leaves subclasses their functions
  PyObject *py_grad = torch_grad_switch(Py_False);
  PyObject *py_plain = py_grad ? plain_make(tensor, on_cpu) : NULL;
  torch_grad_restore(py_grad);
  engine_dispatch_enable(py_disabled);
  engine_guard_lower(token);
  return py_plain;
}

// Grad mode

PyObject *torch_grad_switch(PyObject *wanted) {
  PyObject *py_before = PyObject_CallNoArgs(torch_names.py_grad_is_enabled);
  if (py_before && py_before != wanted && py_call_none(torch_names.py_grad_set, wanted) < 0) {
    Py_CLEAR(py_before);
  }
  return py_before;
}

void torch_grad_restore(PyObject *py_before) {
  PyObject *kind, *value, *traceback;
  PyErr_Fetch(&kind, &value, &traceback);
  if (py_before && py_call_none(torch_names.py_grad_set, py_before) < 0) {
    py_error_drop();
  }
  Py_XDECREF(py_before);
  PyErr_Restore(kind, value, traceback);
}

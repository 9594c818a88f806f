// Tensor.is_cuda and UntypedStorage.is_cuda that are also true on the alias's device type.
//
// torch.device objects are read at a fixed offset; the offset is verified against devices whose type and index are
// known, and the new getter against known tensors, before it is left in place. PyTorch's own getter is asked first, so
// overrides (subclasses, modes) see the same questions as before. Depends on: CPython's descriptors, Python-level
// torch.
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "alias_hooks.h"
#include "exempt.h"
#include "torch_names.h"

static struct {
  PyGetSetDescrObject *py_is_cuda;  // owned while installed
  PyGetSetDef *before;
  PyGetSetDef now;
  getter device_get;
  void *device_closure;
  PyObject *py_storage_before;  // is_cuda of torch.UntypedStorage itself; NULL when it inherited one
  int8_t target;
} state;

// How often this thread entered the tensor getter: tells a call that PyTorch answered itself from one it sent through
// __torch_function__.
static _Thread_local unsigned long entries;

// The type of a torch.device, or -1 for any other object.
static int device_type_get(PyObject *device) {
  return torch_is(device, torch_names.py_device_type) ? ((const int8_t *)device)[sizeof(PyObject)] : -1;
}

static bool is_cuda_type(int type, int target) {
  return type == DIT_C10_CUDA || (type == target && !dit_exempt_is(DIT_EXEMPT_NAMES, "Tensor.is_cuda"));
}

// Asks PyTorch's getter; when that says False without having called back, looks at the device.
static PyObject *tensor_evaluate(PyObject *self, int target) {
  unsigned long entry = ++entries;
  PyObject *py_answer = state.before->get(self, state.before->closure);
  if (py_answer != Py_False || entries != entry) {
    return py_answer;
  }
  Py_DECREF(py_answer);
  PyObject *py_device = state.device_get(self, state.device_closure);
  if (!py_device) {
    return NULL;
  }
  int type = device_type_get(py_device);
  Py_DECREF(py_device);
  return PyBool_FromLong(is_cuda_type(type, target));
}

static PyObject *tensor_get_is_cuda(PyObject *self, void *closure) {
  (void)closure;
  return tensor_evaluate(self, state.target);
}

static PyObject *storage_get_is_cuda(PyObject *self, void *closure) {
  (void)closure;
  PyObject *py_device = PyObject_GetAttrString(self, "device");
  if (!py_device) {
    return NULL;
  }
  int type = state.py_is_cuda ? device_type_get(py_device) : -1;
  Py_DECREF(py_device);
  return PyBool_FromLong(is_cuda_type(type, state.target));
}

static PyGetSetDef storage_definition = {"is_cuda", storage_get_is_cuda, NULL, NULL, NULL};

// Verification

static int check_device(const char *text, int type, int other_type, int index) {
  PyObject *py_device = PyObject_CallFunction(torch_names.py_device_type, "s", text);
  if (!py_device) {
    return -1;
  }
  int found_type = -1, found_index = -1;
  if (torch_is(py_device, torch_names.py_device_type)) {
    found_type = ((const int8_t *)py_device)[sizeof(PyObject)];
    found_index = ((const int8_t *)py_device)[sizeof(PyObject) + 1];
  }
  Py_DECREF(py_device);
  if ((found_type != type && found_type != other_type) || found_index != index) {
    PyErr_Format(
        PyExc_NotImplementedError,
        "a torch.device('%s') object holds type %d index %d where type %d index %d was expected: is_cuda is not "
        "patched",
        text, found_type, found_index, type, index);
    return -1;
  }
  return 0;
}

static int check_layout(void) {
  Py_ssize_t size = ((PyTypeObject *)torch_names.py_device_type)->tp_basicsize;
  if (size < (Py_ssize_t)sizeof(PyObject) + 2) {
    PyErr_Format(PyExc_NotImplementedError, "torch.device objects have %zd bytes, at least %zu were expected", size,
                 sizeof(PyObject) + 2);
    return -1;
  }
  if (check_device("cpu", DIT_C10_CPU, DIT_C10_CPU, -1) < 0 ||
      check_device("cuda:3", DIT_C10_CUDA, state.target, 3) < 0 ||
      check_device("meta", DIT_C10_META, DIT_C10_META, -1) < 0) {
    return -1;
  }
  return 0;
}

static int check_tensor(const char *device, int target, PyObject *expected) {
  int result = -1;
  PyObject *py_args = Py_BuildValue("(i)", 0);
  PyObject *py_kwargs = py_args ? Py_BuildValue("{s:s}", "device", device) : NULL;
  PyObject *py_tensor = py_kwargs ? PyObject_Call(torch_names.py_empty, py_args, py_kwargs) : NULL;
  PyObject *py_answer = py_tensor ? tensor_evaluate(py_tensor, target) : NULL;
  if (py_answer && py_answer != expected) {
    PyErr_Format(
        PyExc_NotImplementedError,
        "the is_cuda getter says %R for a tensor on '%s' with target type %d, expected %R: is_cuda is not patched",
        py_answer, device, target, expected);
  } else if (py_answer) {
    result = 0;
  }
  Py_XDECREF(py_answer);
  Py_XDECREF(py_tensor);
  Py_XDECREF(py_kwargs);
  Py_XDECREF(py_args);
  return result;
}

// A meta tensor needs no device: with meta as the target it must be "cuda", with the real one it must not.
static int check_answers(void) {
  if (check_tensor("cpu", state.target, Py_False) < 0 || check_tensor("meta", state.target, Py_False) < 0 ||
      check_tensor("meta", DIT_C10_META, Py_True) < 0 || check_tensor("cpu", DIT_C10_META, Py_False) < 0) {
    return -1;
  }
  return 0;
}

// Install and restore

static PyGetSetDescrObject *descriptor_get(PyObject *tensor_base, const char *name) {
  PyObject *py_descriptor = PyObject_GetAttrString(tensor_base, name);
  if (py_descriptor &&
      (Py_TYPE(py_descriptor) != &PyGetSetDescr_Type || !((PyGetSetDescrObject *)py_descriptor)->d_getset->get)) {
    PyErr_Format(PyExc_NotImplementedError,
                 "%R.%s is a %.100s, a getset_descriptor was expected: is_cuda is not patched", tensor_base, name,
                 Py_TYPE(py_descriptor)->tp_name);
    Py_CLEAR(py_descriptor);
  }
  return (PyGetSetDescrObject *)py_descriptor;
}

static void state_clear(void) {
  Py_CLEAR(state.py_is_cuda);
  Py_CLEAR(state.py_storage_before);
}

static int storage_install(void) {
  PyObject *py_attributes = PyObject_GetAttrString(torch_names.py_untyped_storage_type, "__dict__");
  if (!py_attributes) {
    return -1;
  }
  state.py_storage_before = PyMapping_GetItemString(py_attributes, "is_cuda");
  Py_DECREF(py_attributes);
  if (!state.py_storage_before) {
    if (!PyErr_ExceptionMatches(PyExc_KeyError)) {
      return -1;
    }
    PyErr_Clear();
  }
  PyObject *py_descriptor = PyDescr_NewGetSet((PyTypeObject *)torch_names.py_untyped_storage_type, &storage_definition);
  int result =
      py_descriptor ? PyObject_SetAttrString(torch_names.py_untyped_storage_type, "is_cuda", py_descriptor) : -1;
  Py_XDECREF(py_descriptor);
  return result;
}

// Fill the state and verify it; nothing of PyTorch is changed yet.
static int state_prepare(PyObject *tensor_base, int target) {
  state.target = (int8_t)target;
  PyGetSetDescrObject *py_device = descriptor_get(tensor_base, "device");
  if (!py_device) {
    return -1;
  }
  state.device_get = py_device->d_getset->get;
  state.device_closure = py_device->d_getset->closure;
  Py_DECREF(py_device);
  state.py_is_cuda = descriptor_get(tensor_base, "is_cuda");
  if (!state.py_is_cuda) {
    return -1;
  }
  state.before = state.py_is_cuda->d_getset;
  return check_layout() < 0 || check_answers() < 0 ? -1 : 0;
}

PyDoc_STRVAR(is_cuda_install_doc,
             "is_cuda_install(tensor_base: type, device_type: int, /) -> None\n\nMake is_cuda of tensors "
             "(torch._C.TensorBase) and of untyped storages true on CUDA and on the device type of this number.");
static PyObject *py_is_cuda_install(PyObject *module, PyObject *args) {
  (void)module;
  PyObject *tensor_base = NULL;
  int target = 0;
  if (!PyArg_ParseTuple(args, "O!i:is_cuda_install", &PyType_Type, &tensor_base, &target)) {
    return NULL;
  }
  if (target <= DIT_C10_CUDA || target == DIT_C10_META || target > DIT_C10_PRIVATEUSE1) {
    return PyErr_Format(PyExc_ValueError, "device type %d cannot stand behind 'cuda'; valid: 2 to 20 except 14 (meta)",
                        target);
  }
  if (state.py_is_cuda) {
    if (state.target != target) {
      return PyErr_Format(PyExc_ValueError,
                          "is_cuda already answers for device type %d, not %d; call is_cuda_restore() first",
                          state.target, target);
    }
    Py_RETURN_NONE;
  }
  if (torch_names_load(TORCH_BASE) < 0 || state_prepare(tensor_base, target) < 0 || storage_install() < 0) {
    state_clear();
    return NULL;
  }
  state.now = *state.before;
  state.now.get = tensor_get_is_cuda;
  state.py_is_cuda->d_getset = &state.now;
  Py_RETURN_NONE;
}

PyDoc_STRVAR(is_cuda_restore_doc,
             "is_cuda_restore() -> None\n\nGive is_cuda its original getters back. Does nothing when not installed.");
static PyObject *py_is_cuda_restore(PyObject *module, PyObject *unused) {
  (void)module;
  (void)unused;
  if (!state.py_is_cuda) {
    Py_RETURN_NONE;
  }
  state.py_is_cuda->d_getset = state.before;
  // A NULL value deletes the attribute: the inherited one shows again.
  int result = PyObject_SetAttrString(torch_names.py_untyped_storage_type, "is_cuda", state.py_storage_before);
  state_clear();
  if (result < 0) {
    return NULL;
  }
  Py_RETURN_NONE;
}

PyMethodDef py_is_cuda_methods[] = {
    {"is_cuda_install", py_is_cuda_install, METH_VARARGS, is_cuda_install_doc},
    {"is_cuda_restore", py_is_cuda_restore, METH_NOARGS, is_cuda_restore_doc},
    {NULL, NULL, 0, NULL},
};

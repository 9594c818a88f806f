// What the engine knows of PyTorch, looked up once: types, getters called without a lookup, DLPack's C exchange API;
// and the guard that keeps the tools' own torch calls out of sight.
//
// Nothing here links libtorch. Getters are reached through the descriptors of torch._C.TensorBase, whose C functions
// are called directly: no attribute lookup, no torch-function dispatch (the guard sees to that).
#include "engine/exchange.h"
#include "engine/internal.h"
#include "engine/tensor_layout.h"
#include "py_call.h"

struct engine_torch engine_torch;

// PyDescr_Type objects of C getters have this layout in every CPython 3.x (PyGetSetDescrObject, descrobject.h).
static PyGetSetDef *getter_find(PyObject *type, const char *name) {
  PyObject *py_descriptor = PyObject_GetAttrString(type, name);
  PyGetSetDef *found = NULL;
  if (py_descriptor && Py_IS_TYPE(py_descriptor, &PyGetSetDescr_Type)) {
    found = ((PyGetSetDescrObject *)(void *)py_descriptor)->d_getset;
  }
  py_error_drop();
  Py_XDECREF(py_descriptor);  // the type keeps it
  return found && found->get ? found : NULL;
}

static void getters_find(PyObject *type) {
  const struct {
    PyGetSetDef **slot;
    const char *name;
  } wanted[] = {
      {&engine_torch.requires_grad, "requires_grad"},
      {&engine_torch.version, "_version"},
      {&engine_torch.grad_fn, "grad_fn"},
      {&engine_torch.layout, "layout"},
      {&engine_torch.is_meta, "is_meta"},
      {&engine_torch.is_quantized, "is_quantized"},
      {&engine_torch.is_nested, "is_nested"},
      {&engine_torch.base, "_base"},
      {&engine_torch.output_nr, "output_nr"},
      {&engine_torch.shape, "shape"},
      {&engine_torch.dtype, "dtype"},
      {&engine_torch.device, "device"},
  };
  for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
    *wanted[i].slot = getter_find(type, wanted[i].name);
  }
}

static const struct engine_exchange *exchange_find(PyObject *tensor_type) {
  PyObject *py_capsule = PyObject_GetAttrString(tensor_type, "__dlpack_c_exchange_api__");
  const struct engine_exchange *exchange = NULL;
  if (py_capsule && PyCapsule_IsValid(py_capsule, "dlpack_exchange_api")) {
    exchange = PyCapsule_GetPointer(py_capsule, "dlpack_exchange_api");
  }
  py_error_drop();
  Py_XDECREF(py_capsule);  // static memory of torch
  bool usable = exchange && exchange->major == 1 && exchange->tensor_from_object;
  return usable ? exchange : NULL;
}

int engine_torch_load(void) {
  struct engine_torch *t = &engine_torch;
  if (t->loaded) {
    return 0;
  }
  if (torch_names_load(TORCH_ENGINE | TORCH_TENSOR | TORCH_MODES | TORCH_PYTHON) < 0) {
    return -1;
  }
  getters_find(torch_names.py_tensor_type);
  t->exchange = exchange_find(torch_names.py_tensor_type);
  if (!(t->requires_grad && t->layout && t->is_meta && t->grad_fn && t->version && t->shape)) {
    PyErr_SetString(PyExc_NotImplementedError,
                    "torch.Tensor has no C getters for requires_grad, layout, is_meta, grad_fn, "
                    "_version or shape: this PyTorch is not supported by the tools");
    return -1;
  }
  t->loaded = true;
  engine_layout_load();
  return 0;
}

// Guard

#define GUARD_DEPTH 8

static _Thread_local struct {
  int depth;
  bool looked;                         // the guard is up, or was when it was paused, and found no modes
  PyObject *py_disabled[GUARD_DEPTH];  // owned; an entered DisableTorchFunction per level, or NULL
  PyObject *py_modes;                  // owned; dispatch modes that the outermost level took off, or NULL
} guard;

bool engine_guard_is_up(void) {
  return guard.depth > 0;
}

bool engine_guard_has_functorch(void) {
  return py_call_is_true(torch_names.py_functorch, NULL);
}

static bool modes_are_left(PyObject *length_get) {
  long length = length_get ? py_call_long(length_get) : 0;
  py_error_drop();
  return length != 0;
}

// Dispatch modes of the program (a FLOP counter, a recorder, FakeTensorMode) do not see the tools' own operators: they
// are off the stack while the guard is up.
static void modes_take(void) {
  guard.py_modes = modes_are_left(torch_names.py_dispatch_length) ? engine_dispatch_modes_take() : NULL;
}

bool engine_guard_has_tracer(void) {
  for (Py_ssize_t i = 0; guard.py_modes && i < PyList_GET_SIZE(guard.py_modes); i++) {
    PyObject *py_key = PyObject_GetAttrString(PyList_GET_ITEM(guard.py_modes, i), "_mode_key");  // of torch's own modes
    bool own = py_key && py_key != Py_None;
    Py_XDECREF(py_key);
    py_error_drop();
    if (own) {
      return true;
    }
  }
  return false;
}

static void modes_return(void) {
  PyObject *py_modes = guard.py_modes;
  guard.py_modes = NULL;
  engine_dispatch_modes_return(py_modes);
}

// __enter__ and __exit__ of DisableTorchFunction, called without a lookup: every hook of a backward pass needs them.
static PyObject *disable_call(PyObject *context, const char *name, PyCFunction *known) {
  static PyObject *py_nothing;
  if (!py_nothing && !(py_nothing = Py_BuildValue("(OOO)", Py_None, Py_None, Py_None))) {
    return NULL;
  }
  bool exit = name[2] == 'e' && name[3] == 'x';
  if (*known) {
    return (*known)(context, exit ? py_nothing : NULL);
  }
  PyObject *py_method = PyObject_GetAttrString(torch_names.py_disable, name);
  if (py_method && Py_IS_TYPE(py_method, &PyMethodDescr_Type)) {
    const PyMethodDef *method = ((PyMethodDescrObject *)(void *)py_method)->d_method;
    bool plain = method->ml_flags == METH_VARARGS || (method->ml_flags == METH_NOARGS && !exit);
    *known = plain ? method->ml_meth : NULL;
  }
  Py_XDECREF(py_method);
  py_error_drop();
  return exit ? PyObject_CallMethod(context, name, "OOO", Py_None, Py_None, Py_None)
              : PyObject_CallMethod(context, name, NULL);
}

PyObject *engine_dispatch_disable(void) {
  static PyCFunction enter;
  PyObject *py_context = PyObject_CallNoArgs(torch_names.py_disable);
  PyObject *py_entered = py_context ? disable_call(py_context, "__enter__", &enter) : NULL;
  if (!py_entered) {
    py_error_drop();
    Py_CLEAR(py_context);
  }
  Py_XDECREF(py_entered);
  return py_context;
}

// Between pause and resume the operator itself runs. What the guard found out when it went up still holds, except that
// an operator may have been a mode's own enter or exit: with modes around, everything is looked at again.
void engine_guard_pause(int token) {
  guard.depth = token;
  if (token == 0 && guard.py_modes) {
    modes_return();
    guard.looked = false;
  }
  if (token < GUARD_DEPTH && guard.py_disabled[token]) {
    PyObject *py_disabled = guard.py_disabled[token];
    guard.py_disabled[token] = NULL;
    engine_dispatch_enable(py_disabled);
    guard.looked = false;
  }
}

int engine_guard_resume(int token) {
  if (!guard.looked || guard.depth != token) {
    return engine_guard_raise();
  }
  guard.depth = token + 1;
  return token;
}

int engine_guard_raise(void) {
  int token = guard.depth++;
  if (token >= GUARD_DEPTH) {
    return token;
  }
  guard.py_disabled[token] = NULL;
  if (token == 0) {
    modes_take();
    bool functions = modes_are_left(torch_names.py_stack_length);
    guard.looked = !functions && !guard.py_modes;
    if (functions) {
      guard.py_disabled[token] = engine_dispatch_disable();
    }
  }
  return token;
}

void engine_dispatch_enable(PyObject *py_disabled) {
  if (!py_disabled) {
    return;
  }
  PyObject *kind, *value, *traceback;
  PyErr_Fetch(&kind, &value, &traceback);
  static PyCFunction leave;
  PyObject *py_done = disable_call(py_disabled, "__exit__", &leave);
  Py_XDECREF(py_done);
  py_error_drop();
  Py_DECREF(py_disabled);
  PyErr_Restore(kind, value, traceback);
}

void engine_guard_lower(int token) {
  guard.depth = token;
  if (token == 0 && guard.py_modes) {
    modes_return();
  }
  if (token < GUARD_DEPTH) {
    PyObject *py_disabled = guard.py_disabled[token];
    guard.py_disabled[token] = NULL;
    engine_dispatch_enable(py_disabled);
  }
}

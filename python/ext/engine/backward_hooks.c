// How the tools' hooks get onto a node.
//
// torch registers a hook through a Python function, torch.autograd.Function._register_hook, that makes an OrderedDict
// and a handle: 1.7 us. While a tool is active `hook_register` stands in its place: for our hooks a dictionary and no
// handle, for all others the original.
#include "engine/backward.h"

// A dictionary as torch's handles need it: with weak references.
struct hook_dict {
  PyDictObject dict;
  PyObject *weak_references;
};

static PyTypeObject hook_dict_type;
static PyObject *py_hook_key;
static PyObject *py_register_original;  // while ours is in its place

// The dictionary of hooks

// Dictionaries that lost their hook, with their table: a new one costs four times as much.
#define SPARE_DICTS 1024
static PyObject *spare_dicts[SPARE_DICTS];  // owned
static int spare_count;

// True when the dictionary was saved for the next node instead of freed.
static bool hook_dict_spare(PyObject *self) {
  const struct hook_dict *dict = (const struct hook_dict *)(void *)self;
  if (spare_count == SPARE_DICTS || dict->weak_references || PyDict_GET_SIZE(self) != 1 ||
      PyObject_GC_IsTracked(self)) {
    return false;
  }
  Py_SET_REFCNT(self, 1);
  PyObject *kind, *value, *traceback;
  PyErr_Fetch(&kind, &value, &traceback);
  // Our key alone: another one would now be a second entry.
  bool saved =
      PyDict_SetItem(self, py_hook_key, Py_None) == 0 && PyDict_GET_SIZE(self) == 1 && spare_count < SPARE_DICTS;
  PyErr_Restore(kind, value, traceback);
  if (saved) {
    spare_dicts[spare_count++] = self;
  } else {
    Py_SET_REFCNT(self, 0);
  }
  return saved;
}

static void hook_dict_dealloc(PyObject *self) {
  if (hook_dict_spare(self)) {
    return;
  }
  if (((struct hook_dict *)(void *)self)->weak_references) {
    PyObject_ClearWeakRefs(self);
  }
  PyDict_Type.tp_dealloc(self);
}

static PyTypeObject hook_dict_type = {
    .ob_base = {PyObject_HEAD_INIT(NULL) 0},
    .tp_name = "ditorch._C.BackwardHooks",
    .tp_basicsize = sizeof(struct hook_dict),
    .tp_weaklistoffset = offsetof(struct hook_dict, weak_references),
    .tp_dealloc = hook_dict_dealloc,
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_doc = "The hooks of one node.",
};

static PyObject *hook_dict_create(void) {
  static PyObject *py_none;
  if (spare_count > 0) {
    return spare_dicts[--spare_count];
  }
  if (!py_none && !(py_none = PyTuple_New(0))) {
    return NULL;
  }
  PyObject *py_dict = PyDict_Type.tp_new(&hook_dict_type, py_none, NULL);
  if (py_dict) {
    PyObject_GC_UnTrack(py_dict);  // no cycle through our hooks; the dictionary tracks itself when others come
  }
  return py_dict;
}

// (dictionary or None, hook) -> (dictionary, handle), as torch.autograd.Function._register_hook.
static PyObject *hook_register(PyObject *module, PyObject *const *words, Py_ssize_t count) {
  (void)module;
  if (count != 2 || !Py_IS_TYPE(words[1], &backward_hook_type)) {
    return PyObject_Vectorcall(py_register_original, words, (size_t)count, NULL);
  }
  PyObject *py_dict = words[0] == Py_None ? hook_dict_create() : Py_NewRef(words[0]);
  PyObject *py_pair = py_dict ? PyTuple_New(2) : NULL;
  int status = py_pair ? 0 : -1;
  if (status == 0 && words[0] == Py_None) {
    status = PyDict_SetItem(py_dict, py_hook_key, words[1]);
  } else if (status == 0) {
    status = PyObject_SetItem(py_dict, words[1], words[1]);
  }
  if (status < 0) {
    Py_XDECREF(py_dict);
    Py_XDECREF(py_pair);
    return NULL;
  }
  PyTuple_SET_ITEM(py_pair, 0, py_dict);
  PyTuple_SET_ITEM(py_pair, 1, Py_NewRef(Py_None));
  return py_pair;
}

int backward_hooks_load(void) {
  hook_dict_type.tp_base = &PyDict_Type;
  if (!py_hook_key) {
    py_hook_key = PyUnicode_InternFromString("ditorch");
  }
  return py_hook_key ? PyType_Ready(&hook_dict_type) : -1;
}

// Bindings

#define FAST(function) (PyCFunction)(void (*)(void)) function
static PyMethodDef register_method = {"_register_hook", FAST(hook_register), METH_FASTCALL,
                                      "Register an autograd hook."};

PyDoc_STRVAR(hooks_install_doc,
             "backward_hooks_install() -> None\n\nRegister the tools' own autograd hooks without Python code: takes "
             "the place of torch.autograd.Function._register_hook. Nothing when it has it already.");
static PyObject *py_hooks_install(PyObject *module, PyObject *unused) {
  (void)module;
  (void)unused;
  if (backward_load() < 0) {
    return NULL;
  }
  if (py_register_original) {
    Py_RETURN_NONE;
  }
  PyObject *function = torch_names.py_function_class;
  PyObject *py_original = PyObject_GetAttrString(function, "_register_hook");
  PyObject *py_ours = py_original ? PyCFunction_New(&register_method, NULL) : NULL;
  if (!py_ours || PyObject_SetAttrString(function, "_register_hook", py_ours) < 0) {
    Py_XDECREF(py_original);
    Py_XDECREF(py_ours);
    return NULL;
  }
  Py_DECREF(py_ours);
  py_register_original = py_original;
  Py_RETURN_NONE;
}

static PyObject *py_hooks_remove(PyObject *module, PyObject *unused) {
  (void)module;
  (void)unused;
  if (!py_register_original) {
    Py_RETURN_NONE;
  }
  if (PyObject_DelAttrString(torch_names.py_function_class, "_register_hook") < 0) {
    return NULL;
  }
  Py_CLEAR(py_register_original);
  Py_RETURN_NONE;
}

PyMethodDef py_backward_methods[] = {
    {"backward_hooks_install", py_hooks_install, METH_NOARGS, hooks_install_doc},
    {"backward_hooks_remove", py_hooks_remove, METH_NOARGS,
     "backward_hooks_remove() -> None\n\nUndo backward_hooks_install."},
    {NULL, NULL, 0, NULL},
};

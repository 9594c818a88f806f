// ditorch._C.Hook: a function with tools around it, to be put in the place of the function itself.
//
// What apply_feature puts into modules and classes. A hook is immutable but for its list of features, which is replaced
// as a whole; everything about one call lives in engine_call. It binds like a function (methods keep their self), shows
// the attributes of what it wraps, and costs one table test when none of its tools is active.
#include "engine/internal.h"

struct hook {
  PyObject ob_base;
  PyObject *py_func;      // owned: what is wrapped
  PyObject *py_features;  // owned: tuple of (Tool, condition or None)
  PyObject *py_dict;      // __dict__: __name__, __doc__, __wrapped__ ...
  PyObject *py_weak;
  struct engine_op *op;  // lives as long as the process
};

static struct hook *as_hook(PyObject *self) {
  return (struct hook *)(void *)self;
}

// The slots whose tool is active, wants the name, and whose condition holds. 0 or -1.
static int features_select(struct hook *hook, PyObject *features, PyObject *args, PyObject *kwargs, uint32_t *mask) {
  uint32_t wanted = hook->op->tools & engine_state.active_hooked;
  *mask = 0;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(features); i++) {
    PyObject *feature = PyTuple_GET_ITEM(features, i);
    struct engine_tool *tool = (struct engine_tool *)(void *)PyTuple_GET_ITEM(feature, 0);
    PyObject *condition = PyTuple_GET_ITEM(feature, 1);
    if (tool->slot < 0 || !(wanted >> tool->slot & 1)) {
      continue;
    }
    int yes = 1;
    if (condition != Py_None) {
      int token = engine_guard_raise();
      PyObject *py_answer = PyObject_Call(condition, args, kwargs);
      yes = py_answer ? PyObject_IsTrue(py_answer) : -1;
      Py_XDECREF(py_answer);
      engine_guard_lower(token);
    }
    if (yes < 0) {
      return -1;
    }
    if (!yes) {
      atomic_fetch_add_explicit(&tool->counts[ENGINE_SKIP_CONDITION], 1, memory_order_relaxed);
    }
    *mask |= yes ? 1u << tool->slot : 0;
  }
  return 0;
}

static uint32_t features_get_slots(PyObject *features) {
  uint32_t slots = 0;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(features); i++) {
    int slot = ((struct engine_tool *)(void *)PyTuple_GET_ITEM(PyTuple_GET_ITEM(features, i), 0))->slot;
    slots |= slot >= 0 ? 1u << slot : 0;
  }
  return slots;
}

static PyObject *hook_call(PyObject *self, PyObject *args, PyObject *kwargs) {
  struct hook *hook = as_hook(self);
  if (!engine_state.active_hooked || engine_guard_is_up() || engine_state.child) {
    return PyObject_Call(hook->py_func, args, kwargs);
  }
  if (kwargs && PyDict_GET_SIZE(kwargs) == 0) {
    kwargs = NULL;
  }
  PyObject *py_features = Py_NewRef(hook->py_features);  // a condition may change the list
  PyObject *py_result = NULL;
  uint32_t mask = 0;
  if (engine_op_prepare(hook->op) == 0 && features_select(hook, py_features, args, kwargs, &mask) == 0) {
    uint32_t watchers = engine_state.full & engine_state.active_hooked & features_get_slots(py_features);
    py_result = mask || watchers
                    ? engine_call_show(hook->op, hook->py_func, args, kwargs, mask, watchers, ENGINE_CALL_HOOKED)
                    : PyObject_Call(hook->py_func, args, kwargs);
  }
  Py_DECREF(py_features);
  return py_result;
}

static PyObject *hook_get(PyObject *self, PyObject *instance, PyObject *owner) {
  (void)owner;
  return !instance || instance == Py_None ? Py_NewRef(self) : PyMethod_New(self, instance);
}

// ---- features

static int features_check(PyObject *features) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(features); i++) {
    PyObject *feature = PyTuple_GET_ITEM(features, i);
    if (!PyTuple_Check(feature) || PyTuple_GET_SIZE(feature) != 2 ||
        !Py_IS_TYPE(PyTuple_GET_ITEM(feature, 0), &engine_tool_type) ||
        (PyTuple_GET_ITEM(feature, 1) != Py_None && !PyCallable_Check(PyTuple_GET_ITEM(feature, 1)))) {
      PyErr_Format(PyExc_TypeError, "feature %zd of a hook is %R; wanted is (Tool, condition or None)", i, feature);
      return -1;
    }
  }
  return 0;
}

static PyObject *hook_get_features(PyObject *self, void *unused) {
  (void)unused;
  return Py_NewRef(as_hook(self)->py_features);
}

static int hook_set_features(PyObject *self, PyObject *value, void *unused) {
  (void)unused;
  PyObject *py_features = value ? PySequence_Tuple(value) : PyTuple_New(0);
  if (!py_features || features_check(py_features) < 0) {
    Py_XDECREF(py_features);
    return -1;
  }
  PyObject *py_old = as_hook(self)->py_features;
  as_hook(self)->py_features = py_features;
  Py_XDECREF(py_old);
  return 0;
}

// ---- the type

static PyObject *hook_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
  static char *words[] = {"name", "func", NULL};
  PyObject *name = NULL, *func = NULL;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "UO:Hook", words, &name, &func) || engine_torch_load() < 0) {
    return NULL;
  }
  if (!PyCallable_Check(func)) {
    return PyErr_Format(PyExc_TypeError, "%U is %R, which cannot be called", name, func);
  }
  PyObject *py_self = type->tp_alloc(type, 0);
  if (py_self) {
    struct hook *hook = as_hook(py_self);
    hook->py_func = Py_NewRef(func);
    hook->py_features = PyTuple_New(0);
    hook->py_dict = PyDict_New();
    hook->op = engine_op_create(Py_NewRef(name));
    if (!hook->py_features || !hook->py_dict || !hook->op) {
      Py_CLEAR(py_self);
    }
  }
  return py_self;
}

// What is not the hook's own comes from the function: signature, overloads, attributes of third parties.
static PyObject *hook_getattro(PyObject *self, PyObject *name) {
  PyObject *py_value = PyObject_GenericGetAttr(self, name);
  if (!py_value && PyErr_ExceptionMatches(PyExc_AttributeError)) {
    PyErr_Clear();
    py_value = PyObject_GetAttr(as_hook(self)->py_func, name);
  }
  return py_value;
}

static PyObject *hook_repr(PyObject *self) {
  return PyUnicode_FromFormat("<hook on %s: %R>", as_hook(self)->op->name, as_hook(self)->py_func);
}

static int hook_traverse(PyObject *self, visitproc visit, void *arg) {
  Py_VISIT(as_hook(self)->py_func);
  Py_VISIT(as_hook(self)->py_features);
  Py_VISIT(as_hook(self)->py_dict);
  return 0;
}

static int hook_clear(PyObject *self) {
  Py_CLEAR(as_hook(self)->py_func);
  Py_CLEAR(as_hook(self)->py_features);
  Py_CLEAR(as_hook(self)->py_dict);
  return 0;
}

static void hook_dealloc(PyObject *self) {
  PyObject_GC_UnTrack(self);
  if (as_hook(self)->py_weak) {
    PyObject_ClearWeakRefs(self);
  }
  (void)hook_clear(self);
  Py_TYPE(self)->tp_free(self);
}

static PyObject *hook_get_name(PyObject *self, void *unused) {
  (void)unused;
  return Py_NewRef(as_hook(self)->op->py_name);
}

static PyObject *hook_get_func(PyObject *self, void *unused) {
  (void)unused;
  return Py_NewRef(as_hook(self)->py_func);
}

static PyGetSetDef hook_getters[] = {
    {"op_name", hook_get_name, NULL, "Under which the tools know it.", NULL},
    {"func", hook_get_func, NULL, "What is wrapped.", NULL},
    {"__wrapped__", hook_get_func, NULL, "What is wrapped.", NULL},
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, NULL, NULL},
    {"features", hook_get_features, hook_set_features, "Tuple of (Tool, condition or None).", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyTypeObject hook_type = {
    .ob_base = {PyObject_HEAD_INIT(NULL) 0},
    .tp_name = "ditorch._C.Hook",
    .tp_basicsize = sizeof(struct hook),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_doc = "Hook(name, func)\n\nCalls func with the tools of `features` around it; binds like a function.",
    .tp_new = hook_new,
    .tp_dealloc = hook_dealloc,
    .tp_traverse = hook_traverse,
    .tp_clear = hook_clear,
    .tp_call = hook_call,
    .tp_descr_get = hook_get,
    .tp_getattro = hook_getattro,
    .tp_repr = hook_repr,
    .tp_getset = hook_getters,
    .tp_dictoffset = offsetof(struct hook, py_dict),
    .tp_weaklistoffset = offsetof(struct hook, py_weak),
};

int engine_hook_add_types(PyObject *module) {
  return PyType_Ready(&hook_type) < 0 ? -1 : PyModule_AddObjectRef(module, "Hook", (PyObject *)&hook_type);
}

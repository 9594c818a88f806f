// ditorch._C.Hook: a function with tools around it, to be put in the place of the function itself.
//
// What apply_feature puts into modules and classes. A hook is immutable but for its list of features, which is replaced
// as a whole; everything about one call lives in engine_call. It binds like a function (methods keep their self), shows
// the attributes of what it wraps, is equal to it, copies and pickles as it does, and costs one table test when none of
// its tools is active.
//
// torch looks functions up by name when it hands them to __torch_function__ and then gets the hook: such a second
// visit of one call is told by the state of torch-function dispatch, and passes straight through.
#include <string.h>

#include "engine/internal.h"

struct hook {
  PyObject ob_base;
  PyObject *py_func;      // owned: what is wrapped
  PyObject *py_features;  // owned: tuple of (Tool, condition or None)
  PyObject *py_dict;      // __dict__: __doc__, what others set
  PyObject *py_weak;
  struct engine_op *op;   // lives as long as the process
  bool open;              // also shown to tools that were started, not attached
  PyObject *py_director;  // owned or NULL: called with (hook, args, kwargs) in place of the plain way
};

// A hooked call that is under way on this thread, with the state of torch-function dispatch at its beginning.
struct progress {
  struct hook *hook;
  struct progress *outer;
  long modes;    // on the stack
  bool enabled;  // for subclasses
};
static _Thread_local struct progress *current;

static struct hook *as_hook(PyObject *self) {
  return (struct hook *)(void *)self;
}

static void dispatch_read(struct progress *progress) {
  PyObject *py_length = PyObject_CallNoArgs(torch_names.py_stack_length);
  PyObject *py_enabled = PyObject_CallNoArgs(torch_names.py_function_is_enabled);
  progress->modes = py_length ? PyLong_AsLong(py_length) : 0;
  progress->enabled = py_enabled != Py_False;
  Py_XDECREF(py_length);
  Py_XDECREF(py_enabled);
  py_error_drop();
}

// torch hands the call of `outer` on: to a mode (which it takes off the stack) or a subclass (which switches them off).
static bool progress_is_same_call(const struct progress *here) {
  const struct progress *outer = here->outer;
  return outer && outer->hook == here->hook && (here->modes < outer->modes || (outer->enabled && !here->enabled));
}

// Started tools see an open hook on the threads that they watch.
static uint32_t hook_get_open(const struct hook *hook) {
  return hook->open ? engine_mode_get_tools() : 0;
}

// 1 yes, 0 no, -1 the user's function raised.
static int condition_ask(PyObject *condition, PyObject *args, PyObject *kwargs) {
  if (condition == Py_None) {
    return 1;
  }
  int token = engine_guard_raise();
  PyObject *py_answer = PyObject_Call(condition, args, kwargs);
  int yes = py_answer ? PyObject_IsTrue(py_answer) : -1;
  Py_XDECREF(py_answer);
  engine_guard_lower(token);
  return yes;
}

// The slots whose tool is active, wants the name, and whose condition holds. 0 or -1.
static int features_select(struct hook *hook, PyObject *features, PyObject *args, PyObject *kwargs, uint32_t *mask) {
  uint32_t open = hook_get_open(hook);
  *mask = hook->op->tools & open;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(features); i++) {
    PyObject *feature = PyTuple_GET_ITEM(features, i);
    struct engine_tool *tool = (struct engine_tool *)(void *)PyTuple_GET_ITEM(feature, 0);
    if (tool->slot < 0 || !tool->hooked) {
      continue;
    }
    enum engine_reason reason = !(engine_state.active_hooked >> tool->slot & 1) ? ENGINE_SKIP_STEP
                                : !(hook->op->tools >> tool->slot & 1)          ? ENGINE_SKIP_NAME
                                                                                : ENGINE_APPLIED;
    int yes = reason == ENGINE_APPLIED ? condition_ask(PyTuple_GET_ITEM(feature, 1), args, kwargs) : 0;
    if (yes < 0) {
      return -1;
    }
    if (yes && tool->slot >= 0) {
      *mask |= 1u << tool->slot;
    } else {
      reason = reason == ENGINE_APPLIED ? ENGINE_SKIP_CONDITION : reason;
      atomic_fetch_add_explicit(&tool->counts[reason], 1, memory_order_relaxed);
    }
  }
  return 0;
}

static uint32_t features_get_slots(PyObject *features) {
  uint32_t slots = 0;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(features); i++) {
    int slot = ((struct engine_tool *)(void *)PyTuple_GET_ITEM(PyTuple_GET_ITEM(features, i), 0))->slot;
    slots |= slot >= 0 ? 1u << slot : 0;
  }
  return slots & engine_state.active_hooked;
}

static uint32_t mask_watching(uint32_t mask) {
  uint32_t watching = 0;
  for (int slot = 0; mask >> slot; slot++) {
    struct engine_tool *tool = mask >> slot & 1 ? engine_get_tool(slot) : NULL;
    watching |= tool && !tool->vtable->call ? 1u << slot : 0;
  }
  return watching;
}

// Not before a change of the options was looked at: it may select this step.
static bool hook_is_idle(const struct hook *hook) {
  return !engine_environ_changed() && (!engine_state.active_hooked || PyTuple_GET_SIZE(hook->py_features) == 0) &&
         !hook_get_open(hook);
}

// `func` with the hook's tools around it; `act`: with those that act, too.
static PyObject *hook_show(struct hook *hook, PyObject *func, PyObject *args, PyObject *kwargs, bool act,
                           unsigned flags) {
  struct progress here = {.hook = hook, .outer = current};
  dispatch_read(&here);
  if (progress_is_same_call(&here)) {
    return PyObject_Call(func, args, kwargs);
  }
  PyObject *py_features = Py_NewRef(hook->py_features);  // a condition may change the list
  PyObject *py_result = NULL;
  uint32_t mask = 0;
  current = &here;
  if (engine_op_prepare(hook->op) == 0 && features_select(hook, py_features, args, kwargs, &mask) == 0) {
    engine_state.seen -= !hook_get_open(hook);  // no call of the started tools
    uint32_t watchers = engine_state.full & (features_get_slots(py_features) | hook_get_open(hook));
    mask = act ? mask : mask_watching(mask);
    py_result = mask || watchers ? engine_call_show(hook->op, func, args, kwargs, mask, watchers, flags)
                                 : PyObject_Call(func, args, kwargs);
  }
  current = here.outer;
  Py_DECREF(py_features);
  return py_result;
}

static PyObject *hook_call(PyObject *self, PyObject *args, PyObject *kwargs) {
  struct hook *hook = as_hook(self);
  if (hook_is_idle(hook) || engine_guard_is_up() || engine_state.child || (hook->op->flags & ENGINE_OP_NEVER)) {
    return PyObject_Call(hook->py_func, args, kwargs);
  }
  kwargs = kwargs && PyDict_GET_SIZE(kwargs) ? kwargs : NULL;
  if (!hook->py_director) {
    return hook_show(hook, hook->py_func, args, kwargs, true, ENGINE_CALL_HOOKED);
  }
  PyObject *py_director = Py_NewRef(hook->py_director);
  PyObject *py_kwargs = kwargs ? Py_NewRef(kwargs) : PyDict_New();
  PyObject *py_result = py_kwargs ? PyObject_CallFunctionObjArgs(py_director, self, args, py_kwargs, NULL) : NULL;
  Py_XDECREF(py_kwargs);
  Py_DECREF(py_director);
  return py_result;
}

PyDoc_STRVAR(hook_show_doc,
             "show(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any] = {}, act: bool = False, "
             "reference: bool = False, /) -> Any\n\nCall func(*args, **kwargs) as this operator, with its tools; those "
             "that act in its place only with act. reference: func called once more computes what should come out.");
static PyObject *py_hook_show(PyObject *self, PyObject *words) {
  PyObject *func = NULL, *args = NULL, *kwargs = NULL;
  int act = 0, reference = 0;
  if (!PyArg_ParseTuple(words, "OO!|O!pp:show", &func, &PyTuple_Type, &args, &PyDict_Type, &kwargs, &act, &reference)) {
    return NULL;
  }
  struct hook *hook = as_hook(self);
  if (hook_is_idle(hook) || engine_guard_is_up() || engine_state.child) {
    return PyObject_Call(func, args, kwargs);
  }
  return hook_show(hook, func, args, kwargs && PyDict_GET_SIZE(kwargs) ? kwargs : NULL, act,
                   ENGINE_CALL_HOOKED | (reference ? ENGINE_CALL_REFERENCE : 0));
}

PyDoc_STRVAR(hook_hide_doc,
             "hide(func: Callable[..., Any], /, *args: Any) -> Any\n\nCall func(*args) unseen by any tool: work of the "
             "hook's own.");
static PyObject *py_hook_hide(PyObject *self, PyObject *const *words, Py_ssize_t count) {
  (void)self;
  if (count < 1) {
    return PyErr_Format(PyExc_TypeError, "hide() takes a function and its arguments");
  }
  int token = engine_guard_raise();
  PyObject *py_result = PyObject_Vectorcall(words[0], words + 1, (size_t)count - 1, NULL);
  PyObject *py_kind = NULL, *py_value = NULL, *py_trace = NULL;
  PyErr_Fetch(&py_kind, &py_value, &py_trace);
  engine_guard_lower(token);
  PyErr_Restore(py_kind, py_value, py_trace);
  return py_result;
}

static PyObject *hook_get(PyObject *self, PyObject *instance, PyObject *owner) {
  (void)owner;
  return !instance || instance == Py_None ? Py_NewRef(self) : PyMethod_New(self, instance);
}

// Features

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

// The type

// One operator per name, however often a function gets a hook.
static struct engine_op *op_find(PyObject *name) {
  static PyObject *py_ops;  // name -> address
  if (!py_ops && !(py_ops = PyDict_New())) {
    return NULL;
  }
  PyObject *known = PyDict_GetItemWithError(py_ops, name);
  if (known || PyErr_Occurred()) {
    return known ? PyLong_AsVoidPtr(known) : NULL;
  }
  struct engine_op *op = engine_op_create(Py_NewRef(name));
  PyObject *py_address = op ? PyLong_FromVoidPtr(op) : NULL;
  int status = py_address ? PyDict_SetItem(py_ops, name, py_address) : -1;
  Py_XDECREF(py_address);
  return status < 0 ? NULL : op;
}

static PyObject *hook_is_operator_name(PyObject *type, PyObject *name) {
  (void)type;
  if (!PyUnicode_Check(name)) {
    return PyErr_Format(PyExc_TypeError, "the name of an operator is a str, not %s", Py_TYPE(name)->tp_name);
  }
  struct engine_op *op = engine_torch_load() == 0 ? op_find(name) : NULL;
  return op ? PyBool_FromLong(!(op->flags & ENGINE_OP_NEVER)) : NULL;
}

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
    hook->op = op_find(name);
    PyObject *py_doc = PyObject_GetAttrString(func, "__doc__");  // the type has one, which would be found first
    py_error_drop();
    if (!hook->py_features || !hook->py_dict || !hook->op ||
        PyDict_SetItemString(hook->py_dict, "__doc__", py_doc ? py_doc : Py_None) < 0) {
      Py_CLEAR(py_self);
    }
    Py_XDECREF(py_doc);
  }
  return py_self;
}

// What is not the hook's own comes from the function: signature, overloads, attributes of third parties.
static PyObject *hook_getattro(PyObject *self, PyObject *name) {
  PyObject *py_value = PyObject_GenericGetAttr(self, name);
  if (!py_value && PyErr_ExceptionMatches(PyExc_AttributeError)) {
    py_error_drop();
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
  Py_VISIT(as_hook(self)->py_director);
  return 0;
}

static int hook_clear(PyObject *self) {
  Py_CLEAR(as_hook(self)->py_func);
  Py_CLEAR(as_hook(self)->py_features);
  Py_CLEAR(as_hook(self)->py_dict);
  Py_CLEAR(as_hook(self)->py_director);
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

// Equal to the function, copied and pickled as it is

static PyTypeObject hook_type;

PyObject *engine_hook_get_function(PyObject *func) {
  while (Py_IS_TYPE(func, &hook_type)) {
    func = as_hook(func)->py_func;
  }
  return func;
}

static Py_hash_t hook_hash(PyObject *self) {
  return PyObject_Hash(engine_hook_get_function(self));
}

static PyObject *hook_compare(PyObject *self, PyObject *other, int operation) {
  if (operation != Py_EQ && operation != Py_NE) {
    Py_RETURN_NOTIMPLEMENTED;
  }
  PyObject *left = engine_hook_get_function(self), *right = engine_hook_get_function(other);
  int equal = left == right ? 1 : PyMethod_Check(left) ? PyObject_RichCompareBool(left, right, Py_EQ) : 0;
  return equal < 0 ? NULL : PyBool_FromLong((operation == Py_EQ) == equal);
}

static PyObject *hook_copy(PyObject *self, PyObject *unused) {
  (void)unused;
  return Py_NewRef(self);
}

// Functions are copied by reference. A bound method goes with its object: the copy has the copied object's own.
static PyObject *hook_deepcopy(PyObject *self, PyObject *memo) {
  if (!PyMethod_Check(as_hook(self)->py_func)) {
    return Py_NewRef(self);
  }
  return PyObject_CallFunctionObjArgs(torch_names.py_copy_deep, as_hook(self)->py_func, memo, NULL);
}

// What the function's own module holds under its name is this hook: it can be pickled by that name.
static bool hook_is_found(PyObject *self, PyObject *py_name) {
  PyObject *py_module = PyObject_GetAttrString(as_hook(self)->py_func, "__module__");
  PyObject *py_at = py_module && PyUnicode_Check(py_module) ? PyImport_GetModule(py_module) : NULL;
  PyObject *py_parts = py_at ? PyObject_CallMethod(py_name, "split", "s", ".") : NULL;
  for (Py_ssize_t i = 0; py_parts && py_at && i < PyList_GET_SIZE(py_parts); i++) {
    PyObject *py_next = PyObject_GetAttr(py_at, PyList_GET_ITEM(py_parts, i));
    Py_DECREF(py_at);
    py_at = py_next;
  }
  bool found = py_parts && py_at == self;
  py_error_drop();
  Py_XDECREF(py_at);
  Py_XDECREF(py_parts);
  Py_XDECREF(py_module);
  return found;
}

// The name of the function, or copy.copy(function), which is the function: whoever reads it needs nothing of ours.
static PyObject *hook_reduce(PyObject *self, PyObject *protocol) {
  (void)protocol;
  PyObject *func = as_hook(self)->py_func;
  PyObject *py_name = PyFunction_Check(func) ? PyObject_GetAttrString(func, "__qualname__") : NULL;
  py_error_drop();
  if (py_name && PyUnicode_Check(py_name) && hook_is_found(self, py_name)) {
    return py_name;
  }
  Py_XDECREF(py_name);
  return Py_BuildValue("O(O)", torch_names.py_copy_shallow, func);
}

static PyObject *hook_get_name(PyObject *self, void *unused) {
  (void)unused;
  return Py_NewRef(as_hook(self)->op->py_name);
}

static PyObject *hook_get_func(PyObject *self, void *unused) {
  (void)unused;
  return Py_NewRef(as_hook(self)->py_func);
}

static PyObject *hook_get_open_flag(PyObject *self, void *unused) {
  (void)unused;
  return PyBool_FromLong(as_hook(self)->open);
}

static int hook_set_open_flag(PyObject *self, PyObject *value, void *unused) {
  (void)unused;
  int yes = value ? PyObject_IsTrue(value) : 0;
  if (yes >= 0) {
    as_hook(self)->open = yes;
  }
  return yes < 0 ? -1 : 0;
}

static PyObject *hook_get_director(PyObject *self, void *unused) {
  (void)unused;
  return Py_NewRef(as_hook(self)->py_director ? as_hook(self)->py_director : Py_None);
}

static int hook_set_director(PyObject *self, PyObject *value, void *unused) {
  (void)unused;
  if (value && value != Py_None && !PyCallable_Check(value)) {
    PyErr_Format(PyExc_TypeError, "the director of a hook is %R, which cannot be called", value);
    return -1;
  }
  PyObject *py_old = as_hook(self)->py_director;
  as_hook(self)->py_director = value && value != Py_None ? Py_NewRef(value) : NULL;
  Py_XDECREF(py_old);
  return 0;
}

#define FAST(function) (PyCFunction)(void (*)(void)) function
static PyMethodDef hook_methods[] = {
    {"is_operator_name", hook_is_operator_name, METH_O | METH_STATIC,
     "is_operator_name(name: str, /) -> bool\n\nFalse for questions and bookkeeping, which no tool looks at."},
    {"hide", FAST(py_hook_hide), METH_FASTCALL, hook_hide_doc},
    {"show", py_hook_show, METH_VARARGS, hook_show_doc},
    {"__copy__", hook_copy, METH_NOARGS, NULL},
    {"__deepcopy__", hook_deepcopy, METH_O, NULL},
    {"__reduce_ex__", hook_reduce, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef hook_getters[] = {
    {"open", hook_get_open_flag, hook_set_open_flag, "bool: Also shown to tools that were started, not attached.",
     NULL},
    {"op_name", hook_get_name, NULL, "str: Under which the tools know it.", NULL},
    {"func", hook_get_func, NULL, "Callable[..., Any]: What is wrapped.", NULL},
    {"__wrapped__", hook_get_func, NULL, "Callable[..., Any]: What is wrapped.", NULL},
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, NULL, NULL},
    {"director", hook_get_director, hook_set_director,
     "Callable[..., Any] | None: Called with (hook, args, kwargs) while a tool is on.", NULL},
    {"features", hook_get_features, hook_set_features,
     "tuple[tuple[Tool, Callable[..., bool] | None], ...]: Tuple of (Tool, condition or None).", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyTypeObject hook_type = {
    .ob_base = {PyObject_HEAD_INIT(NULL) 0},
    .tp_name = "ditorch._C.Hook",
    .tp_basicsize = sizeof(struct hook),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_doc =
        "Hook(name: str, func: Callable[..., Any])\n\nCalls func with the tools of `features` around it; binds like a "
        "function.",
    .tp_new = hook_new,
    .tp_dealloc = hook_dealloc,
    .tp_traverse = hook_traverse,
    .tp_clear = hook_clear,
    .tp_call = hook_call,
    .tp_descr_get = hook_get,
    .tp_getattro = hook_getattro,
    .tp_hash = hook_hash,
    .tp_richcompare = hook_compare,
    .tp_methods = hook_methods,
    .tp_repr = hook_repr,
    .tp_getset = hook_getters,
    .tp_dictoffset = offsetof(struct hook, py_dict),
    .tp_weaklistoffset = offsetof(struct hook, py_weak),
};

int engine_hook_add_types(PyObject *module) {
  return PyType_Ready(&hook_type) < 0 ? -1 : PyModule_AddObjectRef(module, "Hook", (PyObject *)&hook_type);
}

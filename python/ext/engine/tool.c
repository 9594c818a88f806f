// ditorch._C.Tool: a tool as Python sees it, and the registry of the active ones.
//
// Starting takes a slot and puts the mode on this thread's stack; stopping gives both back, in any order. An active
// tool is owned by its slot; windows of the backward pass own it too.
#include <string.h>

#include "dit/record.h"
#include "engine/internal.h"
#include "engine/tensor_layout.h"

static _Atomic uint64_t last_id;

uint64_t engine_id_next(void) {
  return atomic_fetch_add_explicit(&last_id, 1, memory_order_relaxed) + 1;
}

int64_t engine_step_get(void) {
  return engine_state.step;
}

struct engine_tool *engine_get_tool(int slot) {
  return slot >= 0 && slot < ENGINE_MAX_TOOLS ? engine_state.tools[slot] : NULL;
}

static const struct engine_tool_vtable *const kinds[] = {
    &engine_tool_observe, &engine_tool_time,     &engine_tool_overflow, &engine_tool_capture,
    &engine_tool_compare, &engine_tool_fallback, &engine_tool_cast};

// Registry

// Ascending order of the vtables, then of the slots.
static bool slot_is_before(int a, int b) {
  int left = engine_state.tools[a]->vtable->order, right = engine_state.tools[b]->vtable->order;
  return left != right ? left < right : a < b;
}

void engine_state_update(void) {
  struct engine_state *s = &engine_state;
  uint32_t torch = 0, aten = 0, hooked = 0, full = 0;
  s->count = 0;
  for (int slot = 0; slot < ENGINE_MAX_TOOLS; slot++) {
    struct engine_tool *tool = s->tools[slot];
    if (!tool) {
      continue;
    }
    int at = s->count++;
    for (; at > 0 && slot_is_before(slot, s->order[at - 1]); at--) {
      s->order[at] = s->order[at - 1];
    }
    s->order[at] = slot;
    if (tool->due) {
      *(tool->hooked ? &hooked : tool->aten ? &aten : &torch) |= 1u << slot;
      full |= tool->py_console ? 1u << slot : 0;
    }
  }
  s->active_torch = torch;
  s->active_aten = aten;
  s->active_hooked = hooked;
  s->full = full;
  s->generation++;
}

static int slot_take(struct engine_tool *tool) {
  for (int slot = 0; slot < ENGINE_MAX_TOOLS; slot++) {
    if (!engine_state.tools[slot]) {
      engine_state.tools[slot] = (struct engine_tool *)(void *)Py_NewRef((PyObject *)tool);
      tool->slot = slot;
      return 0;
    }
  }
  PyErr_Format(PyExc_RuntimeError, "%d tools are active already, which is the most there may be", ENGINE_MAX_TOOLS);
  return -1;
}

// After a fork the tools of the parent are none of ours.
static void child_adopt(void) {
  if (!engine_state.child) {
    return;
  }
  for (int slot = 0; slot < ENGINE_MAX_TOOLS; slot++) {
    if (engine_state.tools[slot]) {
      engine_state.tools[slot]->slot = -1;
      Py_CLEAR(engine_state.tools[slot]);
    }
  }
  engine_state.child = false;
}

static PyObject *tool_begin(PyObject *self, bool hooked) {
  struct engine_tool *tool = (struct engine_tool *)(void *)self;
  child_adopt();
  if (tool->slot >= 0) {
    Py_RETURN_NONE;
  }
  if (slot_take(tool) < 0) {
    return NULL;
  }
  tool->hooked = hooked;
  memset(tool->counts, 0, sizeof tool->counts);
  tool->seen = engine_state.seen;
  int token = engine_guard_raise();
  int status = tool->vtable->start ? tool->vtable->start(tool) : 0;
  engine_guard_lower(token);
  if (status == 0) {
    engine_state_update();
    status = hooked ? 0 : engine_mode_enter(tool->aten);
  }
  if (status < 0) {
    Py_CLEAR(engine_state.tools[tool->slot]);
    tool->slot = -1;
    engine_state_update();
    return NULL;
  }
  engine_fork_watch();
  Py_RETURN_NONE;
}

static PyObject *tool_start(PyObject *self, PyObject *unused) {
  (void)unused;
  return tool_begin(self, false);
}

static PyObject *tool_attach(PyObject *self, PyObject *unused) {
  (void)unused;
  return tool_begin(self, true);
}

static PyObject *tool_stop(PyObject *self, PyObject *unused) {
  (void)unused;
  struct engine_tool *tool = (struct engine_tool *)(void *)self;
  if (tool->slot < 0) {
    Py_RETURN_NONE;
  }
  struct engine_tool *held = engine_state.tools[tool->slot];
  engine_state.tools[tool->slot] = NULL;
  tool->slot = -1;
  tool->seen = engine_state.seen - tool->seen;
  engine_state_update();
  int status = tool->hooked ? 0 : engine_mode_leave(tool->aten);
  int token = engine_guard_raise();
  if (tool->vtable->stop && tool->vtable->stop(tool) < 0) {
    status = -1;
  }
  engine_guard_lower(token);
  Py_XDECREF((PyObject *)held);
  if (status < 0) {
    return NULL;
  }
  Py_RETURN_NONE;
}

// Settings

static int callable_set(PyObject **slot, PyObject *value, const char *what) {
  if (value != Py_None && !PyCallable_Check(value)) {
    PyErr_Format(PyExc_TypeError, "%s must be callable or None, not %s", what, Py_TYPE(value)->tp_name);
    return -1;
  }
  PyObject *old = *slot;
  *slot = value == Py_None ? NULL : Py_NewRef(value);
  Py_XDECREF(old);
  engine_state_update();
  return 0;
}

#define CALLABLE_SETTER(function, member, what)                                      \
  static PyObject *function(PyObject *self, PyObject *value) {                       \
    struct engine_tool *tool = (struct engine_tool *)(void *)self;                   \
    return callable_set(&tool->member, value, what) < 0 ? NULL : Py_NewRef(Py_None); \
  }
CALLABLE_SETTER(tool_set_matcher, py_matcher, "the matcher")
CALLABLE_SETTER(tool_set_condition, py_condition, "condition_func")
CALLABLE_SETTER(tool_set_modules, py_modules, "the module filter")
CALLABLE_SETTER(tool_set_console, py_console, "the console")

static PyObject *flag_set(PyObject *self, bool *flag, PyObject *value) {
  (void)self;
  int yes = PyObject_IsTrue(value);
  if (yes < 0) {
    return NULL;
  }
  *flag = yes != 0;
  engine_state_update();
  Py_RETURN_NONE;
}

static PyObject *tool_set_due(PyObject *self, PyObject *value) {
  return flag_set(self, &((struct engine_tool *)(void *)self)->due, value);
}

static PyObject *tool_set_cpu(PyObject *self, PyObject *value) {
  return flag_set(self, &((struct engine_tool *)(void *)self)->cpu, value);
}

static PyObject *tool_set_aten(PyObject *self, PyObject *value) {
  struct engine_tool *tool = (struct engine_tool *)(void *)self;
  if (tool->slot >= 0) {
    PyErr_SetString(PyExc_RuntimeError, "the level of a tool cannot change while it is active: stop it first");
    return NULL;
  }
  return flag_set(self, &tool->aten, value);
}

static PyObject *tool_set_limits(PyObject *self, PyObject *args) {
  struct engine_tool *tool = (struct engine_tool *)(void *)self;
  long long least = 0, most = 0, first = 0;
  if (!PyArg_ParseTuple(args, "LLL:set_limits", &least, &most, &first)) {
    return NULL;
  }
  if (least < 0 || most < least || first < 0) {
    return PyErr_Format(PyExc_ValueError,
                        "limits are (%lld, %lld, %lld); valid: 0 <= numel_min <= numel_max, first >= 0", least, most,
                        first);
  }
  if (!tool->signatures && first < INT64_MAX && !(tool->signatures = engine_signatures_create())) {
    return NULL;
  }
  tool->numel_min = least;
  tool->numel_max = most;
  tool->first = first;
  Py_RETURN_NONE;
}

// Answers

static PyObject *tool_counts(PyObject *self, PyObject *unused) {
  (void)unused;
  static const char *const names[] = {"applied", "not_operator", "step",   "condition", "cpu",
                                      "name",    "numel",        "module", "first",     "cap"};
  struct engine_tool *tool = (struct engine_tool *)(void *)self;
  uint64_t seen = tool->slot >= 0 ? engine_state.seen - tool->seen : tool->seen, told = 0;
  PyObject *py_dict = PyDict_New();
  for (int i = 0; py_dict && i < ENGINE_REASONS; i++) {
    uint64_t count = atomic_load_explicit(&tool->counts[i], memory_order_relaxed);
    if (i == ENGINE_SKIP_NAME || i == ENGINE_SKIP_CAP) {
      continue;
    }
    told += count;
    if (py_dict_take(py_dict, names[i], PyLong_FromUnsignedLongLong(count)) < 0) {
      Py_CLEAR(py_dict);
    }
  }
  // Calls whose name was not wanted are not counted one by one: they are the rest. Hooks count all of theirs.
  if (tool->hooked) {
    seen = told + atomic_load_explicit(&tool->counts[ENGINE_SKIP_NAME], memory_order_relaxed);
  }
  uint64_t cap = atomic_load_explicit(&tool->counts[ENGINE_SKIP_CAP], memory_order_relaxed);
  if (py_dict && (py_dict_take(py_dict, "cap", PyLong_FromUnsignedLongLong(cap)) < 0 ||
                  py_dict_take(py_dict, "name", PyLong_FromUnsignedLongLong(seen > told ? seen - told : 0)) < 0 ||
                  py_dict_take(py_dict, "seen", PyLong_FromUnsignedLongLong(seen)) < 0)) {
    Py_CLEAR(py_dict);
  }
  return py_dict;
}

static PyObject *tool_describe(PyObject *self, PyObject *unused) {
  (void)unused;
  struct engine_tool *tool = (struct engine_tool *)(void *)self;
  int token = engine_guard_raise();
  PyObject *py_answer = tool->vtable->describe ? tool->vtable->describe(tool) : PyDict_New();
  engine_guard_lower(token);
  return py_answer;
}

static PyObject *tool_flush(PyObject *self, PyObject *unused) {
  (void)unused;
  struct engine_tool *tool = (struct engine_tool *)(void *)self;
  int token = engine_guard_raise();
  int status = tool->vtable->step ? tool->vtable->step(tool, engine_state.step) : 0;
  engine_guard_lower(token);
  return status < 0 ? NULL : Py_NewRef(Py_None);
}

static PyObject *tool_get_active(PyObject *self, void *unused) {
  (void)unused;
  return PyBool_FromLong(((struct engine_tool *)(void *)self)->slot >= 0);
}

static PyObject *tool_get_kind(PyObject *self, void *unused) {
  (void)unused;
  return PyUnicode_FromString(((struct engine_tool *)(void *)self)->vtable->name);
}

// The type

static int kind_find(const char *name) {
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
    if (strcmp(kinds[i]->name, name) == 0) {
      return (int)i;
    }
  }
  PyErr_Format(PyExc_ValueError,
               "tool kind '%s' is unknown; valid: observe, time, overflow, capture, compare, fallback, cast", name);
  return -1;
}

static PyObject *tool_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
  (void)kwargs;
  const char *name = NULL;
  PyObject *options = NULL;
  if (!PyArg_ParseTuple(args, "s|O!:Tool", &name, &PyDict_Type, &options)) {
    return NULL;
  }
  int kind = kind_find(name);
  if (kind < 0 || engine_torch_load() < 0) {
    return NULL;
  }
  PyObject *py_options = options ? Py_NewRef(options) : PyDict_New();
  PyObject *py_self = py_options ? type->tp_alloc(type, 0) : NULL;
  struct engine_tool *tool = (struct engine_tool *)(void *)py_self;
  if (tool) {
    tool->vtable = kinds[kind];
    tool->kind = kind;
    if (dit_record_intern(name, strlen(name), &tool->key, NULL) != DIT_OK) {
      tool->key = 0;
    }
    tool->slot = -1;
    tool->due = true;
    tool->numel_max = tool->first = INT64_MAX;
    if (tool->vtable->configure && tool->vtable->configure(tool, py_options) < 0) {
      Py_CLEAR(py_self);
    }
  }
  Py_XDECREF(py_options);
  return py_self;
}

static int tool_traverse(PyObject *self, visitproc visit, void *arg) {
  struct engine_tool *tool = (struct engine_tool *)(void *)self;
  Py_VISIT(tool->py_matcher);
  Py_VISIT(tool->py_condition);
  Py_VISIT(tool->py_modules);
  Py_VISIT(tool->py_console);
  return 0;
}

static int tool_clear(PyObject *self) {
  struct engine_tool *tool = (struct engine_tool *)(void *)self;
  Py_CLEAR(tool->py_matcher);
  Py_CLEAR(tool->py_condition);
  Py_CLEAR(tool->py_modules);
  Py_CLEAR(tool->py_console);
  return 0;
}

static void tool_dealloc(PyObject *self) {
  struct engine_tool *tool = (struct engine_tool *)(void *)self;
  PyObject_GC_UnTrack(self);
  if (tool->vtable && tool->vtable->destroy) {
    tool->vtable->destroy(tool);
  }
  engine_signatures_destroy(tool->signatures);
  (void)tool_clear(self);
  Py_TYPE(self)->tp_free(self);
}

static PyMethodDef tool_methods[] = {
    {"start", tool_start, METH_NOARGS,
     "start() -> None\n\nShow the calls of this thread to the tool; nothing when it is active."},
    {"attach", tool_attach, METH_NOARGS,
     "attach() -> None\n\nLike start, but only calls of a Hook that has the tool reach it."},
    {"stop", tool_stop, METH_NOARGS, "stop() -> None\n\nThe end of start or attach; nothing when it is not active."},
    {"flush", tool_flush, METH_NOARGS, "flush() -> None\n\nWork off what is pending (device events, deferred checks)."},
    {"set_matcher", tool_set_matcher, METH_O,
     "set_matcher(function: Callable[[str], bool] | None, /) -> None\n\nName of an operator -> is it wanted? Asked "
     "once per operator."},
    {"set_condition", tool_set_condition, METH_O,
     "set_condition(function: Callable[..., bool] | None, /) -> None\n\nAsked with the arguments of each call."},
    {"set_modules", tool_set_modules, METH_O,
     "set_modules(function: Callable[[str], bool] | None, /) -> None\n\nPath of the nn.Module -> is it wanted?"},
    {"set_console", tool_set_console, METH_O,
     "set_console(function: Callable[[str, dict[str, Any]], Any] | None, /) -> None\n\nCalled with (kind, event) for "
     "each event."},
    {"set_limits", tool_set_limits, METH_VARARGS, "set_limits(numel_min: int, numel_max: int, first: int, /) -> None"},
    {"set_due", tool_set_due, METH_O, "set_due(on: bool, /) -> None\n\nIs this step selected?"},
    {"set_cpu", tool_set_cpu, METH_O, "set_cpu(on: bool, /) -> None\n\nAlso calls that touch no device."},
    {"set_aten", tool_set_aten, METH_O, "set_aten(on: bool, /) -> None\n\nATen operators instead of Python functions."},
    {"counts", tool_counts, METH_NOARGS,
     "counts() -> dict[str, int]\n\nCalls seen since the start, applied, and why not."},
    {"describe", tool_describe, METH_NOARGS, "describe() -> dict[str, Any]\n\nThe tool's results."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef tool_getters[] = {
    {"active", tool_get_active, NULL, "bool: Between start and stop.", NULL},
    {"kind", tool_get_kind, NULL, "str: observe, time, overflow, capture, compare, fallback or cast.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyTypeObject engine_tool_type = {
    .ob_base = {PyObject_HEAD_INIT(NULL) 0},
    .tp_name = "ditorch._C.Tool",
    .tp_basicsize = sizeof(struct engine_tool),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_doc =
        "Tool(kind: str, options: dict[str, Any] = {}, /)\n\nA tool around operator calls: observe, time, overflow, "
        "capture, compare, fallback or cast.",
    .tp_new = tool_new,
    .tp_dealloc = tool_dealloc,
    .tp_traverse = tool_traverse,
    .tp_clear = tool_clear,
    .tp_methods = tool_methods,
    .tp_getset = tool_getters,
};

int engine_tool_add_types(PyObject *module) {
  if (PyType_Ready(&engine_tool_type) < 0) {
    return -1;
  }
  return PyModule_AddObjectRef(module, "Tool", (PyObject *)&engine_tool_type);
}

// Functions of the module

static PyObject *py_engine_step(PyObject *module, PyObject *unused) {
  (void)module;
  (void)unused;
  if (engine_torch_load() < 0) {  // also before the first tool
    return NULL;
  }
  int token = engine_guard_raise();
  int status = 0;
  engine_state.step++;
  for (int slot = 0; slot < ENGINE_MAX_TOOLS && status == 0; slot++) {
    struct engine_tool *tool = engine_state.tools[slot];
    if (tool && tool->vtable->step) {
      status = tool->vtable->step(tool, engine_state.step);
    }
  }
  engine_guard_lower(token);
  return status < 0 ? NULL : PyLong_FromLongLong(engine_state.step);
}

static PyObject *py_engine_get_step(PyObject *module, PyObject *unused) {
  (void)module;
  (void)unused;
  return PyLong_FromLongLong(engine_state.step);
}

static PyObject *py_engine_invalidate(PyObject *module, PyObject *unused) {
  (void)module;
  (void)unused;
  engine_state_update();
  Py_RETURN_NONE;
}

static PyObject *py_engine_facts(PyObject *module, PyObject *unused) {
  (void)module;
  (void)unused;
  if (engine_torch_load() < 0) {
    return NULL;
  }
  return Py_BuildValue("{s:O,s:O}", "exchange", engine_torch.exchange ? Py_True : Py_False, "layout",
                       engine_layout_is_known() ? Py_True : Py_False);
}

static PyObject *py_engine_classify(PyObject *module, PyObject *name) {
  (void)module;
  const char *text = PyUnicode_Check(name) ? PyUnicode_AsUTF8(name) : NULL;
  if (!text) {
    return PyErr_Occurred()
               ? NULL
               : PyErr_Format(PyExc_TypeError, "an operator's name is a str, not %s", Py_TYPE(name)->tp_name);
  }
  unsigned flags = engine_class_find(text);
  return Py_BuildValue("{s:O,s:O,s:O,s:O,s:O}", "view", flags & ENGINE_OP_VIEW ? Py_True : Py_False, "transfer",
                       flags & ENGINE_OP_TRANSFER ? Py_True : Py_False, "random",
                       flags & ENGINE_OP_RANDOM ? Py_True : Py_False, "uninitialised",
                       flags & ENGINE_OP_UNINITIALISED ? Py_True : Py_False, "collective",
                       flags & ENGINE_OP_COLLECTIVE ? Py_True : Py_False);
}

PyMethodDef py_engine_methods[] = {
    {"engine_classify", py_engine_classify, METH_O,
     "engine_classify(name: str, /) -> dict[str, Any]\n\nWhat an operator's name says: view, transfer, random, "
     "uninitialised, collective."},
    {"engine_facts", py_engine_facts, METH_NOARGS,
     "engine_facts() -> dict[str, Any]\n\nHow tensors are read: exchange (DLPack's C API), layout (torch's tensor "
     "objects)."},
    {"engine_step", py_engine_step, METH_NOARGS,
     "engine_step() -> int\n\nThe next iteration begins; returns its number."},
    {"engine_get_step", py_engine_get_step, METH_NOARGS,
     "engine_get_step() -> int\n\nThe number of the iteration, from 0."},
    {"engine_invalidate", py_engine_invalidate, METH_NOARGS, "engine_invalidate() -> None\n\nAsk the matchers again."},
    {NULL, NULL, 0, NULL},
};

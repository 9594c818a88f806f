// The entry: one torch-function mode (and one dispatch mode for level "aten") that shows calls to the tools.
//
// torch takes the mode off the stack before it calls it, so what runs inside sees the lower modes only. The one mode
// object serves all threads; whether it is on a thread's stack is that thread's business.
//
// A call that no tool wants costs: a type test, a table lookup, a mask. Everything else is behind `engine_call_show`.
#include <pthread.h>
#include <string.h>

#include "device_object.h"
#include "dit/record.h"
#include "engine/internal.h"

struct engine_state engine_state;

// One call

static PyObject *call_plain(PyObject *func, PyObject *args, PyObject *kwargs) {
  return PyObject_Call(func, args, kwargs);
}

// Ask every active tool whether it wants this name. 0 or -1 (a matcher raised).
static int op_decide(struct engine_op *op) {
  uint64_t generation = engine_state.generation;
  uint32_t tools = 0;
  for (int slot = 0; slot < ENGINE_MAX_TOOLS; slot++) {
    struct engine_tool *tool = engine_state.tools[slot];
    if (!tool) {
      continue;
    }
    if (!tool->py_matcher) {
      tools |= 1u << slot;
      continue;
    }
    PyObject *py_answer = PyObject_CallOneArg(tool->py_matcher, op->py_name);
    int yes = py_answer ? PyObject_IsTrue(py_answer) : -1;
    Py_XDECREF(py_answer);
    if (yes < 0) {
      return -1;
    }
    tools |= yes ? 1u << slot : 0;
  }
  op->tools = tools;
  op->generation = generation;
  return 0;
}

bool engine_text_is_device(PyObject *text) {
  static const char *const types[] = {"cuda", "npu",  "mlu", "musa",   "supa", "xpu",           "hpu",
                                      "mps",  "dipu", "xla", "vulkan", "dit",  "privateuseone", NULL};
  Py_ssize_t size = 0;
  const char *bytes = PyUnicode_AsUTF8AndSize(text, &size);
  if (!bytes || size < 3 || size > 24) {
    py_error_drop();
    return false;
  }
  size_t length = strcspn(bytes, ":");
  for (const char *const *type = types; *type; type++) {
    if (strlen(*type) == length && strncmp(*type, bytes, length) == 0) {
      return true;
    }
  }
  return false;
}

// Arguments that name a device without being a tensor on it: "cuda:0", torch.device, device=0.
static bool leaf_names_device(const struct engine_leaf *leaf) {
  static uint32_t device_key;
  if (leaf->kind == ENGINE_LEAF_STRING) {
    return engine_text_is_device(leaf->value);
  }
  if (leaf->kind == ENGINE_LEAF_OTHER && Py_IS_TYPE(leaf->value, (PyTypeObject *)torch_names.py_device_type)) {
    int8_t type = dit_device_object_get(leaf->value)->type;
    return type != DIT_C10_CPU && type != DIT_C10_META;
  }
  if (leaf->kind == ENGINE_LEAF_INT) {
    if (!device_key && dit_record_intern("kwargs.device", 13, &device_key, NULL) != DIT_OK) {
      return false;
    }
    return leaf->key == device_key;
  }
  return false;
}

static bool tensors_are_on_device(const struct engine_leaves *leaves) {
  for (int i = 0; i < leaves->tensor_count; i++) {
    if (leaves->tensor[i].flags & ENGINE_TENSOR_DEVICE) {
      return true;
    }
  }
  return false;
}

enum touch { TOUCH_NO, TOUCH_YES, TOUCH_UNKNOWN };

static enum touch call_touches_device(const struct engine_call *call) {
  if (tensors_are_on_device(&call->in) || (call->op->flags & (ENGINE_OP_DEVICE | ENGINE_OP_COLLECTIVE))) {
    return TOUCH_YES;
  }
  for (int i = 0; i < call->in.leaf_count; i++) {
    if (leaf_names_device(&call->in.leaf[i])) {
      return TOUCH_YES;
    }
  }
  return call->in.tensor_count ? TOUCH_NO : TOUCH_UNKNOWN;
}

int engine_call_get_device(const struct engine_call *call) {
  for (int i = 0; i < call->in.tensor_count; i++) {
    if (call->in.tensor[i].flags & ENGINE_TENSOR_DEVICE) {
      return call->in.tensor[i].device_index;
    }
  }
  return -1;
}

static int64_t call_get_numel(const struct engine_call *call) {
  int64_t most = 0;
  for (int i = 0; i < call->in.tensor_count; i++) {
    most = call->in.tensor[i].numel > most ? call->in.tensor[i].numel : most;
  }
  return most;
}

// 1 yes, 0 no, -1 the user's function raised.
static int condition_ask(PyObject *condition, const struct engine_call *call) {
  int token = engine_guard_raise();
  PyObject *py_answer = PyObject_Call(condition, call->args, call->kwargs);
  int yes = py_answer ? PyObject_IsTrue(py_answer) : -1;
  Py_XDECREF(py_answer);
  engine_guard_lower(token);
  return yes;
}

static int module_ask(PyObject *modules) {
  PyObject *path = engine_module_get_path();  // borrowed
  PyObject *py_path = path ? Py_NewRef(path) : PyUnicode_FromString("");
  PyObject *py_answer = py_path ? PyObject_CallOneArg(modules, py_path) : NULL;
  int yes = py_answer ? PyObject_IsTrue(py_answer) : -1;
  Py_XDECREF(py_answer);
  Py_XDECREF(py_path);
  return yes;
}

// Does this tool take this call? An engine_reason, or -1.
static int tool_select(struct engine_tool *tool, struct engine_call *call, bool on_device) {
  if (!on_device && !tool->cpu) {
    return ENGINE_SKIP_CPU;
  }
  if (tool->numel_min > 0 || tool->numel_max < INT64_MAX) {
    int64_t numel = call_get_numel(call);
    if (numel < tool->numel_min || numel > tool->numel_max) {
      return ENGINE_SKIP_NUMEL;
    }
  }
  if (tool->py_modules) {
    int yes = module_ask(tool->py_modules);
    if (yes <= 0) {
      return yes < 0 ? -1 : ENGINE_SKIP_MODULE;
    }
  }
  if (tool->py_condition) {
    int yes = condition_ask(tool->py_condition, call);
    if (yes <= 0) {
      return yes < 0 ? -1 : ENGINE_SKIP_CONDITION;
    }
  }
  if (tool->first < INT64_MAX && !engine_signatures_count(tool->signatures, call, tool->first)) {
    return ENGINE_SKIP_FIRST;
  }
  return ENGINE_APPLIED;
}

// The tools of `mask` that take the call; sets *applied. 0 or -1.
static int call_select(struct engine_call *call, uint32_t mask, bool on_device, uint32_t *applied) {
  *applied = 0;
  for (int slot = 0; mask >> slot; slot++) {
    struct engine_tool *tool = mask >> slot & 1 ? engine_state.tools[slot] : NULL;
    if (!tool) {
      continue;
    }
    int reason = tool_select(tool, call, on_device);
    if (reason < 0) {
      return -1;
    }
    atomic_fetch_add_explicit(&tool->counts[reason], 1, memory_order_relaxed);
    *applied |= reason == ENGINE_APPLIED ? 1u << slot : 0;
  }
  return 0;
}

static unsigned needs_find(uint32_t mask) {
  unsigned needs = 0;
  for (int slot = 0; mask >> slot; slot++) {
    if (mask >> slot & 1) {
      needs |=
          engine_state.tools[slot]->vtable->needs | (engine_state.tools[slot]->py_console ? ENGINE_NEED_LOCATION : 0);
    }
  }
  return needs;
}

// The full console

static int console_tell(struct engine_tool *tool, const char *kind, PyObject *py_event) {
  PyObject *py_done = py_event ? PyObject_CallFunction(tool->py_console, "sO", kind, py_event) : NULL;
  Py_XDECREF(py_event);
  Py_XDECREF(py_done);
  return py_done ? 0 : -1;
}

// "apply" and "skip" are said once per process, kind of tool and operator.
static int console_tell_once(struct engine_op *op, uint32_t mask, bool apply) {
  for (int slot = 0; mask >> slot; slot++) {
    struct engine_tool *tool = mask >> slot & 1 ? engine_state.tools[slot] : NULL;
    uint32_t bit = tool ? 1u << (tool->kind + (apply ? 0 : 16)) : 0;
    if (!tool || !tool->py_console || (op->told & bit)) {
      continue;
    }
    op->told |= bit;
    if (console_tell(tool, apply ? "apply" : "skip", Py_BuildValue("{s:O}", "name", op->py_name)) < 0) {
      return -1;
    }
  }
  return 0;
}

PyObject *engine_call_get_location(const struct engine_call *call) {
  return PyUnicode_FromString(engine_location_get_text(call->location));
}

static int console_tell_forward(struct engine_tool *tool, struct engine_call *call, PyObject *error) {
  PyObject *py_extra = tool->vtable->extra ? tool->vtable->extra(tool, call) : NULL;
  if (PyErr_Occurred()) {
    return -1;
  }
  PyObject *py_event = Py_BuildValue(
      "{s:K,s:O,s:O,s:O,s:O,s:O,s:N,s:N,s:O}", "id", (unsigned long long)call->id, "name", call->op->py_name, "func",
      call->func, "args", call->args, "kwargs", call->kwargs ? call->kwargs : Py_None, "result",
      call->result ? call->result : Py_None, "location", engine_call_get_location(call), "extra",
      py_extra ? py_extra : Py_NewRef(Py_None), "error", error ? error : Py_None);
  return console_tell(tool, "forward", py_event);
}

static PyObject *gradients_describe(PyObject *const *gradients, int count) {
  PyObject *py_tuple = PyTuple_New(count);
  for (int i = 0; py_tuple && i < count; i++) {
    PyTuple_SET_ITEM(py_tuple, i, Py_NewRef(gradients[i] ? gradients[i] : Py_None));
  }
  return py_tuple;
}

int engine_console_tell_backward(struct engine_tool *tool, struct engine_backward *backward) {
  if (!tool->py_console) {
    return 0;
  }
  PyObject *py_extra = tool->vtable->extra_backward ? tool->vtable->extra_backward(tool, backward) : NULL;
  if (PyErr_Occurred()) {
    return -1;
  }
  PyObject *py_event = Py_BuildValue(
      "{s:K,s:O,s:N,s:N,s:s,s:i,s:N}", "id", (unsigned long long)backward->id, "name", backward->op->py_name,
      "grad_outputs", gradients_describe(backward->grad_outputs, backward->grad_output_count), "grad_inputs",
      gradients_describe(backward->grad_inputs, backward->grad_input_count), "location",
      engine_location_get_text(backward->location), "round", (int)backward->round, "extra",
      py_extra ? py_extra : Py_NewRef(Py_None));
  return console_tell(tool, "backward", py_event);
}

// Before and after

static int tools_before(struct engine_call *call, uint32_t mask) {
  for (int i = 0; i < engine_state.count; i++) {
    int slot = engine_state.order[i];
    struct engine_tool *tool = mask >> slot & 1 ? engine_state.tools[slot] : NULL;
    if (tool && tool->vtable->before && tool->vtable->before(tool, call) < 0) {
      return -1;
    }
  }
  return 0;
}

static int tools_after(struct engine_call *call, uint32_t mask, PyObject *error) {
  for (int i = engine_state.count - 1; i >= 0; i--) {
    int slot = engine_state.order[i];
    struct engine_tool *tool = mask >> slot & 1 ? engine_state.tools[slot] : NULL;
    if (!tool) {
      continue;
    }
    if (tool->vtable->after && tool->vtable->after(tool, call) < 0) {
      return -1;
    }
    if (tool->py_console && console_tell_forward(tool, call, error) < 0) {
      return -1;
    }
  }
  return 0;
}

static void versions_read(struct engine_call *call) {
  for (int i = 0; i < call->in.tensor_count; i++) {
    call->in.tensor[i].version = engine_tensor_get_version(call->in.tensor[i].py_tensor);
  }
}

// Collectives do not raise version counters.
static void collective_find_changed(struct engine_call *call) {
  int target = engine_collective_get_target(call->op->name);
  for (int i = 0; target >= 0 && i < call->in.leaf_count; i++) {
    const struct engine_leaf *leaf = &call->in.leaf[i];
    if (leaf->top == target && leaf->tensor >= 0 && leaf->tensor < 64) {
      call->changed |= UINT64_C(1) << leaf->tensor;
    }
  }
}

static void effects_find(struct engine_call *call, bool versions) {
  int outs = call->out.tensor_count < 64 ? call->out.tensor_count : 64;
  int ins = call->in.tensor_count < 64 ? call->in.tensor_count : 64;
  for (int i = 0; i < outs; i++) {
    call->same[i] = -1;
    for (int j = 0; j < ins; j++) {
      if (call->out.tensor[i].py_tensor == call->in.tensor[j].py_tensor) {
        call->same[i] = (int8_t)j;
        break;
      }
    }
  }
  for (int j = 0; versions && j < ins; j++) {
    int64_t before = call->in.tensor[j].version;
    if (before >= 0 && engine_tensor_get_version(call->in.tensor[j].py_tensor) != before) {
      call->changed |= UINT64_C(1) << j;
    }
  }
  if (call->op->flags & ENGINE_OP_COLLECTIVE) {
    collective_find_changed(call);
  }
}

// An operator that writes to its arguments may have changed their shape, and with it the memory that holds their sizes.
static void inputs_refresh(struct engine_call *call) {
  bool inplace = call->op->flags & ENGINE_OP_INPLACE;
  if (!inplace && !call->kwargs) {
    return;
  }
  if (!inplace && !PyDict_GetItemWithError(call->kwargs, torch_names.py_text_out)) {
    py_error_drop();
    return;
  }
  for (int i = 0; i < call->in.tensor_count; i++) {
    struct engine_tensor *tensor = &call->in.tensor[i];
    int64_t version = tensor->version;
    engine_tensor_reset(tensor);
    engine_tensor_read(tensor->py_tensor, tensor);
    tensor->version = version;
  }
}

// Tools that act

struct engine_chain {
  struct engine_call *call;
  uint32_t mask;  // tools of the call
  int at;         // position in engine_state.order of the next one to look at
  int *token;     // of the guard
};

struct failure {
  PyObject *kind, *value, *traceback;
};

static void failure_take(struct failure *failure) {
  PyErr_Fetch(&failure->kind, &failure->value, &failure->traceback);
  PyErr_NormalizeException(&failure->kind, &failure->value, &failure->traceback);
}

PyObject *engine_chain_run_function(struct engine_chain *chain, PyObject *func, PyObject *args, PyObject *kwargs) {
  engine_guard_pause(*chain->token);
  PyObject *py_result = call_plain(func, args, kwargs);
  struct failure failure = {0};
  if (!py_result) {
    PyErr_Fetch(&failure.kind, &failure.value, &failure.traceback);
  }
  *chain->token = engine_guard_resume(*chain->token);
  if (failure.kind) {
    PyErr_Restore(failure.kind, failure.value, failure.traceback);
  }
  return py_result;
}

// A tool further in sees the arguments that the outer one made.
static PyObject *chain_enter(struct engine_chain *chain, struct engine_tool *tool, PyObject *args, PyObject *kwargs) {
  struct engine_call *outer = chain->call;
  if (args == outer->args && kwargs == outer->kwargs) {
    return tool->vtable->call(tool, outer, chain);
  }
  struct engine_call inner;
  memcpy(&inner, outer, offsetof(struct engine_call, in));
  inner.args = args;
  inner.kwargs = kwargs;
  inner.changed = 0;
  memset(inner.data, 0, sizeof inner.data);
  engine_leaves_init(&inner.in);
  engine_leaves_init(&inner.out);
  PyObject *py_result = NULL;
  if (engine_leaves_add_call(&inner.in, args, kwargs) == 0) {
    chain->call = &inner;
    py_result = tool->vtable->call(tool, &inner, chain);
    chain->call = outer;
  }
  engine_leaves_reset(&inner.in);
  engine_leaves_reset(&inner.out);
  return py_result;
}

PyObject *engine_chain_run(struct engine_chain *chain, PyObject *args, PyObject *kwargs) {
  for (int i = chain->at; i < engine_state.count; i++) {
    int slot = engine_state.order[i];
    struct engine_tool *tool = chain->mask >> slot & 1 ? engine_state.tools[slot] : NULL;
    if (tool && tool->vtable->call) {
      int at = chain->at;
      chain->at = i + 1;
      PyObject *py_result = chain_enter(chain, tool, args, kwargs);
      chain->at = at;
      return py_result;
    }
  }
  return engine_chain_run_function(chain, chain->call->func, args, kwargs);
}

static bool mask_acts(uint32_t mask) {
  for (int slot = 0; mask >> slot; slot++) {
    if ((mask >> slot & 1) && engine_state.tools[slot]->vtable->call) {
      return true;
    }
  }
  return false;
}

// Without the tools that act: the call is over.
static uint32_t mask_watch(uint32_t mask) {
  uint32_t watching = 0;
  for (int slot = 0; mask >> slot; slot++) {
    struct engine_tool *tool = mask >> slot & 1 ? engine_state.tools[slot] : NULL;
    watching |= tool && !tool->vtable->call ? 1u << slot : 0;
  }
  return watching;
}

// The operator itself, or what tools do in its place. The guard is up on entry and on return.
static PyObject *call_run(struct engine_call *call, uint32_t mask, int *token, struct failure *failure) {
  PyObject *py_result;
  if (mask_acts(mask)) {
    struct engine_chain chain = {.call = call, .mask = mask, .token = token};
    call->begin_ns = dit_record_get_time();
    py_result = engine_chain_run(&chain, call->args, call->kwargs);
    call->end_ns = dit_record_get_time();
  } else {
    engine_guard_pause(*token);
    call->begin_ns = dit_record_get_time();
    py_result = call_plain(call->func, call->args, call->kwargs);
    call->end_ns = dit_record_get_time();
    if (!py_result) {
      failure_take(failure);
    }
    *token = engine_guard_resume(*token);
  }
  if (!py_result) {
    if (!failure->kind) {
      failure_take(failure);
    }
    call->error = failure->value;
    call->flags |= ENGINE_CALL_FAILED;
  }
  return py_result;
}

// The operator with the tools around it. The guard is up on entry and on return (its token is `*token`); it is never
// raised with an exception pending.
static PyObject *call_apply(struct engine_call *call, uint32_t mask, int *token) {
  struct engine_window_start window = {0};
  struct failure failure = {0};
  unsigned needs = needs_find(mask);
  bool backward = (needs & ENGINE_NEED_BACKWARD) && !(call->flags & ENGINE_CALL_ATEN);
  bool versions = needs & ENGINE_NEED_VERSION;
  call->id = engine_id_next();
  call->location = needs & ENGINE_NEED_LOCATION ? engine_location_find() : 0;
  if (versions) {
    versions_read(call);
  }
  if (console_tell_once(call->op, mask & engine_state.full, true) < 0 || tools_before(call, mask) < 0 ||
      (backward && engine_window_begin(&window, call) < 0)) {
    engine_window_drop(&window);
    return NULL;
  }
  PyObject *py_result = call_run(call, mask, token, &failure);
  call->result = py_result;
  int status = py_result ? engine_leaves_add(&call->out, py_result, "out") : 0;
  inputs_refresh(call);
  effects_find(call, versions);
  status = status < 0 ? status : tools_after(call, mask, failure.value);
  if (status == 0 && backward && py_result) {
    status = engine_window_end(&window, call, mask);
  }
  engine_window_drop(&window);
  if (failure.kind) {
    py_error_drop();  // the operator's own error comes first
    PyErr_Restore(failure.kind, failure.value, failure.traceback);
  } else if (status < 0) {
    Py_CLEAR(py_result);
  }
  return py_result;
}

// A call without any tensor argument: only its result tells whether it was a device operator (default devices below
// us). When the operator fails the guard stays down (`*token` is -1).
static PyObject *call_apply_late(struct engine_call *call, uint32_t mask, int *token) {
  engine_guard_pause(*token);
  call->begin_ns = dit_record_get_time();
  PyObject *py_result = call_plain(call->func, call->args, call->kwargs);
  call->end_ns = dit_record_get_time();
  if (!py_result) {
    *token = -1;
    return NULL;
  }
  *token = engine_guard_resume(*token);
  call->result = py_result;
  uint32_t applied = 0;
  int status = engine_leaves_add(&call->out, py_result, "out");
  status = status < 0 ? status : call_select(call, mask_watch(mask), tensors_are_on_device(&call->out), &applied);
  if (status == 0 && applied) {
    unsigned needs = needs_find(applied);
    call->id = engine_id_next();
    call->location = needs & ENGINE_NEED_LOCATION ? engine_location_find() : 0;
    effects_find(call, false);
    status = console_tell_once(call->op, applied & engine_state.full, true);
    status = status < 0 ? status : tools_before(call, applied);
    status = status < 0 ? status : tools_after(call, applied, NULL);
  }
  if (status < 0) {
    Py_CLEAR(py_result);
  }
  return py_result;
}

PyObject *engine_call_show(struct engine_op *op, PyObject *func, PyObject *args, PyObject *kwargs, uint32_t mask,
                           uint32_t watchers, unsigned flags) {
  struct engine_call call;
  memset(&call, 0, offsetof(struct engine_call, in));
  call.op = op;
  call.func = func;
  call.args = args;
  call.kwargs = kwargs;
  call.step = engine_state.step;
  call.flags = flags | (engine_is_in_backward() ? ENGINE_CALL_RECOMPUTE : 0);
  call.module = engine_module_get();
  call.changed = 0;
  memset(call.data, 0, sizeof call.data);
  engine_leaves_init(&call.in);
  engine_leaves_init(&call.out);
  int token = engine_guard_raise();
  PyObject *py_result = NULL;
  uint32_t applied = 0;
  if (engine_leaves_add_call(&call.in, args, kwargs) == 0) {
    enum touch touch = call_touches_device(&call);
    if (touch == TOUCH_UNKNOWN) {
      py_result = call_apply_late(&call, mask, &token);
    } else if (call_select(&call, mask, touch == TOUCH_YES, &applied) == 0) {
      if (applied) {
        py_result = call_apply(&call, applied, &token);
      } else {
        engine_guard_lower(token);
        py_result = call_plain(func, args, kwargs);
        token = py_result ? engine_guard_raise() : -1;
      }
      uint32_t skipped = watchers & ~applied;
      if (py_result && skipped && touch == TOUCH_YES && console_tell_once(op, skipped, false) < 0) {
        Py_CLEAR(py_result);
      }
    }
  }
  if (token >= 0) {
    engine_guard_lower(token);
  }
  engine_leaves_reset(&call.in);
  engine_leaves_reset(&call.out);
  return py_result;
}

int engine_op_prepare(struct engine_op *op) {
  int status = 0;
  if (engine_environ_changed()) {
    int token = engine_guard_raise();
    status = engine_environ_refresh();
    engine_guard_lower(token);
  }
  engine_state.seen++;
  if (status == 0 && op->generation != engine_state.generation) {
    int token = engine_guard_raise();
    status = op_decide(op);
    engine_guard_lower(token);
  }
  return status;
}

static PyObject *call_handle(PyObject *func, PyObject *args, PyObject *kwargs, bool aten) {
  uint32_t active = aten ? engine_state.active_aten : engine_state.active_torch;
  if (!active || engine_guard_is_up() || engine_state.child) {
    return call_plain(func, args, kwargs);
  }
  func = engine_hook_get_function(func);  // torch finds replaced methods by name
  struct engine_op *op = engine_op_find(func, aten);
  if (!op) {
    return NULL;
  }
  // Collectives are shown by their hooks (op_tools/collectives.py), which know when their results are there.
  if (op->flags & (ENGINE_OP_NEVER | ENGINE_OP_COLLECTIVE)) {
    return call_plain(func, args, kwargs);
  }
  if ((op->flags & ENGINE_OP_QUESTION) && PyTuple_GET_SIZE(args) < 2 && !(kwargs && PyDict_GET_SIZE(kwargs))) {
    return call_plain(func, args, kwargs);
  }
  if (engine_op_prepare(op) < 0) {
    return NULL;
  }
  active = aten ? engine_state.active_aten : engine_state.active_torch;
  uint32_t mask = op->tools & active, watchers = engine_state.full & active;
  if (!mask && !watchers) {
    return call_plain(func, args, kwargs);
  }
  return engine_call_show(op, func, args, kwargs, mask, watchers, aten ? ENGINE_CALL_ATEN : 0);
}

// The mode object

static PyObject *mode_call(PyObject *const *words, Py_ssize_t count, bool aten) {
  if (count < 2 || count > 4) {
    return PyErr_Format(PyExc_TypeError, "a mode takes (func, types, args, kwargs), got %zd arguments", count);
  }
  PyObject *args = count > 2 ? words[2] : NULL;
  PyObject *kwargs = count > 3 && words[3] != Py_None ? words[3] : NULL;
  PyObject *py_args = args && PyTuple_Check(args) ? Py_NewRef(args) : args ? PySequence_Tuple(args) : PyTuple_New(0);
  PyObject *py_result = py_args ? call_handle(words[0], py_args, kwargs, aten) : NULL;
  Py_XDECREF(py_args);
  return py_result;
}

static PyObject *mode_torch_function(PyObject *self, PyObject *const *words, Py_ssize_t count) {
  (void)self;
  return mode_call(words, count, false);
}

static PyObject *mode_torch_dispatch(PyObject *self, PyObject *const *words, Py_ssize_t count) {
  (void)self;
  return mode_call(words, count, true);
}

#define FAST(function) (PyCFunction)(void (*)(void)) function
static PyMethodDef mode_methods[] = {
    {"__torch_function__", FAST(mode_torch_function), METH_FASTCALL,
     "__torch_function__(function: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] "
     "| None = None, /) -> Any\n\nCalled by torch for every function."},
    {"__torch_dispatch__", FAST(mode_torch_dispatch), METH_FASTCALL, "Called by torch for every ATen operator."},
    {NULL, NULL, 0, NULL},
};

static PyTypeObject mode_type = {
    .ob_base = {PyObject_HEAD_INIT(NULL) 0},
    .tp_name = "ditorch._C.Mode",
    .tp_basicsize = sizeof(PyObject),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_doc = "The tools' torch-function and dispatch mode.",
    .tp_methods = mode_methods,
};

// A mode that does nothing but call: what torch's own dispatch to a C mode costs. The yardstick of bench/step.py.
static PyObject *empty_torch_function(PyObject *self, PyObject *const *words, Py_ssize_t count) {
  (void)self;
  return PyObject_Call(words[0], words[2], count > 3 && words[3] != Py_None ? words[3] : NULL);
}

static PyMethodDef empty_methods[] = {
    {"__torch_function__", FAST(empty_torch_function), METH_FASTCALL,
     "__torch_function__(function: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] "
     "| None = None, /) -> Any\n\nCalled by torch for every function."},
    {NULL, NULL, 0, NULL},
};

static PyTypeObject empty_type = {
    .ob_base = {PyObject_HEAD_INIT(NULL) 0},
    .tp_name = "ditorch._C.EmptyMode",
    .tp_basicsize = sizeof(PyObject),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_doc = "EmptyMode()\n\nA torch-function mode that only passes calls on, for comparison.",
    .tp_new = PyType_GenericNew,
    .tp_methods = empty_methods,
};

int engine_mode_add_types(PyObject *module) {
  return PyType_Ready(&empty_type) < 0 ? -1 : PyModule_AddObjectRef(module, "EmptyMode", (PyObject *)&empty_type);
}

PyObject *engine_mode_get(void) {
  static PyObject *py_mode;
  if (!py_mode && PyType_Ready(&mode_type) == 0) {
    py_mode = mode_type.tp_alloc(&mode_type, 0);
  }
  return py_mode;
}

// Fork

static void child_begin(void) {
  engine_state.child = true;
  engine_state.active_torch = engine_state.active_aten = engine_state.active_hooked = engine_state.full = 0;
}

void engine_fork_watch(void) {
  static bool watched;
  if (!watched) {
    watched = pthread_atfork(NULL, NULL, child_begin) == 0;
  }
}

// Windows: hooks on the autograd nodes that a call made, for the tools that want its backward.
//
// A hook is a C callable that owns its window. It is called before its node runs with (grad_outputs) when an output of
// the call leaves there, and after it with (grad_inputs, grad_outputs) when an input's gradient does.
#include "engine/backward.h"

#include <string.h>

#include "dit/record.h"
#include "engine/internal.h"

struct hook {
  PyObject ob_base;
  vectorcallfunc vectorcall;
  struct backward_window *window;  // counted
  bool exit, frontier;
  int output_count, input_count;
  struct backward_pair pair[];  // of outputs, then of inputs
};

// Windows

void backward_window_retain(struct backward_window *window) {
  window->references++;
}

void backward_window_release(struct backward_window *window) {
  if (--window->references > 0) {
    return;
  }
  PyObject *kind, *value, *traceback;
  PyErr_Fetch(&kind, &value, &traceback);
  for (int i = 0; i < window->keeper_count; i++) {
    struct engine_tool *tool = window->keeper[i].tool;
    if (tool->vtable->release && window->keeper[i].data) {
      tool->vtable->release(tool, window->keeper[i].data);
    }
    Py_DECREF((PyObject *)tool);
  }
  PyErr_Restore(kind, value, traceback);
  PyMem_Free(window);
}

static bool slot_is_before(int a, int b) {
  return engine_get_tool(a)->vtable->order < engine_get_tool(b)->vtable->order;
}

// The slots of `tools` that want the backward, in the order of `before`.
static int slots_sort(uint32_t tools, int slots[ENGINE_MAX_TOOLS]) {
  int count = 0;
  for (int slot = 0; slot < ENGINE_MAX_TOOLS && tools >> slot; slot++) {
    const struct engine_tool *tool = tools >> slot & 1 ? engine_get_tool(slot) : NULL;
    if (!tool || !(tool->vtable->needs & ENGINE_NEED_BACKWARD)) {
      continue;
    }
    int at = count++;
    for (; at > 0 && slot_is_before(slot, slots[at - 1]); at--) {
      slots[at] = slots[at - 1];
    }
    slots[at] = slot;
  }
  return count;
}

// Ask the tools what they keep. 0, or -1 with an exception.
static int keepers_ask(struct backward_window *window, struct engine_call *call, const int *slots, int count) {
  for (int i = 0; i < count; i++) {
    struct engine_tool *tool = engine_get_tool(slots[i]);
    void *data = NULL;
    if (tool->vtable->keep) {
      data = tool->vtable->keep(tool, call);
      if (!data && PyErr_Occurred()) {
        return -1;
      }
      if (!data) {
        continue;
      }
    }
    Py_INCREF((PyObject *)tool);
    window->keeper[window->keeper_count++] = (struct backward_keeper){.tool = tool, .data = data};
    window->begins |= tool->vtable->backward_begin != NULL;
    window->sums |= !(tool->vtable->needs & ENGINE_NEED_SHAPES_ONLY) || tool->py_console;
  }
  return 0;
}

static bool twins_exist(const struct engine_window_start *start) {
  for (int i = 0; i < start->edge_count; i++) {
    if (start->edges[i].first != start->edges[i].input) {
      return true;
    }
  }
  return false;
}

static struct backward_window *window_create(const struct backward_walk *walk, struct engine_call *call,
                                             uint32_t tools) {
  int slots[ENGINE_MAX_TOOLS];
  int count = slots_sort(tools, slots);
  int inputs = call->in.tensor_count + walk->base_count;
  bool twins = twins_exist(walk->start);
  size_t head = sizeof(struct backward_window) + (size_t)count * sizeof(struct backward_keeper);
  struct backward_window *window = PyMem_Malloc(head + (twins ? (size_t)inputs * sizeof(int32_t) : 0));
  if (!window) {
    (void)PyErr_NoMemory();
    return NULL;
  }
  *window = (struct backward_window){
      .references = 1,
      .op = call->op,
      .id = call->id,
      .location = call->location,
      .module = call->module,
      .flags = call->flags,
      .done_task = -1,
      .output_count = walk->output_count,
      .input_count = inputs,
  };
  for (int i = 0; i < walk->count; i++) {
    window->frontier_count += walk->node[i].frontier;
  }
  if (twins) {
    int32_t *twin = (int32_t *)(void *)((char *)window + head);
    for (int i = 0; i < inputs; i++) {
      twin[i] = i;
    }
    for (int i = 0; i < walk->start->edge_count; i++) {
      twin[walk->start->edges[i].input] = walk->start->edges[i].first;
    }
    window->twin = twin;
  }
  if (keepers_ask(window, call, slots, count) < 0) {
    backward_window_release(window);
    return NULL;
  }
  return window;
}

// Hooks

static int outputs_put(const struct hook *hook, struct backward_round *round, PyObject *gradients) {
  for (int i = 0; i < hook->output_count; i++) {
    const struct backward_pair *pair = &hook->pair[i];
    PyObject *gradient = pair->at < PyTuple_GET_SIZE(gradients) ? PyTuple_GET_ITEM(gradients, pair->at) : Py_None;
    if (gradient != Py_None) {
      backward_round_put_output(round, pair->to, gradient);
    }
  }
  return 0;
}

static int inputs_put(const struct hook *hook, struct backward_round *round, PyObject *gradients) {
  for (int i = 0; i < hook->input_count; i++) {
    const struct backward_pair *pair = &hook->pair[hook->output_count + i];
    PyObject *gradient = pair->at < PyTuple_GET_SIZE(gradients) ? PyTuple_GET_ITEM(gradients, pair->at) : Py_None;
    if (gradient != Py_None && backward_round_put_input(round, pair->to, gradient) < 0) {
      return -1;
    }
  }
  return 0;
}

// (grad_outputs) before the node runs, (grad_inputs, grad_outputs) after it.
static PyObject *hook_call(PyObject *self, PyObject *const *words, size_t flags, PyObject *names) {
  (void)names;
  int64_t now = dit_record_get_time();
  struct hook *hook = (struct hook *)(void *)self;
  Py_ssize_t count = PyVectorcall_NARGS(flags);
  PyObject *outputs = count > 0 ? words[count - 1] : NULL;
  if (count < 1 || count > 2 || !PyTuple_Check(outputs) || !PyTuple_Check(words[0])) {
    PyErr_SetString(PyExc_TypeError, "an autograd hook of the tools takes one or two tuples of gradients");
    return NULL;
  }
  // In a forked child the parent's tools are off.
  struct backward_round *round = engine_state.child ? NULL : backward_round_get(hook->window);
  if (!round) {
    return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
  }
  (void)outputs_put(hook, round, outputs);
  int status = backward_round_begin(round, now);
  if (status == 0 && count == 2) {
    status = inputs_put(hook, round, words[0]);
    status = status < 0 ? status : backward_round_leave(round, now);
  }
  return status < 0 ? NULL : Py_NewRef(Py_None);
}

static void hook_dealloc(PyObject *self) {
  backward_window_release(((struct hook *)(void *)self)->window);
  PyObject_Free(self);
}

PyTypeObject backward_hook_type = {
    .ob_base = {PyObject_HEAD_INIT(NULL) 0},
    .tp_name = "ditorch._C.BackwardHook",
    .tp_basicsize = sizeof(struct hook),
    .tp_vectorcall_offset = offsetof(struct hook, vectorcall),
    .tp_call = PyVectorcall_Call,
    .tp_dealloc = hook_dealloc,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_doc = "Tells the tools of one node of a call's backward.",
};

static int pairs_count(const struct backward_pairs *pairs, int node) {
  int count = 0;
  for (int i = 0; i < pairs->count; i++) {
    count += pairs->pair[i].node == node;
  }
  return count;
}

static void pairs_copy(const struct backward_pairs *pairs, int node, struct backward_pair *out) {
  for (int i = 0; i < pairs->count; i++) {
    if (pairs->pair[i].node == node) {
      *out++ = pairs->pair[i];
    }
  }
}

static PyObject *hook_create(const struct backward_walk *walk, int index, struct backward_window *window) {
  int outputs = pairs_count(&walk->outputs, index), inputs = pairs_count(&walk->inputs, index);
  struct hook *hook = PyObject_Malloc(sizeof *hook + (size_t)(outputs + inputs) * sizeof(struct backward_pair));
  if (!hook) {
    return PyErr_NoMemory();
  }
  PyObject_Init((PyObject *)hook, &backward_hook_type);
  hook->vectorcall = hook_call;
  hook->window = window;
  hook->exit = walk->node[index].exit;
  hook->frontier = walk->node[index].frontier;
  hook->output_count = outputs;
  hook->input_count = inputs;
  pairs_copy(&walk->outputs, index, hook->pair);
  pairs_copy(&walk->inputs, index, hook->pair + outputs);
  backward_window_retain(window);
  return (PyObject *)hook;
}

static int node_hook(const struct backward_walk *walk, int index, struct backward_window *window) {
  const struct backward_node *node = &walk->node[index];
  PyObject *py_hook = hook_create(walk, index, window);
  int status = py_hook ? 0 : -1;
  // The one after the node has the gradients of the outputs, too: enough when nobody is to be told before.
  if (status == 0 && node->exit && (window->begins || !node->frontier)) {
    PyObject *py_handle = node->type.register_prehook(node->py_node, py_hook);
    status = py_handle ? 0 : -1;
    Py_XDECREF(py_handle);
  }
  if (status == 0 && node->frontier) {
    PyObject *py_handle = node->type.register_hook(node->py_node, py_hook);
    status = py_handle ? 0 : -1;
    Py_XDECREF(py_handle);
  }
  Py_XDECREF(py_hook);
  return status;
}

// The engine's door

int backward_load(void) {
  static bool loaded;
  if (!loaded) {
    loaded = PyType_Ready(&backward_hook_type) == 0 && backward_hooks_load() == 0 && backward_round_load() == 0 &&
             backward_torch_load() == 0;
  }
  return loaded ? 0 : -1;
}

// A subclass's own __torch_function__ must not see that we look.
static PyObject *subclass_silence(const struct engine_leaves *first, const struct engine_leaves *second) {
  unsigned flags = 0;
  for (int i = 0; i < first->tensor_count; i++) {
    flags |= first->tensor[i].flags;
  }
  for (int i = 0; second && i < second->tensor_count; i++) {
    flags |= second->tensor[i].flags;
  }
  return flags & ENGINE_TENSOR_SUBCLASS ? engine_dispatch_disable() : NULL;
}

static int edge_take(struct engine_window_start *start, PyObject *tensor, int input) {
  PyObject *py_node = engine_tensor_get(tensor, engine_torch.grad_fn);
  if (!py_node) {
    return -1;
  }
  struct engine_edge edge = {.py_node = py_node == Py_None ? NULL : py_node, .input = input, .first = input};
  start->edges[start->edge_count++] = edge;
  if (!edge.py_node) {
    Py_DECREF(py_node);
    return 0;
  }
  PyObject *py_number = engine_tensor_get(tensor, engine_torch.output_nr);
  if (!py_number) {
    return -1;
  }
  start->edges[start->edge_count - 1].output_nr = (uint32_t)PyLong_AsUnsignedLong(py_number);
  Py_DECREF(py_number);
  return 0;
}

int engine_window_begin(struct engine_window_start *start, struct engine_call *call) {
  start->wanted = false;
  start->edge_count = 0;
  start->edges = start->inline_edges;
  int wanted = 0;
  for (int i = 0; i < call->in.tensor_count; i++) {
    wanted += (call->in.tensor[i].flags & ENGINE_TENSOR_GRAD) != 0;
  }
  if (wanted == 0) {
    return 0;
  }
  int enabled = backward_load() < 0 ? -1 : backward_grad_is_enabled();
  if (enabled <= 0) {
    return enabled;
  }
  if (wanted > ENGINE_INLINE_EDGES && !(start->edges = PyMem_Malloc((size_t)wanted * sizeof *start->edges))) {
    start->edges = start->inline_edges;
    (void)PyErr_NoMemory();
    return -1;
  }
  start->wanted = true;
  int status = 0;
  PyObject *py_disabled = subclass_silence(&call->in, NULL);
  for (int i = 0; i < call->in.tensor_count && status == 0; i++) {
    if (call->in.tensor[i].flags & ENGINE_TENSOR_GRAD) {
      status = edge_take(start, call->in.tensor[i].py_tensor, i);
    }
  }
  engine_dispatch_enable(py_disabled);
  // The last thing: reading the node of a view may make nodes.
  return status < 0 ? status : backward_sequence_get(&start->sequence);
}

static void twins_find(struct engine_window_start *start, const struct engine_call *call) {
  for (int i = 0; i < start->edge_count; i++) {
    struct engine_edge *edge = &start->edges[i];
    edge->first = edge->input;
    for (int j = 0; j < i && edge->first == edge->input; j++) {
      const struct engine_edge *other = &start->edges[j];
      bool same = other->py_node == edge->py_node && other->output_nr == edge->output_nr &&
                  (edge->py_node || call->in.tensor[other->input].py_tensor == call->in.tensor[edge->input].py_tensor);
      edge->first = same ? other->first : edge->first;
    }
  }
}

static int window_open(struct engine_window_start *start, struct engine_call *call, uint32_t tools) {
  struct backward_walk walk;
  twins_find(start, call);
  PyObject *py_disabled = subclass_silence(&call->in, &call->out);
  int status = backward_walk_run(&walk, start, call);
  engine_dispatch_enable(py_disabled);
  struct backward_window *window = NULL;
  if (status == 0 && walk.count > 0) {
    window = window_create(&walk, call, tools);
    status = window ? 0 : -1;
  }
  for (int i = 0; window && window->keeper_count && i < walk.count && status == 0; i++) {
    if (walk.node[i].exit || walk.node[i].frontier) {
      status = node_hook(&walk, i, window);
    }
  }
  if (window) {
    backward_window_release(window);
  }
  backward_walk_reset(&walk);
  return status;
}

int engine_window_end(struct engine_window_start *start, struct engine_call *call, uint32_t tools) {
  uint64_t now = 0;
  int status = 0;
  if (start->wanted && call->result) {
    status = backward_sequence_get(&now);
    if (status == 0 && now != start->sequence) {
      status = window_open(start, call, tools);
    }
  }
  engine_window_drop(start);
  return status;
}

void engine_window_drop(struct engine_window_start *start) {
  for (int i = 0; i < start->edge_count; i++) {
    Py_XDECREF(start->edges[i].py_node);
  }
  if (start->edges && start->edges != start->inline_edges) {
    PyMem_Free(start->edges);
  }
  start->edges = NULL;
  start->edge_count = 0;
  start->wanted = false;
}

// Which autograd nodes belong to a call, and which of their gradients are those of its outputs and inputs.
//
// Nodes are numbered by their thread in the order of creation. A node is the call's own when an output reaches it
// without passing an input's edge and its number is not below the one taken before the call. Numbers of other threads
// mean nothing here: the edges of the inputs are therefore tested first.
//
//   output tensors --exit nodes--> own nodes --frontier nodes--> edges of the inputs, taken before the call
//
// Changed in place: the tensor's node is a new one, its old edge was taken before. Changed through a view: autograd
// rewrites the base's history (CopySlices, whose first edge is the base's old one), so the base is an output and an
// input, too.
#include <string.h>

#include "engine/backward.h"

#define TABLE_FROM 32  // nodes; below, a linear search is faster

// Growing arrays

// Make room for one more item; `fixed` is the inline storage that is never freed.
static int array_grow(void **items, int count, int *capacity, size_t size, void *fixed, int fixed_capacity) {
  if (!*items) {
    *items = fixed;
    *capacity = fixed_capacity;
  }
  if (count < *capacity) {
    return 0;
  }
  int wanted = *capacity * 4;
  void *grown = PyMem_Malloc((size_t)wanted * size);
  if (!grown) {
    (void)PyErr_NoMemory();
    return -1;
  }
  memcpy(grown, *items, (size_t)count * size);
  if (*items != fixed) {
    PyMem_Free(*items);
  }
  *items = grown;
  *capacity = wanted;
  return 0;
}

static int pairs_add(struct backward_pairs *pairs, int node, int at, int to) {
  void *items = pairs->pair;
  if (array_grow(&items, pairs->count, &pairs->capacity, sizeof *pairs->pair, pairs->inline_pair, 8) < 0) {
    return -1;
  }
  pairs->pair = items;
  pairs->pair[pairs->count++] = (struct backward_pair){.node = node, .at = at, .to = to};
  return 0;
}

// Takes a reference of its own.
static int output_add(struct backward_walk *walk, PyObject *tensor) {
  void *items = walk->py_output;
  if (array_grow(&items, walk->output_count, &walk->output_capacity, sizeof *walk->py_output, walk->py_inline_output,
                 4) < 0) {
    return -1;
  }
  walk->py_output = items;
  walk->py_output[walk->output_count++] = Py_NewRef(tensor);
  return 0;
}

// The set of nodes

static int table_slot(const struct backward_walk *walk, const PyObject *node) {
  uint32_t at = (uint32_t)(((uintptr_t)node >> 4) * UINT64_C(0x9E3779B97F4A7C15) >> 32);
  for (;; at++) {
    int slot = (int)(at & (uint32_t)(walk->table_size - 1));
    if (walk->table[slot] < 0 || walk->node[walk->table[slot]].py_node == node) {
      return slot;
    }
  }
}

static int table_build(struct backward_walk *walk) {
  int size = TABLE_FROM;
  while (size < walk->count * 4) {
    size *= 2;
  }
  int32_t *table = PyMem_Malloc((size_t)size * sizeof *table);
  if (!table) {
    (void)PyErr_NoMemory();
    return -1;
  }
  memset(table, 0xFF, (size_t)size * sizeof *table);
  PyMem_Free(walk->table);
  walk->table = table;
  walk->table_size = size;
  for (int i = 0; i < walk->count; i++) {
    table[table_slot(walk, walk->node[i].py_node)] = i;
  }
  return 0;
}

static int node_find(const struct backward_walk *walk, const PyObject *node) {
  if (walk->table) {
    return walk->table[table_slot(walk, node)];
  }
  for (int i = 0; i < walk->count; i++) {
    if (walk->node[i].py_node == node) {
      return i;
    }
  }
  return -1;
}

// Takes a reference of its own. The index, or -1.
static int node_add(struct backward_walk *walk, PyObject *node, const struct backward_node_type *type) {
  void *items = walk->node;
  if (array_grow(&items, walk->count, &walk->capacity, sizeof *walk->node, walk->inline_node, 4) < 0) {
    return -1;
  }
  walk->node = items;
  walk->node[walk->count] = (struct backward_node){.py_node = Py_NewRef(node), .type = *type};
  int index = walk->count++;
  if (walk->table && walk->count * 2 <= walk->table_size) {
    walk->table[table_slot(walk, node)] = index;
  } else if (walk->count >= TABLE_FROM && table_build(walk) < 0) {
    return -1;
  }
  return index;
}

// Edges of the inputs

static bool node_is_inputs(const struct backward_walk *walk, const PyObject *node) {
  for (int i = 0; i < walk->start->edge_count; i++) {
    if (walk->start->edges[i].py_node == node) {
      return true;
    }
  }
  return false;
}

// The first input with this edge, -1 for none. Arguments mostly come in the order of the edges.
static int edge_find(struct backward_walk *walk, PyObject *node, uint32_t number) {
  const struct engine_edge *edges = walk->start->edges;
  int count = walk->start->edge_count, found = -1;
  for (int i = 0, at = walk->cursor; i < count && found < 0; i++, at = at + 1 < count ? at + 1 : 0) {
    found = edges[at].py_node == node && edges[at].output_nr == number ? at : -1;
  }
  if (found >= 0) {
    walk->cursor = found + 1 < count ? found + 1 : 0;
    found = edges[found].first;
  }
  return found;
}

// The same for a leaf, by the tensor that the node accumulates into. -1: none; -2: an exception.
static int leaf_find(struct backward_walk *walk, PyObject *node, const PyGetSetDef *variable) {
  PyObject *py_tensor = variable->get(node, variable->closure);
  if (!py_tensor) {
    return -2;
  }
  const struct engine_edge *edges = walk->start->edges;
  int count = walk->start->edge_count, found = -1;
  for (int i = 0, at = walk->cursor; i < count && found < 0; i++, at = at + 1 < count ? at + 1 : 0) {
    found = !edges[at].py_node && walk->call->in.tensor[edges[at].input].py_tensor == py_tensor ? at : -1;
  }
  Py_DECREF(py_tensor);
  if (found >= 0) {
    walk->cursor = found + 1 < count ? found + 1 : 0;
    found = edges[found].first;
  }
  return found;
}

// Outputs

static bool output_is_known(const struct backward_walk *walk, const PyObject *tensor) {
  for (int i = 0; i < walk->output_count; i++) {
    if (walk->py_output[i] == tensor) {
      return true;
    }
  }
  return false;
}

// The node before the call of input `index`, NULL for a leaf and for one that did not require grad.
static PyObject *input_get_node(const struct backward_walk *walk, int index) {
  for (int i = 0; i < walk->start->edge_count; i++) {
    if (walk->start->edges[i].input == index) {
      return walk->start->edges[i].py_node;
    }
  }
  return NULL;
}

// 1 when the input has another node than before the call, 0 when not, -1 on failure.
static int input_is_changed(const struct backward_walk *walk, int index) {
  const struct engine_call *call = walk->call;
  bool possible = (call->op->flags & ENGINE_OP_INPLACE) || index >= 64 || (call->changed >> index & 1);
  for (int i = 0; i < call->out.tensor_count && !possible; i++) {
    possible = call->out.tensor[i].py_tensor == call->in.tensor[index].py_tensor;
  }
  if (!possible) {
    return 0;
  }
  PyObject *py_node = engine_tensor_get(call->in.tensor[index].py_tensor, engine_torch.grad_fn);
  bool changed = py_node && py_node != Py_None && py_node != input_get_node(walk, index);
  Py_XDECREF(py_node);
  return py_node ? changed : -1;
}

static int bases_add(struct backward_walk *walk, const bool *changed) {
  walk->base_at = walk->output_count;
  for (int i = 0; i < walk->call->in.tensor_count; i++) {
    if (!changed[i]) {
      continue;
    }
    PyObject *py_base = engine_tensor_get(walk->call->in.tensor[i].py_tensor, engine_torch.base);
    int status = py_base ? 0 : -1;
    if (py_base && py_base != Py_None && !output_is_known(walk, py_base)) {
      status = output_add(walk, py_base);
      walk->base_count++;
    }
    Py_XDECREF(py_base);
    if (status < 0) {
      return -1;
    }
  }
  return 0;
}

static bool call_may_change(const struct engine_call *call) {
  bool may = (call->op->flags & ENGINE_OP_INPLACE) || call->changed || call->in.tensor_count > 64 ||
             call->out.tensor_count > 64;
  for (int i = 0; i < call->out.tensor_count && i < 64 && !may; i++) {
    may = call->same[i] >= 0;
  }
  return may;
}

static int changed_add(struct backward_walk *walk) {
  const struct engine_call *call = walk->call;
  bool fixed[ENGINE_INLINE_LEAVES] = {false};
  bool *changed = fixed;
  if (call->in.tensor_count > ENGINE_INLINE_LEAVES && !(changed = PyMem_Calloc((size_t)call->in.tensor_count, 1))) {
    (void)PyErr_NoMemory();
    return -1;
  }
  int status = 0;
  for (int i = 0; i < call->in.tensor_count && status == 0; i++) {
    int answer = input_is_changed(walk, i);
    changed[i] = answer > 0;
    status = answer < 0 ? -1 : 0;
    if (changed[i] && !output_is_known(walk, call->in.tensor[i].py_tensor)) {
      status = output_add(walk, call->in.tensor[i].py_tensor);
    }
  }
  status = status < 0 ? status : bases_add(walk, changed);
  if (changed != fixed) {
    PyMem_Free(changed);
  }
  return status;
}

static int outputs_collect(struct backward_walk *walk) {
  const struct engine_call *call = walk->call;
  for (int i = 0; i < call->out.tensor_count; i++) {
    if (output_add(walk, call->out.tensor[i].py_tensor) < 0) {
      return -1;
    }
  }
  walk->base_at = walk->output_count;
  return call_may_change(call) ? changed_add(walk) : 0;
}

// Exits

static int exit_add(struct backward_walk *walk, PyObject *node, int output) {
  struct backward_node_type storage;
  int index = node_find(walk, node);
  if (index < 0) {
    const struct backward_node_type *type = backward_node_get_type(node, &storage);
    if (!type) {
      return 0;
    }
    uint64_t sequence = backward_node_get_sequence(node, type);
    if (sequence == UINT64_MAX) {
      return PyErr_Occurred() ? -1 : 0;
    }
    if (sequence < walk->start->sequence) {
      return 0;
    }
    index = node_add(walk, node, type);
    if (index < 0) {
      return -1;
    }
    walk->node[index].exit = true;
  }
  PyObject *py_number = engine_tensor_get(walk->py_output[output], engine_torch.output_nr);
  long number = py_number ? PyLong_AsLong(py_number) : -1;
  Py_XDECREF(py_number);
  return number < 0 ? -1 : pairs_add(&walk->outputs, index, (int)number, output);
}

static int exits_find(struct backward_walk *walk) {
  for (int i = 0; i < walk->output_count; i++) {
    PyObject *py_node = engine_tensor_get(walk->py_output[i], engine_torch.grad_fn);
    int status = py_node ? 0 : -1;
    // A result that is an input has the input's node: another call's.
    if (py_node && py_node != Py_None && !node_is_inputs(walk, py_node)) {
      status = exit_add(walk, py_node, i);
    }
    Py_XDECREF(py_node);
    if (status < 0) {
      return -1;
    }
  }
  return 0;
}

// From the exits to the inputs

static int slot_match(struct backward_walk *walk, int index, int slot, int input) {
  walk->node[index].frontier = true;
  return pairs_add(&walk->inputs, index, slot, input);
}

// Autocast keeps the cast of a leaf for the calls that follow: they share one node, and what leaves that node is the
// sum over all of them. So the gradient of such an input is taken where the call's own nodes meet the cast, in the
// dtype of the cast. The input, -1: no such cast, -2: an exception.
static int cast_find(struct backward_walk *walk, PyObject *node, const struct backward_node_type *type) {
  PyObject *py_next = type->next_functions->get(node, type->next_functions->closure);
  bool fits = py_next && PyTuple_Check(py_next) && PyTuple_GET_SIZE(py_next) > 0;
  PyObject *next = fits ? PyTuple_GET_ITEM(PyTuple_GET_ITEM(py_next, 0), 0) : Py_None;
  struct backward_node_type storage;
  const struct backward_node_type *leaf = next == Py_None ? NULL : backward_node_get_type(next, &storage);
  int input = !py_next ? -2 : -1;
  if (leaf && leaf->kind == BACKWARD_NODE_ACCUMULATE && backward_autocast_is_enabled()) {
    input = leaf_find(walk, next, leaf->variable);
  }
  Py_XDECREF(py_next);
  return input;
}

// One edge of an own node.
static int slot_visit(struct backward_walk *walk, int index, int slot, PyObject *next, uint32_t number) {
  int input = edge_find(walk, next, number);
  if (input >= 0) {
    return slot_match(walk, index, slot, input);
  }
  struct backward_node_type storage;
  const struct backward_node_type *type = backward_node_get_type(next, &storage);
  if (!type) {
    return 0;
  }
  if (type->kind == BACKWARD_NODE_ACCUMULATE) {
    input = leaf_find(walk, next, type->variable);
    return input >= 0 ? slot_match(walk, index, slot, input) : input == -2 ? -1 : 0;
  }
  if (type->kind == BACKWARD_NODE_CAST && (input = cast_find(walk, next, type)) != -1) {
    return input >= 0 ? slot_match(walk, index, slot, input) : -1;
  }
  if (node_is_inputs(walk, next) || node_find(walk, next) >= 0) {
    return 0;
  }
  uint64_t sequence = backward_node_get_sequence(next, type);
  if (sequence == UINT64_MAX && PyErr_Occurred()) {
    return -1;
  }
  bool own = sequence != UINT64_MAX && sequence >= walk->start->sequence;
  return own && node_add(walk, next, type) < 0 ? -1 : 0;
}

static int node_visit(struct backward_walk *walk, int index) {
  struct backward_node *node = &walk->node[index];
  PyObject *py_next = node->type.next_functions->get(node->py_node, node->type.next_functions->closure);
  node->py_next = py_next;
  if (!py_next || !PyTuple_Check(py_next)) {
    return -1;
  }
  Py_ssize_t count = PyTuple_GET_SIZE(py_next);
  for (Py_ssize_t i = 0; i < count; i++) {
    PyObject *pair = PyTuple_GET_ITEM(py_next, i), *next = PyTuple_GET_ITEM(pair, 0);
    if (next == Py_None) {
      continue;
    }
    unsigned long number = PyLong_AsUnsignedLong(PyTuple_GET_ITEM(pair, 1));
    if (slot_visit(walk, index, (int)i, next, (uint32_t)number) < 0) {
      return -1;
    }
  }
  return 0;
}

// The old edge of a changed view's base: the first edge of the last own CopySlices on the base's history.
static int base_match(struct backward_walk *walk, int base) {
  int index = -1;
  for (int i = 0; i < walk->outputs.count; i++) {
    index = walk->outputs.pair[i].to == walk->base_at + base ? walk->outputs.pair[i].node : index;
  }
  while (index >= 0 && walk->node[index].type.kind == BACKWARD_NODE_COPY_SLICES &&
         PyTuple_GET_SIZE(walk->node[index].py_next) > 0) {
    PyObject *next = PyTuple_GET_ITEM(PyTuple_GET_ITEM(walk->node[index].py_next, 0), 0);
    int further = next == Py_None ? -1 : node_find(walk, next);
    if (further < 0) {
      bool known = next == Py_None;
      for (int i = 0; i < walk->inputs.count && !known; i++) {
        known = walk->inputs.pair[i].node == index && walk->inputs.pair[i].at == 0;
      }
      return known ? 0 : slot_match(walk, index, 0, walk->call->in.tensor_count + base);
    }
    index = further;
  }
  return 0;
}

int backward_walk_run(struct backward_walk *walk, const struct engine_window_start *start,
                      const struct engine_call *call) {
  memset(walk, 0, offsetof(struct backward_walk, inline_node));
  walk->start = start;
  walk->call = call;
  if (outputs_collect(walk) < 0 || exits_find(walk) < 0) {
    return -1;
  }
  for (int i = 0; i < walk->count; i++) {
    if (node_visit(walk, i) < 0) {
      return -1;
    }
  }
  for (int i = 0; i < walk->base_count; i++) {
    if (base_match(walk, i) < 0) {
      return -1;
    }
  }
  // No input takes part (only tensors that were no arguments do): the round ends when the exits have run.
  for (int i = 0; i < walk->count && walk->inputs.count == 0; i++) {
    walk->node[i].frontier = walk->node[i].exit;
  }
  return 0;
}

void backward_walk_reset(struct backward_walk *walk) {
  for (int i = 0; i < walk->count; i++) {
    Py_XDECREF(walk->node[i].py_next);
    Py_XDECREF(walk->node[i].py_node);
  }
  for (int i = 0; i < walk->output_count; i++) {
    Py_DECREF(walk->py_output[i]);
  }
  if (walk->node != walk->inline_node) {
    PyMem_Free(walk->node);
  }
  if (walk->py_output != walk->py_inline_output) {
    PyMem_Free(walk->py_output);
  }
  if (walk->outputs.pair != walk->outputs.inline_pair) {
    PyMem_Free(walk->outputs.pair);
  }
  if (walk->inputs.pair != walk->inputs.inline_pair) {
    PyMem_Free(walk->inputs.pair);
  }
  PyMem_Free(walk->table);
}

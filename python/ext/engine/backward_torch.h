/// What the backward side asks of PyTorch: autograd nodes, graph tasks, grad mode.
///
/// Nodes are handled as Python objects; of one node at most one object lives at a time, so two held objects are the
/// same node exactly when they are the same pointer. All functions need the GIL; failure is -1 or NULL with an
/// exception.
#ifndef DIT_EXT_BACKWARD_TORCH_H
#define DIT_EXT_BACKWARD_TORCH_H

#include "engine/engine.h"

enum backward_node_kind {
  BACKWARD_NODE_PLAIN,
  BACKWARD_NODE_ACCUMULATE,   ///< the end of the graph at a leaf
  BACKWARD_NODE_CAST,         ///< to another dtype
  BACKWARD_NODE_COPY_SLICES,  ///< an in-place change through a view; its first edge is the base's
};

/// C functions of one node type, called without a lookup.
struct backward_node_type {
  PyTypeObject *type;
  PyCFunction sequence_nr, register_hook, register_prehook;
  const PyGetSetDef *next_functions;
  const PyGetSetDef *variable;  ///< of AccumulateGrad, else NULL
  enum backward_node_kind kind;
};

/// Look everything up; once. 0 or -1.
DIT_NODISCARD int backward_torch_load(void);
/// The functions of a node's type, in `*storage`. NULL without an exception for what is no node as we know them: such a
/// node is nobody's.
const struct backward_node_type *backward_node_get_type(PyObject *node, struct backward_node_type *storage);
/// UINT64_MAX for nodes without a number (AccumulateGrad) and on failure.
uint64_t backward_node_get_sequence(PyObject *node, const struct backward_node_type *type);

/// The next sequence number of this thread. 0 or -1.
DIT_NODISCARD int backward_sequence_get(uint64_t *sequence);
/// 1 while this thread records operations, 0 when not, -1 with an exception.
int backward_grad_is_enabled(void);
/// Is some autocast on in this thread?
bool backward_autocast_is_enabled(void);
/// The running graph task of this thread, -1 for none; -2 with an exception.
int64_t backward_task_get_id(void);
/// Have `callable` called at the end of the running graph task, and released when the task dies. 0 or -1.
DIT_NODISCARD int backward_task_add_callback(PyObject *callable);
/// left + right without a graph; new reference.
PyObject *backward_gradients_add(PyObject *left, PyObject *right);

#endif

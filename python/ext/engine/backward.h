/// The backward side of one call: what the walk finds, what the window keeps, what the hooks tell.
///
///   engine_window_end -> backward_walk.c: the nodes of the call -> backward.c: a window and its hooks on those nodes
///   the autograd engine -> the hooks -> backward_round.c: gradients of one round, handed to the tools
///
/// Ownership goes one way: node -> hook -> window -> tools and their data. Nothing below a node refers back to a node,
/// an output or an input, so the graph's own life decides: when it dies, run or not, all of this is released without
/// gc.
#ifndef DIT_EXT_BACKWARD_H
#define DIT_EXT_BACKWARD_H

#include "engine/backward_torch.h"
#include "engine/engine.h"

// The nodes of a call

/// One gradient: place `at` in a node's tuple, place `to` in the call's list.
struct backward_pair {
  int32_t node, at, to;
};

struct backward_node {
  PyObject *py_node;  ///< owned
  PyObject *py_next;  ///< owned: tuple of (node, number), keeps the next nodes' objects alive
  struct backward_node_type type;
  bool exit;      ///< an output leaves here: told before it runs
  bool frontier;  ///< an input's gradient leaves here: told after it ran
};

struct backward_pairs {
  struct backward_pair *pair;
  int count, capacity;
  struct backward_pair inline_pair[8];
};

struct backward_walk {
  const struct engine_window_start *start;
  const struct engine_call *call;
  struct backward_node *node;  ///< exits first
  int count, capacity;
  PyObject **py_output;  ///< owned: tensors whose gradients are the call's grad_outputs
  int output_count, output_capacity;
  int base_at, base_count;  ///< the last of them: bases of views that were changed
  struct backward_pairs outputs, inputs;
  int cursor;      ///< where the search for an input's edge begins
  int32_t *table;  ///< hash table of nodes, once they are many
  int table_size;
  struct backward_node inline_node[4];
  PyObject *py_inline_output[4];
};

/// Find the nodes that the call made and that its outputs reach. 0 or -1; the walk must be reset in both cases.
DIT_NODISCARD int backward_walk_run(struct backward_walk *walk, const struct engine_window_start *start,
                                    const struct engine_call *call);
void backward_walk_reset(struct backward_walk *walk);

// Hooks

/// What sits on a node; owns its window.
extern PyTypeObject backward_hook_type;
DIT_NODISCARD int backward_hooks_load(void);
/// Types, and what torch offers; once. 0 or -1.
DIT_NODISCARD int backward_load(void);

// The window

struct backward_keeper {
  struct engine_tool *tool;  ///< owned
  void *data;                ///< of the tool, released through it
};

struct backward_round;

/// One call, as long as its nodes live. Counted under the GIL: by its hooks and open rounds.
struct backward_window {
  int references;
  struct engine_op *op;
  uint64_t id;
  uint32_t location, module;
  unsigned flags;
  int32_t rounds;               ///< begun so far
  int64_t done_task;            ///< of the round that was told last
  struct backward_round *open;  ///< of graph tasks that are running
  int output_count, input_count;
  int frontier_count;
  bool sums;            ///< some tool wants the values of gradients
  bool begins;          ///< some tool has a backward_begin
  const int32_t *twin;  ///< per input: the first input that is the same tensor; NULL when all differ
  int keeper_count;
  struct backward_keeper keeper[];
};

void backward_window_retain(struct backward_window *window);
void backward_window_release(struct backward_window *window);

// rounds: one graph task passing through one window

/// The round of the running graph task; begun when there is none. NULL without an exception: this round is over.
struct backward_round *backward_round_get(struct backward_window *window);
void backward_round_put_output(struct backward_round *round, int to, PyObject *gradient);
DIT_NODISCARD int backward_round_put_input(struct backward_round *round, int to, PyObject *gradient);
/// Tell the tools, the first time. 0 or -1.
DIT_NODISCARD int backward_round_begin(struct backward_round *round, int64_t now);
/// One frontier node has run; the last one ends the round. 0 or -1.
DIT_NODISCARD int backward_round_leave(struct backward_round *round, int64_t now);
DIT_NODISCARD int backward_round_load(void);

#endif

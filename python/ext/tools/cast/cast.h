/// The dtype-cast tool: what its files share.
///
/// cast.c         the tool: options, the maps of the operators, one call from start to end
/// cast/copies.c  casting tensors, writing back into the originals
/// cast/effects.c what the operator wrote to, what its result shows
/// cast/results.c casting results back
/// cast/dtypes.c  which dtypes the results should have
/// cast/ledger.c  what was done: numbers per operator, log, the full console's facts
///
/// One call is a `cast_job` on the stack. Originals are written to only after the operator has succeeded, so a call can
/// be given up and run as the program wrote it at any moment before. Needs the GIL and the engine's guard.
#ifndef DIT_EXT_CAST_H
#define DIT_EXT_CAST_H

#include "engine/engine.h"

#define CAST_MOST_PAIRS 16
#define CAST_INLINE 16

/// One entry of a map.
struct cast_pair {
  int16_t from, to;      ///< enum dit_dtype
  PyObject *py_to;       ///< borrowed for ever: torch.dtype
  PyObject *py_convert;  ///< borrowed for ever: torch.Tensor.float and the like; NULL: .to(dtype)
};

/// Why a call was run as it is.
enum cast_left {
  CAST_LEFT_NOTHING,    ///< no tensor of a dtype of the map
  CAST_LEFT_DTYPE,      ///< the call itself names a dtype
  CAST_LEFT_INDEX,      ///< indexing without tensors: a view, or a copy
  CAST_LEFT_UNUSUAL,    ///< a tensor that cannot be cast as it is: subclass, sparse, wrapped, shared memory
  CAST_LEFT_VIEW,       ///< the result shows the memory of an argument
  CAST_LEFT_NO_TENSOR,  ///< the operator answers a question
  CAST_LEFT_REFUSED,    ///< it does not run in the other dtype
  CAST_LEFTS,
};

/// One operator of this tool: its map, and what was done. Lives as long as the tool.
struct cast_op {
  struct engine_op *op;
  uint64_t generation;  ///< of the engine, when the map was asked for
  bool wanted;          ///< the operator is cast at all
  int pair_count;
  struct cast_pair pair[CAST_MOST_PAIRS];
  PyObject *py_config;  ///< owned: the map's text
  /// Consecutive calls that had to be run again as they are; after some the operator is left alone.
  int in_vain[CAST_LEFTS];
  uint64_t calls;    ///< cast
  uint64_t casts;    ///< tensors on the way in
  uint64_t backs;    ///< results cast back
  uint64_t written;  ///< arguments written back
  uint64_t bytes;    ///< of all tensors made
  uint64_t left[CAST_LEFTS];
  int64_t op_ns;    ///< in the operator itself
  int64_t tool_ns;  ///< around it
};

struct cast_state {
  PyObject *py_plan;  ///< owned: name -> (text, {torch.dtype: torch.dtype}) or None
  struct cast_op **ops;
  size_t op_capacity, op_count;
  int64_t spent_ns;  ///< cast_dtypes_get_spent() at the start
  struct {
    uint64_t id;
    PyObject *py_facts;  ///< owned
  } last;                ///< for the full console
};

/// One tensor argument.
struct cast_item {
  PyObject *py_copy;             ///< owned by the first item of the same tensor; borrowed by the others; NULL: not cast
  const struct cast_pair *pair;  ///< NULL: stays
  int64_t version;               ///< of the copy before the operator; -1 unknown
  int first;                     ///< the first item with the same tensor
  bool changed;                  ///< the operator wrote to the copy
  bool silent;                   ///< without moving the version counter: writing back does not move it either
};

struct cast_job {
  struct engine_tool *tool;
  struct engine_call *call;
  struct cast_op *op;
  struct cast_item *item;  ///< one per tensor of call->in: inline_item or the heap
  int count;
  int casts, backs, written;
  uint64_t bytes;
  PyObject *py_results;  ///< owned: list of (index, from, to) for the console; NULL without one
  struct cast_item inline_item[CAST_INLINE];
};

// cast/copies.c

/// The copies of all items that have a pair. 0 or -1.
DIT_NODISCARD int cast_copies_make(struct cast_job *job);
/// Write what changed back into the arguments. 0 or -1.
DIT_NODISCARD int cast_copies_write_back(struct cast_job *job);
void cast_copies_drop(struct cast_job *job);

// cast/effects.c

/// Which copies the operator wrote to. 0 or -1.
DIT_NODISCARD int cast_copies_look(struct cast_job *job);
/// True when the result of the call shows the memory of a copy without being it, or when arguments that share memory
/// were written to: such a call must be run as it is.
bool cast_copies_are_shown(const struct cast_job *job, const struct engine_leaves *out);

// cast/results.c

/// The result as the program should get it; new reference or NULL. `out` are its leaves.
PyObject *cast_result_finish(struct cast_job *job, PyObject *result, const struct engine_leaves *out);

// cast/ledger.c

/// The tool's entry for an operator; NULL with an exception.
struct cast_op *cast_op_find(struct cast_state *state, struct engine_op *op);
/// All numbers back to zero, maps to be asked for again.
void cast_ops_reset(struct cast_state *state);
void cast_ops_destroy(struct cast_state *state);
/// Add a finished call: numbers, log record, console facts.
void cast_job_tell(struct cast_job *job, int64_t op_ns, int64_t tool_ns);
PyObject *cast_describe(struct engine_tool *tool);
PyObject *cast_extra(struct engine_tool *tool, struct engine_call *call);

#endif

/// What the files of the engine share among themselves.
#ifndef DIT_EXT_ENGINE_INTERNAL_H
#define DIT_EXT_ENGINE_INTERNAL_H

#include "engine/engine.h"

/// Stands for everything that is no operator.
extern struct engine_op engine_op_none;
/// The operator of a function object (getters included); NULL with an exception only when memory is exhausted.
struct engine_op *engine_op_find(PyObject *func, bool aten);
/// A new operator of this name, outside the table of functions; takes the reference. NULL with an exception.
struct engine_op *engine_op_create(PyObject *py_name);
/// ENGINE_OP_VIEW, _TRANSFER, _RANDOM, _UNINITIALISED, _COLLECTIVE of an operator's name.
unsigned engine_class_find(const char *name);
/// The argument that a function of torch.distributed writes to: 0, 1 (gather); -1 none, or another operator.
int engine_collective_get_target(const char *name);
/// Walk a call's arguments: keys "args.<i>" and "kwargs.<name>". 0 or -1.
DIT_NODISCARD int engine_leaves_add_call(struct engine_leaves *leaves, PyObject *args, PyObject *kwargs);

/// Interned "<file>:<line> <function>: <source>" of the innermost frame outside torch and the tools; 0 when there is
/// none.
uint32_t engine_location_find(void);
/// Its text, borrowed for the life of the process; "" for 0.
const char *engine_location_get_text(uint32_t location);

/// Interned path of the innermost nn.Module that is being called on this thread; 0 for none.
uint32_t engine_module_get(void);
/// The same as a str, borrowed; NULL for none.
PyObject *engine_module_get_path(void);

/// Seen signatures and how often.
struct engine_signatures;
struct engine_signatures *engine_signatures_create(void);
void engine_signatures_destroy(struct engine_signatures *signatures);
/// Count one call of this operator with these tensors; true while not more than `limit` came before.
bool engine_signatures_count(struct engine_signatures *signatures, const struct engine_call *call, int64_t limit);

/// Slots of tools that are active and due, by level.
struct engine_state {
  struct engine_tool *tools[ENGINE_MAX_TOOLS];  ///< owned
  uint32_t active_torch, active_aten;           ///< active and due
  uint32_t active_hooked;                       ///< the same, reached through functions that were replaced (hook.c)
  uint32_t full;                                ///< tools with a console callback
  uint64_t generation;                          ///< of the decisions by name
  uint64_t seen;                                ///< operator calls that reached the engine while a tool was active
  int64_t step;
  uint64_t environ_seen;
  int order[ENGINE_MAX_TOOLS];  ///< slots in the order of `before`
  int count;
  bool child;  ///< in a forked child: everything is off
};
extern struct engine_state engine_state;

/// The operator with the tools of `mask` (slots) around it; `watchers` have a full console that is told of skipped
/// calls.
PyObject *engine_call_show(struct engine_op *op, PyObject *func, PyObject *args, PyObject *kwargs, uint32_t mask,
                           uint32_t watchers, unsigned flags);
/// Options that changed since the last call take effect, and `op` knows which tools want it. 0 or -1.
DIT_NODISCARD int engine_op_prepare(struct engine_op *op);
int engine_hook_add_types(PyObject *module);
/// What a hook wraps; any other object itself. Borrowed.
PyObject *engine_hook_get_function(PyObject *func);
/// The started tools that watch this thread, by slot.
uint32_t engine_mode_get_tools(void);

extern _Atomic uint64_t engine_environ_generation;
/// A variable of the tools changed since the last refresh: one relaxed load.
static inline bool engine_environ_changed(void) {
  return atomic_load_explicit(&engine_environ_generation, memory_order_relaxed) != engine_state.environ_seen;
}
DIT_NODISCARD int engine_environ_refresh(void);

/// Lower the guard for the operator, and raise it again afterwards; cheaper than lower and raise.
void engine_guard_pause(int token);
int engine_guard_resume(int token);
/// Switch torch-function dispatch off (modes and subclasses); new reference for engine_dispatch_enable, which takes it.
PyObject *engine_dispatch_disable(void);
void engine_dispatch_enable(PyObject *py_disabled);
/// Take all modes off this thread's dispatch stack: a list, topmost first, or NULL (no exception). The other function
/// puts them back and takes the list; it keeps a pending exception.
PyObject *engine_dispatch_modes_take(void);
void engine_dispatch_modes_return(PyObject *py_modes);
/// A functorch transform is active: tensors may be wrappers.
bool engine_guard_has_functorch(void);

/// Recompute the masks and the order after a tool changed.
void engine_state_update(void);

/// The mode object of all threads (borrowed).
PyObject *engine_mode_get(void);
/// Its place on this thread's stack of one level; every enter needs its leave on the same thread.
DIT_NODISCARD int engine_mode_enter(bool aten);
DIT_NODISCARD int engine_mode_leave(bool aten);
/// Switch everything off in forked children (once).
void engine_fork_watch(void);
/// The full console's view of a backward event; nothing when the tool has no callback. 0 or -1.
DIT_NODISCARD int engine_console_tell_backward(struct engine_tool *tool, struct engine_backward *backward);
/// Calls below are inside the backward pass on this thread.
bool engine_is_in_backward(void);

extern PyTypeObject engine_tool_type;
int engine_tool_add_types(PyObject *module);
int engine_mode_add_types(PyObject *module);

#endif

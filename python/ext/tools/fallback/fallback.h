/// The fallback tool: what its files share.
///
/// fallback.c         the tool: which calls are its business, the order of things in one call, the log
/// fallback/run.c     the operator on the CPU: twins, arguments, autocast, the retry in float32
/// fallback/transfer.c  which calls of to, type, copy_, reshape ... convert or copy
/// fallback/change.c  which arguments the operator changed
/// fallback/result.c  back to the device: changed arguments, results, what must stay a view
/// fallback/random.c  operators that draw random numbers
/// fallback/table.c   what is known of operators by name; the ledger
///
/// One call is a `fallback_run` on the stack. Needs the GIL and the engine's guard.
#ifndef DIT_EXT_FALLBACK_H
#define DIT_EXT_FALLBACK_H

#include "engine/engine.h"

#define FALLBACK_INLINE 16  ///< tensors of one call, before the heap is used

/// Why a call ran on the device although the tool applies to it.
#define FALLBACK_REASON_LIST(X)                    \
  X(VIEW, "view")                                  \
  X(TRANSFER, "transfer")                          \
  X(UNINITIALISED, "uninitialised")                \
  X(COLLECTIVE, "collective")                      \
  X(BOOKKEEPING, "bookkeeping")                    \
  X(VALUELESS, "tensor without memory of its own") \
  X(TRACED, "traced")                              \
  X(GENERATOR, "generator")                        \
  X(MISSING, "no operator of the CPU")             \
  X(ALIAS, "result is a view of an argument")      \
  X(SPARSE, "sparse gradient")

enum fallback_reason {
  FALLBACK_APPLIES,
#define FALLBACK_REASON_ENUM(suffix, text) FALLBACK_##suffix,
  FALLBACK_REASON_LIST(FALLBACK_REASON_ENUM)
#undef FALLBACK_REASON_ENUM
      FALLBACK_REASONS,
};

/// What is known of an operator by its name.
enum fallback_trait {
  FALLBACK_RANDOM = 1 << 0,      ///< may draw from the default generator
  FALLBACK_INDEXING = 1 << 1,    ///< __getitem__: a view unless the index has a tensor or a list
  FALLBACK_STATISTICS = 1 << 2,  ///< writes running statistics without telling the version counter
  FALLBACK_LENGTHS = 1 << 3,     ///< its second result is on the CPU on every device
  // What the autocast of devices does with it, where the CPU's differs:
  FALLBACK_FLOAT = 1 << 4,   ///< runs in float32
  FALLBACK_WIDEST = 1 << 5,  ///< runs in the widest dtype of its arguments
  FALLBACK_LOWER = 1 << 6,   ///< runs in autocast's dtype
  FALLBACK_PLAIN = 1 << 7,   ///< runs in the dtypes that it gets
  FALLBACK_DRAWS = 1 << 8,   ///< draws random numbers whatever its other arguments are
  FALLBACK_COPIES = 1 << 9,  ///< converts or copies where its arguments ask for it (transfer.c)
};

/// One operator of the ledger; lives as long as the tool.
struct fallback_row {
  struct engine_op *op;
  enum fallback_reason reason;  ///< by name
  unsigned traits;
  PyObject *py_writes;  ///< owned: arguments that the schemas say are written, {name: position}; NULL until looked up
  uint64_t count, retries, failed;
  uint64_t exempt[FALLBACK_REASONS];
  int64_t down, up;  ///< bytes
  int64_t down_ns, cpu_ns, up_ns;
};

struct fallback_state {
  struct fallback_row **rows;  ///< hash table by operator
  size_t capacity, count;
};

/// The row of an operator, made when it is new; NULL with an exception when memory is exhausted.
struct fallback_row *fallback_row_find(struct fallback_state *state, struct engine_op *op);
void fallback_rows_reset(struct fallback_state *state);
PyObject *fallback_describe(struct engine_tool *tool);

/// What a call of to, type, type_as ... asks for; owned references, NULL where nothing was said.
struct fallback_transfer {
  PyObject *py_device, *py_dtype;
  bool copies;  ///< copy=, memory_format=: perhaps a copy in the same dtype
};

/// Does this call of an operator with FALLBACK_COPIES compute? Else why it stays on the device.
enum fallback_reason fallback_transfer_find(const struct fallback_row *row, const struct engine_call *call,
                                            struct fallback_transfer *transfer);
void fallback_transfer_reset(struct fallback_transfer *transfer);

/// One call.
struct fallback_run {
  struct engine_tool *tool;
  struct engine_call *call;
  struct engine_chain *chain;
  struct fallback_row *row;
  struct fallback_transfer transfer;
  PyObject **twins;               ///< owned references, in the order of call->in.tensor; a CPU tensor is its own
  int64_t *versions;              ///< of the twins before the run
  PyObject *py_args, *py_kwargs;  ///< owned: the arguments on the CPU
  PyObject *py_result;            ///< owned: the result on the CPU
  PyObject *py_device;            ///< owned: where results go
  bool stays;                     ///< the caller named the CPU: results stay
  bool cast;                      ///< the run that succeeded was the one in float32
  uint64_t sequence;              ///< of autograd nodes, before the run
  int64_t down, up, down_ns, cpu_ns, up_ns;
  PyObject *inline_twins[FALLBACK_INLINE];
  int64_t inline_versions[FALLBACK_INLINE];
};

/// What the tool needs of torch; once. 0 or -1.
DIT_NODISCARD int fallback_torch_load(void);
/// Run the operator on the CPU: py_result, twins, versions. 0; -1 with the program's exception; a fallback_reason: a
/// tensor has no values, or a generator cannot be replaced: the device must do it.
DIT_NODISCARD int fallback_run_forward(struct fallback_run *run);
/// False for a tensor of the CPU, which is its own twin.
bool fallback_twin_is_copy(const struct fallback_run *run, int index);
/// Sets changed[i] for twins that the operator wrote to, and *any. 0 or -1.
DIT_NODISCARD int fallback_changes_find(const struct fallback_run *run, bool *changed, bool *any);
/// Copy changed arguments back and give the result its place on the device. New reference, or NULL with an exception;
/// NULL without one: nothing was computed and the device must do it.
PyObject *fallback_run_finish(struct fallback_run *run);
void fallback_run_reset(struct fallback_run *run);

// Random numbers

struct fallback_random {
  PyObject *py_source;  ///< owned: the device's generator; NULL: nothing to do
  PyObject *py_saved;   ///< owned: state of the CPU's default generator; NULL when a generator was passed
  PyObject *py_seeded;  ///< owned: the state that the run began with
  PyObject *py_state;   ///< owned: the device generator's state after one draw
  bool locked;
  bool always;  ///< the device's generator advances even when no number was needed
};

/// The CPU's default generator (or the generator among the arguments, replaced in run->py_args and py_kwargs) starts
/// from the device generator's state. 0; -1 with an exception; 1: the device must do it (a generator of the CPU, which
/// it will refuse, or one of an unknown kind).
DIT_NODISCARD int fallback_random_begin(struct fallback_run *run, struct fallback_random *random);
/// Put the CPU's generator back; advance the device's if numbers were drawn. Keeps a pending exception. 0 or -1.
DIT_NODISCARD int fallback_random_end(struct fallback_random *random);

#endif

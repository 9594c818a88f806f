/// OpOverflowCheck's parts: reading (overflow/scan.c, overflow/call.c, overflow/backward.c, overflow/device.c), memory
/// that nobody wrote (overflow/unwritten.c, overflow/effect.c), judging and telling (overflow/finding.c).
///
/// A call (or its backward) becomes an event: the flags of what went in and what came out. Host memory gives an event
/// at once; on a CUDA device the flags lie in slots, and events wait in order until the slots are read. An event whose
/// output is finite is nothing. The others are judged: who made it (producer), who only passed it on (propagator), what
/// is meant to be so (allowed).
#ifndef DIT_EXT_TOOLS_OVERFLOW_H
#define DIT_EXT_TOOLS_OVERFLOW_H

#include "dit/helper.h"
#include "dit/numerics.h"
#include "engine/engine.h"
#include "tools/device.h"

#define OVERFLOW_DIMS 8      ///< of a tensor that a finding shows
#define OVERFLOW_TENSORS 64  ///< of one side of a call that a finding shows; all are checked
#define OVERFLOW_FINDINGS 4096

/// Beside DIT_NONFINITE_NAN and DIT_NONFINITE_INF.
enum { OVERFLOW_UNKNOWN = 4, OVERFLOW_BAD = DIT_NONFINITE_NAN | DIT_NONFINITE_INF };

enum overflow_kind { OVERFLOW_FORWARD, OVERFLOW_BACKWARD };
enum overflow_verdict { OVERFLOW_PRODUCER, OVERFLOW_PROPAGATOR, OVERFLOW_ALLOWED, OVERFLOW_VERDICTS };
enum overflow_reason {
  OVERFLOW_NEW,       ///< producer: nothing non-finite went in
  OVERFLOW_FROM_INF,  ///< producer: NaN out of infinities
  OVERFLOW_JUNK,      ///< producer: read memory that nobody wrote
  OVERFLOW_PASSED,    ///< propagator
  OVERFLOW_ORPHAN,    ///< propagator, and nobody watched was seen to make it: reported once
  OVERFLOW_CONSTANT,  ///< allowed: a non-finite number is among the arguments
  OVERFLOW_LISTED,    ///< allowed: by the list
  OVERFLOW_MASK,      ///< allowed: -Inf alone, in and out
  OVERFLOW_SCALER,    ///< allowed: a gradient scaler looked at the gradients afterwards
  OVERFLOW_CARRIED,   ///< allowed: memory that nobody wrote was copied, or written in part
};

enum overflow_role {
  OVERFLOW_IN,
  OVERFLOW_IN_BEFORE,  ///< an input that the call overwrote, as it was before: flags, no statistics
  OVERFLOW_OUT,
  OVERFLOW_IN_AFTER,  ///< the same input after the call
};

/// What an operator does with memory (overflow/effect.c).
enum overflow_effect {
  OVERFLOW_COMPUTES,
  OVERFLOW_FILLS,      ///< writes all of its first argument and reads nothing of it
  OVERFLOW_PATCHES,    ///< writes a part of its first argument
  OVERFLOW_MOVES,      ///< returns values of its arguments
  OVERFLOW_TURNS,      ///< changes where a tensor looks: nothing is written
  OVERFLOW_RESIZES,    ///< likewise, and what comes in addition is uninitialised memory
  OVERFLOW_HANDS_OUT,  ///< uninitialised memory
  OVERFLOW_HIDES,      ///< may write to any argument: collectives, fused optimizers, operators of others
};
enum overflow_effect overflow_effect_find(const struct engine_op *op);
/// Is every NaN and every infinity of its arguments one in its result?
bool overflow_op_passes_all(const struct engine_op *op);

/// How much of a tensor was never written.
enum overflow_coverage {
  OVERFLOW_WRITTEN,
  OVERFLOW_PARTLY,     ///< some of it, or it is not known
  OVERFLOW_UNWRITTEN,  ///< all of it
  OVERFLOW_UNREAD,     ///< no matter: the call reads nothing of it
};

/// What is in the slot of a tensor.
enum overflow_reading {
  OVERFLOW_READ,          ///< flags, and statistics where they are wanted
  OVERFLOW_READ_RESULT,   ///< of a result: flags, and statistics if some result was bad
  OVERFLOW_READ_WATCHED,  ///< of an input: the same
  OVERFLOW_READ_LAZILY,   ///< statistics if the results were bad, else nothing
  OVERFLOW_READ_FLAGS,    ///< flags alone
};

/// A tensor of an event.
struct overflow_meta {
  int64_t numel;
  int64_t sizes[OVERFLOW_DIMS];
  int32_t ndim;
  int32_t slot;  ///< on a device: where its flags (or statistics) will be; -1 for none
  int16_t dtype;
  int16_t index;     ///< among the tensors of its side
  uint8_t role;      ///< enum overflow_role
  uint8_t flags;     ///< DIT_NONFINITE_*, OVERFLOW_UNKNOWN
  uint8_t coverage;  ///< enum overflow_coverage
  uint8_t reading;   ///< on a device: enum overflow_reading
};

/// The same as findings show it.
struct overflow_tensor {
  struct overflow_meta meta;
  bool has_stats;
  struct dit_tensor_stats stats;
};

/// One call or one backward of a call.
struct overflow_event {
  struct engine_op *op;
  uint64_t id;
  int64_t step;
  int32_t round;
  uint32_t location, module;
  uint8_t kind;            ///< enum overflow_kind
  uint8_t in_flags;        ///< of all inputs; of grad_outputs
  uint8_t out_flags;       ///< of all outputs and changed inputs; of grad_inputs
  uint8_t junk_flags;      ///< of tensors that nobody wrote
  bool partly_junk;        ///< a tensor that is not finite may be unwritten in parts
  uint8_t constant_flags;  ///< of the numbers among the arguments
  uint8_t forward_flags;   ///< of a backward's forward call
  int in_count, out_count;
  struct overflow_tensor *tensor;  ///< in_count, then out_count; NULL until asked for with `fill`
  /// Fill `tensor` (PyMem) and the counts, with statistics; NULL when it is there already. Called at most once.
  void (*fill)(struct overflow_event *event);
  const void *source;                       ///< for `fill`
  PyObject *func, *args, *kwargs, *result;  ///< borrowed while the call is at hand; NULL later
};

/// What is known of an operator by name. One per operator that was met.
struct overflow_op {
  struct overflow_op *next;
  struct engine_op *op;
  uint8_t allowed;  ///< flags that the list lets pass
  bool asked;
  bool inplace;     ///< its name says that it overwrites its first argument
  bool mutates;     ///< was seen to change an input although its name does not say so
  bool scaler;      ///< the check of a gradient scaler
  bool rescales;    ///< sets the scale of one
  bool passes_all;  ///< overflow_op_passes_all
  uint8_t effect;   ///< enum overflow_effect
};

/// Shared by the events of a call and of its backward.
struct overflow_kept {
  int references;
  uint8_t flags;      ///< of the forward's inputs and outputs, once known
  PyObject *py_held;  ///< owned; what `hold` made of the forward's arguments, or NULL
};

struct overflow_finding;
struct overflow_batch;
struct overflow_region;

/// Memory that nobody wrote.
struct overflow_unwritten {
  struct overflow_region **region;  ///< oldest first
  struct engine_span *home;         ///< of each: what every call looks through
  int count;
  int64_t dropped;                ///< regions that were forgotten because there were too many
  bool unversioned;               ///< level "aten": counters are raised after the calls that are seen
  PyObject *py_revive, *py_free;  ///< of torch.UntypedStorage; NULL until needed
};

struct overflow_state {
  struct overflow_op *ops[256];
  struct overflow_finding *first, *last;  ///< in order of appearance
  struct overflow_finding *held;          ///< of the backward, until a gradient scaler had its chance
  int finding_count;
  struct overflow_batch *batches;   ///< per device
  struct overflow_pending *recent;  ///< borrowed: the event committed last, while it is not judged
  struct overflow_pending *latest;  ///< borrowed: likewise, of either direction
  uint64_t recent_id;               ///< of that event
  uint8_t recent_flags;             ///< of its inputs and outputs, once judged
  struct overflow_unwritten unwritten;
  struct engine_modules modules;
  PyObject *py_allow;   ///< name -> flags that pass, or NULL
  PyObject *py_report;  ///< called with each new finding; with `at_once` also when one is held back. Or NULL
  PyObject *py_scaler;  ///< has the program a gradient scaler at work? Or NULL
  PyObject *py_excuse;  ///< called when those that are held back turn out to be expected, or NULL
  PyObject *py_flags;   ///< list of tensors -> flags, for devices without a helper, or NULL
  PyObject *py_stats;   ///< tensor -> dict, likewise
  PyObject *py_hold;    ///< (args, kwargs) of a forward -> what its backward hands to `report`, or NULL
  int64_t every;        ///< read the slots at least so often (calls)
  bool stats;           ///< numbers with every finding
  bool backward;        ///< check the gradients too
  bool log;             ///< write findings to the log
  bool deferred;        ///< slots for host memory too, as on a device
  bool at_once;         ///< findings are saved, or end the program
  bool scaler_seen, producer_seen, orphan_seen;
  bool excused;           ///< findings were, since the scale was looked at
  bool scale_spent;       ///< it is 1 or below: overflows are not the scaler's any more
  int64_t inf_step;       ///< step of the last operator that made infinities; -1 for none
  int64_t excused_step;   ///< the last in which a gradient scaler met some; -1 for none
  int64_t searched_step;  ///< the last in which the program was searched for one; -1 for none
  int64_t counts[2][OVERFLOW_VERDICTS];
  int64_t checked, unchecked, reads, dropped, scaled;
};

// overflow/finding.c

struct overflow_op *overflow_op_find(struct overflow_state *state, struct engine_op *op);
/// Judge an event with bad outputs and tell. 0, or -1 when the report raised.
DIT_NODISCARD int overflow_judge(struct engine_tool *tool, struct overflow_event *event);
/// A gradient scaler looked at the gradients: what was held back is expected.
void overflow_excuse(struct overflow_state *state);
/// A gradient scaler has set its scale, the first argument of `call`. 0 or -1.
DIT_NODISCARD int overflow_rescale(struct overflow_state *state, const struct engine_call *call);
/// Tell what was held back. 0 or -1.
DIT_NODISCARD int overflow_release_held(struct engine_tool *tool);
void overflow_findings_clear(struct overflow_state *state);
PyObject *overflow_findings_describe(struct overflow_state *state);
/// Shape and type; no flags, no statistics.
void overflow_meta_set(struct overflow_meta *out, const struct engine_tensor *tensor, enum overflow_role role,
                       int index);
/// Can elements of this type be NaN or infinite?
bool overflow_can_be_bad(const struct engine_tensor *tensor);

// overflow/device.c

/// The batch of a site; NULL when no helper can serve it.
struct overflow_batch *overflow_batch_get(struct overflow_state *state, const struct tools_site *site);
/// Make room for `count` more tensors, by reading what waits. 0 or -1.
DIT_NODISCARD int overflow_batch_reserve(struct engine_tool *tool, struct overflow_batch *batch, int count);
/// An event under way, on the site's stream.
struct overflow_pending;
struct overflow_pending *overflow_pending_create(struct overflow_batch *batch, const struct tools_site *site,
                                                 int capacity);
/// Room for `capacity` tensors, before the commit; the pending may move.
struct overflow_pending *overflow_pending_grow(struct overflow_pending *pending, int capacity);
void overflow_pending_destroy(struct overflow_state *state, struct overflow_pending *pending);  ///< NULL allowed
/// A tensor of which nothing can be known.
void overflow_pending_add_unknown(struct overflow_pending *pending, const struct engine_tensor *tensor,
                                  enum overflow_role role, int index);
struct overflow_event *overflow_pending_get_event(struct overflow_pending *pending);
/// Tensors of one launch, on the stack of whoever collects them: other threads may work on the same batch meanwhile.
struct overflow_launch {
  struct dit_tensor_view few[2 * DIT_HELPER_BATCH], *more;  ///< `more`: PyMem, once there are many
  int tensor_few[2 * DIT_HELPER_BATCH], *tensor_more;       ///< index among the pending's tensors
  int count, capacity;
  bool lazy;  ///< inputs need not be looked at when the results are finite
};
void overflow_launch_init(struct overflow_launch *launch, bool lazy);
/// Add a tensor to check. What it borrows from `tensor` must live until the launch.
void overflow_pending_add(struct overflow_state *state, struct overflow_pending *pending,
                          struct overflow_launch *launch, const struct engine_tensor *tensor, enum overflow_role role,
                          int index);
/// Launch the checks of all that was added, and forget it.
void overflow_pending_launch(struct overflow_state *state, struct overflow_pending *pending,
                             struct overflow_launch *launch);
/// How much of an input that was added was never written.
void overflow_pending_mark(struct overflow_pending *pending, int index, uint8_t coverage);
/// The same for what was added last, input or output.
void overflow_pending_mark_last(struct overflow_pending *pending, uint8_t coverage);
/// Into the queue; takes the pending and a reference of `kept` (nullable). `scaler`: a marker for overflow_excuse.
void overflow_pending_commit(struct overflow_state *state, struct overflow_pending *pending, struct overflow_kept *kept,
                             bool scaler);
/// The flags of the forward `pending` go to `kept` when they are known.
void overflow_pending_attach(struct overflow_pending *pending, struct overflow_kept *kept);
/// Read all slots and judge what waits. 0 or -1.
DIT_NODISCARD int overflow_batches_read(struct engine_tool *tool);
/// The same for devices where `every` calls wait.
DIT_NODISCARD int overflow_batches_poll(struct engine_tool *tool);
void overflow_batches_destroy(struct overflow_state *state);

/// What waits on will find the call's objects gone.
void overflow_objects_forget(struct overflow_state *state, struct overflow_pending *pending);

// overflow/unwritten.c

/// Coverage of a tensor (enum overflow_coverage, not UNREAD). Nothing of it is asked when `count` is 0.
uint8_t overflow_unwritten_get(struct overflow_unwritten *unwritten, const struct engine_tensor *tensor);
/// Nobody wrote the tensor's memory; `vague`: perhaps.
void overflow_unwritten_add(struct overflow_unwritten *unwritten, const struct engine_tensor *tensor, bool vague);
/// The same for what the tensor has from address `low` on.
void overflow_unwritten_add_tail(struct overflow_unwritten *unwritten, const struct engine_tensor *tensor,
                                 uintptr_t low);
/// Some followed memory lies where the tensor's does.
bool overflow_unwritten_meets(const struct overflow_unwritten *unwritten, const struct engine_tensor *tensor);
/// The tensor was written.
void overflow_unwritten_remove(struct overflow_unwritten *unwritten, const struct engine_tensor *tensor);
/// Some of the tensor was written.
void overflow_unwritten_blur(struct overflow_unwritten *unwritten, const struct engine_tensor *tensor);
/// A storage's memory moved.
void overflow_unwritten_move(struct overflow_unwritten *unwritten, uintptr_t from, uintptr_t to);
/// A number that a storage tells of itself, "data_ptr" or "nbytes"; 0 when it cannot.
uintptr_t overflow_storage_ask(PyObject *storage, const char *method);
void overflow_unwritten_clear(struct overflow_unwritten *unwritten);
void overflow_unwritten_reset(struct overflow_unwritten *unwritten);

// overflow/look.c

/// What of a call's tensors nobody wrote, as it was before the call.
struct overflow_look {
  uint64_t all, partly;        ///< inputs, bit by index for the first 64
  PyObject *py_patch;          ///< owned: what `first[index] = value` wrote to, when that is known; or NULL
  struct engine_tensor patch;  ///< the same
};
void overflow_look_set(struct overflow_look *look, struct overflow_state *state, const struct engine_call *call,
                       const struct overflow_op *info);
/// The call was checked: what it wrote is written from now on. Ends the look.
void overflow_look_end(struct overflow_look *look, struct overflow_state *state, const struct engine_call *call,
                       const struct overflow_op *info);
/// Calls that write nothing, with effects from OVERFLOW_TURNS to OVERFLOW_HANDS_OUT: before and after, also when the
/// call failed.
void overflow_follow_begin(struct engine_tool *tool, struct engine_call *call, const struct overflow_op *info);
void overflow_follow_end(struct engine_tool *tool, struct engine_call *call, const struct overflow_op *info);
static inline bool overflow_effect_is_followed(enum overflow_effect effect) {
  return effect >= OVERFLOW_TURNS && effect <= OVERFLOW_HANDS_OUT;
}

// overflow/scan.c

/// Flags of a tensor that can be read now; OVERFLOW_UNKNOWN when it cannot.
uint8_t overflow_tensor_scan(struct overflow_state *state, const struct engine_tensor *tensor);
/// Add a tensor's flags to those of the event's inputs or outputs, or of what nobody wrote.
void overflow_event_add(struct overflow_event *event, bool output, uint8_t flags, uint8_t coverage);
/// Shape, type and, when it can be read now, numbers and flags.
void overflow_tensor_fill(struct overflow_state *state, struct overflow_tensor *out, const struct engine_tensor *tensor,
                          enum overflow_role role, int index);

// overflow/call.c

/// The tool's `before`: look at what the call will overwrite.
int overflow_call_before(struct engine_tool *tool, struct engine_call *call);
/// The event that `before` began for this call; NULL for none.
struct overflow_pending *overflow_call_get_pending(const struct engine_tool *tool, const struct engine_call *call);
DIT_NODISCARD int overflow_call_check_now(struct engine_tool *tool, struct engine_call *call, struct overflow_op *info,
                                          const struct overflow_look *look);
DIT_NODISCARD int overflow_call_check_later(struct engine_tool *tool, struct engine_call *call,
                                            struct overflow_op *info, struct overflow_batch *batch,
                                            const struct tools_site *site, const struct overflow_look *look);
/// The call was checked at once.
bool overflow_call_is_noted(const struct engine_tool *tool, const struct engine_call *call);
/// Then: flags of all it read and wrote.
uint8_t overflow_call_get_flags(struct engine_tool *tool, struct engine_call *call);

// overflow/backward.c

void overflow_kept_release(struct overflow_kept *kept);  ///< NULL allowed
/// Slots of the tool.
void *overflow_keep(struct engine_tool *tool, struct engine_call *call);
void overflow_release(struct engine_tool *tool, void *data);
int overflow_backward_end(struct engine_tool *tool, struct engine_backward *backward);

// overflow.c

/// Is a call there checked through slots?
bool overflow_is_deferred(const struct overflow_state *state, const struct tools_site *site);

#endif

/// What an OpAutoCompare tool holds: its options, what it knows of operators, its rows, findings and counts.
#ifndef DIT_EXT_COMPARE_STATE_H
#define DIT_EXT_COMPARE_STATE_H

#include <sys/types.h>

#include "dit/numerics.h"
#include "tools/compare/compare.h"

#define COMPARE_FINDINGS 4096  ///< kept; more are counted
#define COMPARE_DIMS 8         ///< of a shape that a finding shows
#define COMPARE_FLOATS 5       ///< kinds of tolerances: float16, bfloat16, float32, float64, all others

/// Why a call was not compared. The order is the order of the tests.
enum compare_skip {
  COMPARE_SKIP_METADATA,       ///< strides, devices, addresses: they are the device's own
  COMPARE_SKIP_UNINITIALISED,  ///< uninitialised memory
  COMPARE_SKIP_COLLECTIVE,     ///< other processes take part
  COMPARE_SKIP_BYTES,          ///< max_bytes
  COMPARE_SKIP_SHARE,          ///< share
  COMPARE_SKIP_RANDOM,         ///< draws random numbers that cannot be drawn again
  COMPARE_SKIP_UNABLE,         ///< the CPU cannot do it: `reason` of the operator
  COMPARE_SKIPS,
};

/// What is known of an operator. One per operator that was met.
struct compare_op {
  struct compare_op *next;
  struct engine_op *op;
  bool is_metadata, may_draw, is_exact, moves;
  int8_t mixes[2];                 ///< forward, gradients: roundings on the way may grow; -1 not asked yet
  int8_t writes;                   ///< of torch.ops: the schema says that it writes to arguments; -1 not asked yet
  bool told;                       ///< why it could not be compared
  uint64_t unable;                 ///< calls that could not be compared
  uint64_t suspects;               ///< reference=device: comparisons that went on to the CPU
  char reason[256];                ///< of the first of them
  uint64_t compared[2], wrong[2];  ///< forward, backward: comparisons of calls
  uint64_t first_wrong[2];         ///< id of the first wrong call
  int16_t cast[DIT_DTYPE_COUNT];   ///< dtype of the legacy run by dtype
  double atol[COMPARE_FLOATS], rtol[COMPARE_FLOATS];
  bool tolerance_is_set[COMPARE_FLOATS];  ///< by the user: it decides
};

/// One line of the table.
struct compare_row {
  const struct engine_op *op;
  uint64_t id;
  uint8_t what;     ///< enum compare_what
  int32_t index;    ///< -1: the only one
  bool close;       ///< by the tolerances
  uint8_t verdict;  ///< enum compare_verdict: what decides
  double cosine, max_abs_diff, max_relative_diff, atol, rtol;
  char *info;  ///< owned (PyMem); NULL for none
};

/// One wrong operator, direction and signature.
struct compare_finding {
  struct compare_finding *next;
  struct engine_op *op;
  uint8_t what;  ///< enum compare_what
  bool has_bad_inputs;
  uint64_t signature;
  uint64_t id, last_id, count;
  uint64_t since, times;  ///< of the operator in this direction when it was found: id of the first wrong call, how many
  int64_t step, last_step;
  int32_t round;
  uint32_t location, module;
  int32_t index, ndim;
  int16_t dtype;
  int64_t sizes[COMPARE_DIMS];
  struct compare_judgement judgement;
  char *folder;  ///< owned (PyMem): where it was saved; NULL for none
};

struct compare_cast {
  char *key;  ///< "LINEAR"; "" for all
  int16_t from, to;
};
struct compare_tolerance {
  char *key;
  int kind;  ///< 0 ... COMPARE_FLOATS - 1; -1: all
  double atol, rtol;
};

#define COMPARE_SPOILED 16

struct compare_state {
  // Options.
  bool legacy, save, stop, backward, log;
  bool on_site;  ///< reference=device
  enum { COMPARE_ROWS_ALL, COMPARE_ROWS_WRONG, COMPARE_ROWS_NONE } rows_mode;
  int64_t share, max_bytes, max_cache, cap_bytes, cap_calls;
  char *results;  ///< absolute
  struct compare_cast *casts;
  int cast_count;
  struct compare_tolerance *tolerances;
  int tolerance_count;
  PyObject *py_report;     ///< called with each new finding, or NULL
  PyObject *py_unable;     ///< called once per operator that cannot be compared: (name, reason), or NULL
  PyObject *py_no_helper;  ///< called once where reference=device cannot be had: (), or NULL
  PyObject
      *py_under_autocast;  ///< (func, args, kwargs, device, dtype): on the CPU under the device's autocast, or NULL
  PyObject *py_other_way;  ///< (word, args, kwargs): an operator as a device may compute it, or NULL
  PyObject *py_instead;    ///< (word, args, kwargs): an operator that the CPU refuses, composed of others, or NULL
  PyObject *py_shake;      ///< (tensor, size, seed): moves a float64 tensor of the device in place, or NULL
  PyObject *py_rows;       ///< called with the rows when they are written (full console): (list, path), or NULL

  struct compare_op *ops[256];
  struct compare_case *waiting;  ///< between after and keep, per thread
  PyObject *py_extras;           ///< full console: id (negative: backward) -> facts of events that are being told
  struct engine_modules modules;

  struct compare_row *rows;
  int64_t row_count, row_capacity;
  char *csv;  ///< path of the table, once there is one
  pid_t csv_pid;
  bool csv_failed;

  struct {
    struct engine_span span;
    uint64_t id;
  } spoiled[COMPARE_SPOILED];  ///< memory that a call changed although it must not, and by which; the latest ones
  unsigned spoiled_count;

  struct compare_finding *first_finding, *last_finding;
  int64_t finding_count, dropped;

  bool said_cap, said_failure;
  int64_t saved_calls, saved_bytes, capped, failed;

  int64_t begin_ns, spent_ns;
  uint64_t compared[2], wrong[2], close[2], skipped[COMPARE_SKIPS], rows_written, runs, kept;
  uint64_t near_count;  ///< comparisons that the device's own float64 decided
};

// compare/options.c

/// Reads what Python passed. 0 or -1.
DIT_NODISCARD int compare_options_read(struct compare_state *state, PyObject *options);
void compare_options_reset(struct compare_state *state);
/// What is known of the operator, looked up once; NULL when memory is exhausted (no exception).
struct compare_op *compare_op_find(struct compare_state *state, struct engine_op *op);
void compare_ops_reset(struct compare_state *state);

// compare/case.c

/// The call as it is before it runs; NULL with an exception.
struct compare_case *compare_case_create(struct engine_tool *tool, struct compare_op *info,
                                         const struct engine_call *call);
void compare_case_destroy(struct compare_case *c);  ///< NULL allowed
/// Give back all that it holds; `done` from now on.
void compare_case_empty(struct compare_case *c);
/// The CPU's run whose graph the backward would use is not needed any more.
void compare_case_drop_run(struct compare_case *c);
/// After the call: which tensors it wrote to.
/// Does the schema of an operator of torch.ops say that it writes to an argument? False for all other functions.
bool compare_call_writes(struct compare_op *info, const struct engine_call *call);
void compare_case_note_changes(struct compare_case *c, struct compare_op *info, const struct engine_call *call);

/// The case waits for its backward: where its results are.
void compare_case_note_results(struct compare_case *c, const struct engine_call *call);
/// Call `id` changed this memory although it must not.
void compare_spoiled_note(struct compare_state *state, const struct engine_span *span, uint64_t id);
/// The call that changed an input or a result of the case after the case's own call; 0: none.
uint64_t compare_spoiled_find(const struct compare_state *state, const struct compare_case *c);

// compare/on_site.c

enum { COMPARE_SITE_SUSPECT, COMPARE_SITE_RIGHT, COMPARE_SITE_WRONG };
/// Is the first look at this call one on the device?
bool compare_site_takes(struct compare_state *state, struct compare_op *info, const struct engine_call *call);
/// Fill a fresh case with the device's own tensors. 0 or -1.
DIT_NODISCARD int compare_site_fill(struct compare_case *c, struct compare_op *info, const struct engine_call *call);
void compare_site_reset(struct compare_case *c);
/// The arguments go to the CPU: from now on it is an ordinary case. 0 or -1.
DIT_NODISCARD int compare_site_leave(struct compare_case *c);
/// The first look at a call, at its backward: COMPARE_SITE_*, or -1. RIGHT and WRONG are reported already.
DIT_NODISCARD int compare_site_forward(struct engine_tool *tool, struct engine_call *call, struct compare_op *info,
                                       struct compare_case *c);
DIT_NODISCARD int compare_site_backward(struct engine_tool *tool, struct compare_op *info, struct compare_case *c,
                                        const struct engine_backward *backward);

// compare/guard.c

/// Before the call: have the device hash the tensors of the arguments that only it can read. Nothing elsewhere.
void compare_guard_begin(struct compare_case *c, const struct engine_call *call);
/// After it: untouched[i] becomes true where the hash says that tensor i is as it was; the others stay. False: nothing
/// is known, or only about tensors that can be hashed.
bool compare_guard_end(struct compare_case *c, const struct engine_call *call, bool *untouched);
/// The two halves of it: have the device look once more; read what it saw.
void compare_guard_ask(struct compare_case *c, const struct engine_call *call);
bool compare_guard_read(const struct compare_case *c, const struct engine_call *call, bool *untouched);

// compare/run.c

/// The unit roundoff of a floating dtype; 0 for others.
double compare_roundoff_get(int dtype);
/// Move a float64 tensor of the device, whose memory is not read here. Never leaves an exception.
void compare_site_shake(const struct compare_case *c, PyObject *tensor, double size, int place);
/// Has the CPU a second way (COMPARE_OTHER)? Under autocast its own lists; running sums kept in the dtype of the
/// result.
bool compare_run_has_other(const struct compare_case *c);
/// The pending exception as text, cleared: "TypeError: ...", its first line.
void compare_error_take(char *text, size_t size);
/// True when the pending exception is the program's to see (KeyboardInterrupt ...).
bool compare_error_is_foreign(void);
/// The arguments with the run's inputs, as it left them: new references, *py_kwargs may be NULL. 0 or -1.
DIT_NODISCARD int compare_run_get_arguments(const struct compare_case *c, const struct compare_run *run,
                                            PyObject **py_args, PyObject **py_kwargs);
/// Dispatch modes of the program (flop counters ...) must not see what follows: an entered context for
/// py_context_leave, or NULL when there are none; an exception is pending when it failed.
PyObject *compare_dispatch_disable(void);

// compare/same.c

/// What the device gave, where the CPU can read it: the tensors themselves in host memory, else copies.
struct compare_fetched {
  PyObject **value;  ///< of compare_leaves_fetch: borrowed, or from `owned`
  PyObject **owned;  ///< copies; NULL: none were needed
  int owned_count;
};
void compare_fetched_reset(struct compare_fetched *fetched);
bool compare_tensors_need_copies(const struct engine_tensor *tensors, int count);
/// 0 or -1; compare_fetched_get then has each.
DIT_NODISCARD int compare_tensors_fetch(struct compare_fetched *fetched, const struct engine_tensor *tensors,
                                        int count);
PyObject *compare_fetched_get(const struct compare_fetched *fetched, const struct engine_tensor *tensors, int i);
/// All leaves, in order. 0 or -1.
DIT_NODISCARD int compare_leaves_fetch(struct compare_fetched *fetched, const struct engine_leaves *leaves);
/// The same bytes: 1, 0, or -1 when they cannot be read in this way.
int compare_tensor_equals(PyObject *tensor, PyObject *twin);
/// Nothing differs. 0 or -1.
DIT_NODISCARD int compare_judgement_set_same(struct compare_case *c, struct compare_judgement *out,
                                             const struct engine_tensor *tensor);
/// 1: the values are the same (float64 references: after rounding), and `out` says so; 0: look closer; -1.
DIT_NODISCARD int compare_same_judge(struct compare_case *c, PyObject *device, PyObject *reference,
                                     struct compare_judgement *out);
/// Of compare/near.c: the same question for float32 results within an earlier call's yardstick.
DIT_NODISCARD int compare_near_judge(struct compare_case *c, enum compare_what what, int index, PyObject *device,
                                     PyObject *reference, struct compare_judgement *out);
/// compare_judge for what neither decides.
DIT_NODISCARD int compare_judge_all(struct compare_case *c, enum compare_what what, PyObject *const *device,
                                    PyObject *const *reference, int count, struct compare_judgement *judgements);

// compare/call.c, compare/gradient.c

#define COMPARE_FOLDER_BYTES 1800
/// The whole comparison of one call. *kept: the case waits for `keep`. 0 or -1.
DIT_NODISCARD int compare_call_run(struct engine_tool *tool, struct engine_call *call, struct compare_op *info,
                                   struct compare_case *c, bool *kept);
/// The same of its backward. 0 or -1.
DIT_NODISCARD int compare_gradient_run(struct engine_tool *tool, struct compare_op *info, struct compare_case *c,
                                       const struct engine_backward *backward);
/// Will the graph that is being walked be walked again?
bool compare_graph_is_kept(void);

// compare.c

/// Cannot be compared: counted, and said once per operator. 0.
int compare_note_unable(struct compare_state *state, struct compare_op *info, const char *reason);
/// The same with the pending exception, which is cleared. 0, or -1 when it is the program's.
DIT_NODISCARD int compare_note_error(struct compare_state *state, struct compare_op *info);
void compare_note_direction(struct compare_state *state, struct compare_op *info, uint64_t id, bool backward,
                            bool is_wrong, bool is_close);
/// Is any twin not finite? Said with a finding: a NaN that comes in explains much.
bool compare_case_has_bad_inputs(const struct compare_case *c);
/// The first wrong judgement of an event.
struct compare_wrong {
  const struct compare_judgement *judgement;
  const struct engine_tensor *tensor;
  enum compare_what what;
  int index;
};
void compare_wrong_note(struct compare_wrong *wrong, const struct compare_judgement *judgement, enum compare_what what,
                        int index, const struct engine_tensor *tensor);
/// Full console: facts of an event until it is told; takes the reference.
void compare_extra_put(struct compare_state *state, int64_t key, PyObject *py_extra);
/// {"torch.float16": "torch.float32"}: what the CPU's run computes in, where that differs. New reference.
PyObject *compare_casts_describe(const struct compare_case *c);

// compare/report.c

/// One call or its backward.
struct compare_event {
  struct engine_tool *tool;
  struct compare_case *c;
  const struct engine_call *call;          ///< or
  const struct engine_backward *backward;  ///< of which
  uint64_t id;
  int64_t step;
  bool bad_inputs;    ///< NaN or infinities among what went in
  PyObject *py_rows;  ///< full console: a list that gets the rows; NULL: none
};
/// One judgement goes to the table and the log; `index` -1: the only one.
void compare_report_row(const struct compare_event *event, enum compare_what what, int index,
                        const struct compare_judgement *judgement);
/// A wrong one: becomes a finding, and is told when it is new. 0, or -1 when the report raised (stop).
DIT_NODISCARD int compare_report_wrong(const struct compare_event *event, enum compare_what what, int index,
                                       const struct engine_tensor *tensor, const struct compare_judgement *judgement,
                                       const char *folder);
/// The rows of an event are complete: write all that wait when there are more than max_cache_size.
void compare_report_settle(struct engine_tool *tool);
/// Write the rows that wait.
void compare_report_flush(struct engine_tool *tool);
void compare_report_reset(struct compare_state *state);
PyObject *compare_findings_describe(struct compare_state *state);
PyObject *compare_rows_describe(const struct compare_row *rows, int64_t count);

// compare/save.c

/// What belongs to a wrong call, beside the case: as the device and the CPU have it.
struct compare_files {
  PyObject *device_result, *cpu_result;                        ///< NULL: none
  PyObject *const *grad_outputs, *const *grad_inputs;          ///< of the device; NULL entries: none
  PyObject *const *cpu_grad_outputs, *const *cpu_grad_inputs;  ///< in the same order
  int grad_output_count, grad_input_count;
};
/// Write the files of a forward (once per case). True when the caps let it; `folder` then has where.
bool compare_save_forward(const struct compare_event *event, const struct compare_files *files, char *folder,
                          size_t size);
/// Those of its backward.
bool compare_save_backward(const struct compare_event *event, const struct compare_files *files, char *folder,
                           size_t size);

#endif

/// The auto-compare tool: what its files share.
///
/// compare.c      the tool: slots of the engine, counts, answers
/// compare/options.c  options, and what follows from them for one operator
/// compare/case.c  one call as it was before it ran
/// compare/run.c  the operator once more on the CPU, in a chosen precision, with or without autograd
/// compare/call.c, compare/gradient.c  one call, its backward: the device's against the CPU's
/// compare/same.c, compare/near.c  equal values, values within a known yardstick: no judge is needed
/// compare/judge.c  is this result right: the legacy columns and the auto verdict (dit/judge.h does the arithmetic)
/// compare/backward.c  gradients by the CPU
/// compare/random.c  operators that draw random numbers
/// compare/report.c, compare/save.c  rows (CSV, log), findings, files
///
/// One call is a `compare_case`, from `before` until its autograd graph dies. Needs the GIL and the engine's guard.
#ifndef DIT_EXT_COMPARE_H
#define DIT_EXT_COMPARE_H

#include "engine/engine.h"

enum compare_precision {
  COMPARE_LEGACY,       ///< dtypes by the maps (OP_DTYPE_CAST_DICT ...): the reference of the legacy columns
  COMPARE_WIDE,         ///< float64 and complex128
  COMPARE_NATIVE,       ///< the dtypes of the program: what the CPU itself makes of it
  COMPARE_SHAKEN,       ///< wide, every floating input off by a random relative error of at most one unit roundoff
  COMPARE_JITTER,       ///< as native, every floating input moved by a few units in the last place
  COMPARE_JITTER_WIDE,  ///< wide, with the very inputs of COMPARE_JITTER
  COMPARE_OTHER,        ///< as native, under the CPU's autocast where that of the device was tried first
};

enum compare_what { COMPARE_INPUT, COMPARE_OUTPUT, COMPARE_GRAD };

/// One call. Owned by the tool's slot of engine_call, then by the backward window.
struct compare_case {
  struct engine_tool *tool;  ///< borrowed
  struct engine_op *op;
  uint64_t id;
  int64_t step;
  uint32_t location, module;
  unsigned flags;                 ///< of the call
  PyObject *py_func;              ///< owned
  PyObject *py_args, *py_kwargs;  ///< owned: the arguments with twins in the tensors' places, as before the call
  PyObject **twins;               ///< owned: the same tensors in the order of call->in.tensor; never modified
  int twin_count;
  int16_t *dtypes;                   ///< of the device's tensors
  struct engine_span *result_spans;  ///< of its results, while its backward is awaited
  int result_count;
  struct engine_span *spans;  ///< of the device's tensors
  PyObject *py_settings;      ///< owned: autocast and the like (call_settings.h); NULL when everything is as usual
  bool *changed;              ///< the call wrote to it (by the version counter; aten: by the schema); same order
  uint64_t signature;         ///< of the arguments: dtypes and shapes
  bool has_autocast;
  bool is_embedded;       ///< the call was on the embedded device
  int16_t autocast;       ///< then: its dtype (enum dit_dtype)
  PyObject *py_random;    ///< owned: generator states before the call, for random operators; NULL otherwise
  PyObject *py_run;       ///< owned: result of the legacy run whose graph the backward uses; NULL when not kept
  PyObject **run_inputs;  ///< owned: its inputs (leaves that require grad), in the order of the twins; NULL likewise
  /// Owned: the same as the operator left them; another tensor than run_inputs[i] (a clone with history) where it
  /// wrote.
  PyObject **run_left;
  bool saved;  ///< its forward files are written
  /// Borrowed, set by compare_run_backward (COMPARE_LEGACY): must live until these gradients are judged.
  PyObject *const *grad_outputs;
  int grad_output_count;
  /// COMPARE_SHAKEN: the largest relative error of the inputs (0: the unit roundoff of each input's own dtype; the
  /// program's dtype, not float64), and the seed of the errors. Set by compare_judge.
  double shake;
  uint64_t shake_seed;
  PyObject *py_view;  ///< owned: what compare_backward_note found; NULL for none
  double jitter;      ///< COMPARE_JITTER and _WIDE: the largest move, in unit roundoffs; 0 otherwise
  bool narrow;        ///< then: float32 in the place of every floating dtype
  // Of compare/save.c: when it was called, where, and which twins stand for tensors of the device.
  int64_t second;
  const char *device;
  bool *on_device;
  // Of compare.c: while it waits to be kept.
  struct compare_case *next;
  unsigned long thread;
  // Of compare/guard.c: the checksums of its inputs before and after the call; 0: none were asked for.
  uint64_t guard, guard_after;
  // Of compare/on_site.c: reference=device.
  bool is_on_site;                          ///< the twins are the device's own tensors, and runs are made there
  bool is_single;                           ///< then: float32 is wide enough for them
  PyObject *py_home_args, *py_home_kwargs;  ///< owned: the arguments for the CPU, with the same twins still
  bool *fixed;                              ///< its dtype is no matter of precision: the step counts of an optimizer
  int64_t *versions;                        ///< of the twins when the call was made; -1: copies
  uint64_t *hashes;                         ///< of the arguments before the call, where the host can read them; 0: none
  bool refuses_guests;  ///< under the device's autocast the CPU could not run it: its own autocast has to do
  bool done;            ///< its backward is over, and what it held is gone
};

/// What one run on the CPU gave.
struct compare_run {
  PyObject *py_result;  ///< owned
  PyObject **inputs;    ///< owned: the tensors it was given, as it left them, in the order of the twins
  PyObject **leaves;    ///< owned: with `grad`: what to differentiate by (inputs[i], or what it was cloned from)
  int input_count;
  bool drew;         ///< it took random numbers from the CPU's generator
  char reason[256];  ///< why it could not be run ("" when it could); a reason is no exception
};

/// Run the operator on the CPU with copies of the twins. `grad`: with autograd on, floating inputs that require grad
/// being leaves (cloned first where the operator writes to them). 0 (look at `reason`), or -1 with an exception.
DIT_NODISCARD int compare_run_forward(const struct compare_case *c, enum compare_precision precision, bool grad,
                                      struct compare_run *run);
void compare_run_reset(struct compare_run *run);

/// Of compare/options.c: the tolerances of the legacy columns by operator and dtype of the device's tensor (A1, A2),
/// 0 or -1; and whether they decide: the option `verdict` says legacy, or the user set them for this operator or dtype.
DIT_NODISCARD int compare_tolerance_get(struct compare_case *c, int dtype, double *atol, double *rtol);
bool compare_tolerance_decides(const struct compare_case *c, int dtype);

/// Of compare/options.c: the dtype (enum dit_dtype) in which the legacy run of this operator has arguments of `dtype`.
int compare_dtype_get(const struct compare_case *c, int dtype);

enum compare_verdict {
  COMPARE_RIGHT,
  COMPARE_WRONG,
  COMPARE_UNKNOWN,  ///< cannot be compared; `reason` says why
};

/// The judgement of one tensor (or other value).
struct compare_judgement {
  enum compare_verdict verdict;  ///< by the option `verdict`
  enum compare_verdict auto_verdict;
  bool close;  ///< legacy: allclose, with the columns that follow
  double cosine, max_abs_diff, max_relative_diff, atol, rtol;
  char info[160];    ///< legacy error_info
  double error;      ///< largest |device - wide| where it is judged worst
  double allowed;    ///< what the rule allows there
  double cpu_error;  ///< largest error of the CPU in the program's dtype; NaN when it was not needed
  int64_t wrong;     ///< elements beyond what is allowed
  int64_t numel;
  int16_t dtype;            ///< of the device's tensor; -1: no tensor
  int64_t index;            ///< row-major, of the worst element; -1 none
  double value, reference;  ///< there
  char reason[160];         ///< in words: why wrong or unknown
};

/// `count` values in the order of the runs' own: COMPARE_OUTPUT: all leaves of the result (engine_leaves, tensors and
/// others, prefix "out"); COMPARE_INPUT: the tensors of call->in.tensor; COMPARE_GRAD: their gradients (None or NULL
/// where there is none on that side).
/// Values are what engine_leaves_add finds in a result, in its order (None, numbers and other objects included); for
/// COMPARE_INPUT the tensors in the order of the twins; for COMPARE_GRAD grad_inputs of engine_backward (NULL: none).
/// Judge `count` values of the device (tensors on the CPU or readable in place) against those of the legacy run; more
/// runs are made when they are needed to decide. `judgements` has `count` entries. 0 or -1.
DIT_NODISCARD int compare_judge(struct compare_case *c, enum compare_what what, PyObject *const *device,
                                PyObject *const *reference, int count, struct compare_judgement *judgements);

/// The input gradients by the CPU: for grad_outputs (twins, NULL entries allowed) in the order of engine_backward.
/// Uses c->py_run for the legacy precision when it is there. *py_grads: new list, None where there is no gradient. 0
/// (look at `reason`), or -1.
DIT_NODISCARD int compare_run_backward(struct compare_case *c, enum compare_precision precision,
                                       PyObject *const *grad_outputs, int count, PyObject **py_grads, char reason[256]);

/// When the case is kept: the place of a view that the call wrote to in its base, to which its gradient goes. Never
/// fails: without it such gradients are not compared.
void compare_backward_note(struct compare_case *c, const struct engine_call *call);

// compare/random.c: operators with ENGINE_OP_RANDOM

/// In `before`: take the states of the generators the call may draw from (c->py_random). Never changes them. 0 or -1.
DIT_NODISCARD int compare_random_save(struct compare_case *c, const struct engine_call *call);
/// In compare_run_forward, around the CPU run: give the CPU's generator the state from which the device drew, and the
/// old one back. Nothing is done without c->py_random. 0 or -1. compare_random_leave keeps a pending exception.
DIT_NODISCARD int compare_random_enter(const struct compare_case *c, PyObject **py_saved);
DIT_NODISCARD int compare_random_leave(const struct compare_case *c, PyObject *py_saved);
/// The call is a dropout whose gradients are judged by what the device kept.
bool compare_random_has_kept(const struct compare_case *c);
/// Instead of compare_judge for the outputs and inputs of random operators: the same numbers as the CPU with the same
/// state, else the right distribution, else COMPARE_UNKNOWN with the reason. 0 or -1.
DIT_NODISCARD int compare_random_judge(struct compare_case *c, enum compare_what what, PyObject *const *device,
                                       PyObject *const *reference, int count, struct compare_judgement *judgements);

#endif

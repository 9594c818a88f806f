/// What the judge's files share: readable tensors, the legacy columns, the further runs of one call.
#ifndef DIT_EXT_COMPARE_JUDGE_H
#define DIT_EXT_COMPARE_JUDGE_H

#include "dit/numerics.h"
#include "dit/verdict.h"
#include "tools/compare/compare.h"

/// A tensor whose memory C can read.
struct judge_tensor {
  PyObject *py_tensor;  ///< owned: the tensor itself, or plain values of it
  struct engine_tensor info;
  struct dit_tensor_view view;
};

/// 0, or -1 with an exception: no values to read.
DIT_NODISCARD int judge_tensor_open(struct judge_tensor *out, PyObject *tensor);
/// Accepts a struct that is all zero.
void judge_tensor_close(struct judge_tensor *tensor);

/// What a judgement reads: a value of each kind of run, and the arguments.
struct judge_reading {
  struct judge_tensor runs[6];    ///< by enum dit_verdict_run
  struct judge_tensor *inputs;    ///< owned
  struct dit_tensor_view *views;  ///< owned: of the inputs
  int input_count;
};

/// The value of a run, in the place of the one of its kind before. NULL or no tensor: DIT_ERR_UNSUPPORTED, `err` says
/// `reason`. DIT_ERR_INTERNAL: an exception is pending.
DIT_NODISCARD enum dit_status judge_reading_open(struct judge_reading *reading, enum dit_verdict_run kind,
                                                 PyObject *value, const char *reason, struct dit_tensor_view *view,
                                                 struct dit_error *err);
/// The arguments of a call of the operator `name`: `inputs` are the tensors among them. At most once.
DIT_NODISCARD enum dit_status judge_reading_open_arguments(struct judge_reading *reading, const char *name,
                                                           PyObject *args, PyObject *kwargs, PyObject *const *inputs,
                                                           int count, struct dit_verdict_arguments *arguments,
                                                           struct dit_error *err);
/// Accepts a struct that is all zero.
void judge_reading_reset(struct judge_reading *reading);

/// One run: its values in the order of those that are judged. Borrowed from `owner`.
struct judge_values {
  bool tried;
  PyObject **value;  ///< NULL: no such run; `reason`
  int count;
  PyObject *py_owner;  ///< owned: result, list of inputs, or list of gradients
  struct engine_leaves *leaves;
  char reason[256];
};

/// The runs of one call that judging may need.
struct judge_runs {
  struct compare_case *c;
  enum compare_what what;
  struct judge_values wide, native, other, shaken, jittered;  ///< shaken: also COMPARE_JITTER
};

/// The values of a run; made once (shaken and jittered ones: each time). NULL without an exception when it cannot be
/// made.
struct judge_values *judge_runs_get(struct judge_runs *runs, enum compare_precision precision);
/// Why the last run of this kind could not be made; "" when it could.
const char *judge_runs_get_reason(struct judge_runs *runs, enum compare_precision precision);
/// The unit roundoff to which a CUDA device rounds float32 inputs of this contraction (TF32); 0: it takes them as they
/// are. Never leaves an exception.
double judge_input_roundoff(const char *word);
void judge_runs_reset(struct judge_runs *runs);
/// Forget the yardsticks of earlier calls.
void judge_forget(void);
/// What cannot be read or compared is unknown, with the pending exception's text. 0, or -1 when the exception is not of
/// that kind.
DIT_NODISCARD int judge_excuse(struct compare_judgement *out);

/// The yardstick that an earlier call of this operator and signature left for this value: allowed is `relative` of the
/// reference plus `residual` of the largest number. False when there is none.
bool judge_seen_get(struct compare_case *c, enum compare_what what, int index, const struct dit_tensor_view *view,
                    double *relative, double *residual);

/// Leave one, half of what was allowed.
void judge_seen_put(const struct compare_case *c, enum compare_what what, int index, const struct dit_tensor_view *view,
                    double relative, double residual);
/// Is it known that this result has the dtype that it should have? Else the judge has to look.
bool judge_dtype_is_known(struct compare_case *c, int index, PyObject *device, PyObject *first);

// compare/judge_legacy.c

/// The legacy columns of two values that are not both tensors.
DIT_NODISCARD int judge_legacy_value(PyObject *device, PyObject *reference, struct compare_judgement *out);
/// Two values that cannot be told apart or together: their type has no comparison, or it raises.
bool judge_value_is_opaque(PyObject *device, PyObject *reference);
/// Of two tensors of one shape. `compared` (nullable): what the fused pass gave for the device's values and the
/// reference as they are; only when *has_compared.
DIT_NODISCARD int judge_legacy_tensor(struct compare_case *c, const struct judge_tensor *device,
                                      const struct judge_tensor *reference, struct compare_judgement *out,
                                      struct dit_compare_result *compared);

#endif

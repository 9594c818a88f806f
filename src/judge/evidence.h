/// What is known while one floating tensor is judged, and the further runs that add to it.
#ifndef DIT_JUDGE_EVIDENCE_H
#define DIT_JUDGE_EVIDENCE_H

#include "dit/verdict.h"
#include "judge/values.h"

struct evidence {
  const struct dit_verdict_case *c;
  const struct dit_verdict_source *source;
  const struct dit_tensor_view *device;
  struct dit_tensor_view wide, native;  ///< of the source, or `excused`
  struct values excused;                ///< the reference with the NaN and infinities that the CPU makes, too
  bool has_native;
  struct dit_judge_type type;
  double reference_roundoff;  ///< of the reference's own rounding; 0 when it is wide
  double alpha, residual;     ///< the CPU's error: alpha * roundoff * |r| + residual
  double largest;             ///< the CPU's largest error
  double cpu_error;           ///< the same at the program's own inputs; NaN: not known
  double scale;
  bool exact, thin;
  bool blind;     ///< the reference is not better than the result: the CPU's error cannot be measured
  double *moves;  ///< owned: errors allowed beyond the rule, per element; NULL for none
  bool has_arguments;
  struct dit_verdict_arguments arguments;
  struct dit_judge_result result;
  struct dit_error *err;
};

/// Open the reference and the CPU's result in the program's dtype. DIT_ERR_UNSUPPORTED: no reference, `err` says why.
DIT_NODISCARD enum dit_status evidence_open(struct evidence *e);
void evidence_close(struct evidence *e);
/// The arguments of the call, asked for once.
DIT_NODISCARD enum dit_status evidence_ask_arguments(struct evidence *e);

/// The rule as it stands.
struct dit_judge_rule evidence_get_rule(const struct evidence *e);
/// Apply it; the answer is in e->result.
DIT_NODISCARD enum dit_status evidence_apply(struct evidence *e);
/// Measure the CPU's own error at the program's inputs, and whether it rounds at all.
DIT_NODISCARD enum dit_status evidence_measure(struct evidence *e);
/// The CPU's own error in another way that it has, if there is one.
DIT_NODISCARD enum dit_status evidence_ask_other(struct evidence *e);
/// NaN and infinities that the CPU makes too are right.
DIT_NODISCARD enum dit_status evidence_excuse(struct evidence *e);
/// NaN and infinities that come of those among the arguments, or of sums too large on the way, are right.
DIT_NODISCARD enum dit_status evidence_excuse_sums(struct evidence *e);
/// The CPU's own error at inputs nearby. `narrow`: in float32, whatever the program's dtype is; `scale` makes its error
/// that of the program's dtype.
DIT_NODISCARD enum dit_status evidence_jitter(struct evidence *e, bool narrow, double scale);
/// How far the result moves when the inputs are off by a rounding.
DIT_NODISCARD enum dit_status evidence_shake(struct evidence *e);

#endif

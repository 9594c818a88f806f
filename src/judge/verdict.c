/// The verdict on one value (contract in include/dit/verdict.h, derivation in docs/verdict.md).
///
/// A result that equals the first one of the CPU is right at once; so is one within the yardstick that an earlier
/// judgement left behind. Everything else is judged by further runs, each asked for only while the result is still
/// suspicious. Depends on src/numerics for the arithmetic; evidence.c and shake.c hold the steps, places.c the
/// operators with more than one right answer.
#include "dit/verdict.h"

#include <math.h>
#include <stdio.h>

#include "dit/numerics.h"
#include "judge/evidence.h"
#include "judge/places.h"

static const struct dit_judge_rule equal = {.limit = INFINITY};

static void result_set(struct dit_verdict_result *out, enum dit_verdict verdict, const char *reason) {
  out->verdict = verdict;
  (void)snprintf(out->reason, sizeof out->reason, "%s", reason);
}

static void result_tell_wrong(struct dit_verdict_result *out, const struct dit_judge_result *found) {
  out->verdict = DIT_VERDICT_WRONG;
  out->error = found->error;
  out->allowed = found->allowed;
  out->wrong = found->wrong;
  out->index = found->index;
  out->value = found->value;
  out->reference = found->reference;
  if (found->nonfinite > 0) {
    (void)snprintf(out->reason, sizeof out->reason, "%g where the CPU has %g (%lld of %lld elements)", found->value,
                   found->reference, (long long)found->nonfinite, (long long)found->numel);
  } else if (!isnan(out->cpu_error)) {
    (void)snprintf(out->reason, sizeof out->reason, "the CPU's own error in this dtype is %.3g", out->cpu_error);
  } else {
    (void)snprintf(out->reason, sizeof out->reason, "%.9g instead of %.9g", found->value, found->reference);
  }
}

// Floating tensors

// Within what an earlier judgement of this kind allowed.
static enum dit_status yardstick_apply(const struct evidence *e, const struct dit_tensor_view *first, bool *within) {
  double relative, residual;
  *within = false;
  if (!dit_verdict_memory_get(e->c->memory, e->c->key, &relative, &residual)) {
    return DIT_OK;
  }
  struct dit_judge_error error;
  DIT_RETURN_IF_NOT_OK(dit_judge_measure(e->device, first, 0, 0, &error, e->err));
  struct dit_judge_rule rule = {
      .relative = relative,
      .absolute = isfinite(error.scale) ? residual * error.scale : 0,
      .cap = INFINITY,
      .floor = e->type.floor,
      .limit = e->type.limit,
  };
  struct dit_judge_result found;
  DIT_RETURN_IF_NOT_OK(dit_judge_compare(e->device, first, &rule, &found, e->err));
  *within = found.wrong == 0;
  return DIT_OK;
}

// Beyond the rule, and not by a NaN or an infinity, which nothing excuses any more.
static bool is_suspicious(const struct evidence *e) {
  return e->result.wrong > 0 && e->result.nonfinite == 0;
}

static enum dit_status evidence_collect(struct evidence *e) {
  DIT_RETURN_IF_NOT_OK(evidence_measure(e));
  DIT_RETURN_IF_NOT_OK(evidence_apply(e));
  if (e->result.nonfinite > 0) {
    DIT_RETURN_IF_NOT_OK(evidence_excuse_sums(e));  // looks at the reference as it was
  }
  if (e->result.nonfinite > 0) {
    DIT_RETURN_IF_NOT_OK(evidence_excuse(e));
  }
  if (is_suspicious(e) && !e->exact && !e->blind) {
    DIT_RETURN_IF_NOT_OK(evidence_ask_other(e));
  }
  // More evidence of the CPU's error: few elements, or an error that is still below four times the CPU's largest one.
  bool is_near = e->result.error <= DIT_VERDICT_FACTOR * e->largest;
  if (is_suspicious(e) && !e->exact && !e->blind && (e->thin || is_near)) {
    DIT_RETURN_IF_NOT_OK(evidence_jitter(e, false, 1));
  }
  // Narrow types: sums run in float32, and their errors show only where the result is nearly 0, which is rare; float32
  // runs show them everywhere. float64: no reference is better; it errs as float32 does, on its own scale (2^-29; four
  // times that, since the evidence is indirect).
  bool is_narrow = e->type.roundoff >= 0x1p-20, is_widest = e->blind && e->type.roundoff <= 0x1p-53;
  if (is_suspicious(e) && !e->exact && (is_narrow || is_widest)) {
    DIT_RETURN_IF_NOT_OK(evidence_jitter(e, true, is_widest ? 0x1p-27 : 1));
  }
  return is_suspicious(e) ? evidence_shake(e) : DIT_OK;
}

// Chooses among the values of its first argument, along a dimension that is known.
static bool picks_places(const struct dit_verdict_case *c) {
  return (c->traits & DIT_OPERATOR_TIES) && c->op && c->op->dim != -1;
}

// The gradient of a sort or a maximum goes to one of several equal values, and which one is not said: equal values may
// exchange their gradients. Where several results may choose one place, their gradients may also be added up otherwise.
static enum dit_status ties_excuse(struct evidence *e, struct dit_verdict_result *out) {
  bool picks = picks_places(e->c) && e->c->what == DIT_VERDICT_GRAD;
  if (!picks || out->verdict != DIT_VERDICT_WRONG || e->result.nonfinite > 0) {
    return DIT_OK;
  }
  DIT_RETURN_IF_NOT_OK(evidence_ask_arguments(e));
  struct dit_judge_rule rule = evidence_get_rule(e);
  enum places_exchange found;
  DIT_RETURN_IF_NOT_OK(places_exchange(e->c, &e->arguments, e->device, &e->wide, &rule, &found, e->err));
  if (found == PLACES_EXCHANGED) {
    *out = (struct dit_verdict_result){
        .index = -1, .cpu_error = e->cpu_error, .numel = e->device->numel, .has_wide = true};
  } else if (found == PLACES_TIED && !(e->c->traits & DIT_OPERATOR_DISTINCT)) {
    result_set(out, DIT_VERDICT_UNKNOWN, "several values are equal: any of them may get the gradient");
  }
  return DIT_OK;
}

static enum dit_status floating_judge(struct evidence *e, struct dit_verdict_result *out) {
  enum dit_status status = evidence_open(e);
  if (status == DIT_ERR_UNSUPPORTED) {
    (void)snprintf(out->reason, sizeof out->reason, "no float64 reference: %.120s", e->err->message);
    out->verdict = DIT_VERDICT_UNKNOWN;
    return DIT_OK;
  }
  DIT_RETURN_IF_NOT_OK(status);
  DIT_RETURN_IF_NOT_OK(evidence_collect(e));
  out->has_wide = true;
  out->cpu_error = e->cpu_error;
  out->error = e->result.error;
  out->allowed = e->result.allowed;
  if (e->result.wrong > 0) {
    result_tell_wrong(out, &e->result);
    return ties_excuse(e, out);
  }
  out->verdict = DIT_VERDICT_RIGHT;
  double scale = e->scale > 0 ? e->scale : 1;
  // Never beyond the cap of the rule: large elements are not excused by the relative error of small ones.
  double alpha = fmin(e->alpha, fmax(1, e->largest / (e->type.roundoff * scale)));
  double relative = e->exact ? 0 : DIT_VERDICT_SEEN_FACTOR * alpha * e->type.roundoff + e->reference_roundoff;
  dit_verdict_memory_put(e->c->memory, e->c->key, relative, DIT_VERDICT_SEEN_FACTOR * e->residual / scale);
  return DIT_OK;
}

// Integers and bool

static enum dit_status is_equal_in(struct evidence *e, enum dit_verdict_run kind, bool *same) {
  const struct dit_verdict_request request = {.kind = kind};
  struct dit_tensor_view other;
  enum dit_status status = e->source->run(e->source->context, &request, e->c->index, &other, e->err);
  if (status == DIT_ERR_UNSUPPORTED || (status == DIT_OK && !views_agree(&other, e->device))) {
    return DIT_OK;
  }
  DIT_RETURN_IF_NOT_OK(status);
  struct dit_judge_result found;
  DIT_RETURN_IF_NOT_OK(dit_judge_compare(e->device, &other, &equal, &found, e->err));
  *same = found.wrong == 0;
  return DIT_OK;
}

static enum dit_status integer_judge(struct evidence *e, const struct dit_tensor_view *first,
                                     struct dit_verdict_result *out) {
  DIT_RETURN_IF_NOT_OK(dit_judge_compare(e->device, first, &equal, &e->result, e->err));
  bool right = e->result.wrong == 0;
  if (!right) {
    DIT_RETURN_IF_NOT_OK(is_equal_in(e, DIT_RUN_NATIVE, &right));
  }
  if (!right) {
    DIT_RETURN_IF_NOT_OK(is_equal_in(e, DIT_RUN_WIDE, &right));
  }
  out->verdict = DIT_VERDICT_RIGHT;
  if (!right) {
    result_tell_wrong(out, &e->result);
  }
  return DIT_OK;
}

// One pair of values

// Results that may differ and yet be right.
static enum dit_status is_loose(struct evidence *e, bool *loose) {
  const struct dit_operator *op = e->c->op;
  *loose = false;
  if (op && (e->c->traits & DIT_OPERATOR_LOOSE)) {
    *loose = e->c->what == DIT_VERDICT_GRAD || (op->loose >> (e->c->index & 31) & 1);
  } else if (op && (e->c->traits & DIT_OPERATOR_SCATTER)) {
    DIT_RETURN_IF_NOT_OK(evidence_ask_arguments(e));
    return places_have_repeats(e->c, &e->arguments, loose, e->err);
  }
  return DIT_OK;
}

// A result that only the operator's own backward reads, in a form that may be the device's own.
static bool is_private(const struct dit_verdict_case *c) {
  return c->op && (c->traits & DIT_OPERATOR_PRIVATE) && c->what == DIT_VERDICT_OUTPUT && c->index < 32 &&
         (c->op->private_results >> c->index & 1);
}

// Other values or places than the CPU's, and as good.
static enum dit_status is_chosen_as_well(struct evidence *e, const struct dit_tensor_view *first, bool *alike) {
  *alike = false;
  if (e->c->what == DIT_VERDICT_GRAD || !picks_places(e->c)) {
    return DIT_OK;
  }
  DIT_RETURN_IF_NOT_OK(evidence_ask_arguments(e));
  return places_compare(e->c, &e->arguments, e->device, first, alike, e->err);
}

static enum dit_status different_judge(struct evidence *e, const struct dit_tensor_view *first,
                                       const struct dit_judge_result *compared, struct dit_verdict_result *out) {
  bool loose, alike;
  DIT_RETURN_IF_NOT_OK(is_loose(e, &loose));
  DIT_RETURN_IF_NOT_OK(is_chosen_as_well(e, first, &alike));
  if (alike) {
    return DIT_OK;
  }
  if (loose && compared->nonfinite == 0) {
    result_set(out, DIT_VERDICT_UNKNOWN, e->c->op->reason ? e->c->op->reason : "the result is not unique");
    return DIT_OK;
  }
  if (dit_judge_type_get(e->device->dtype, &e->type, NULL) != DIT_OK) {
    return integer_judge(e, first, out);
  }
  bool within;
  DIT_RETURN_IF_NOT_OK(yardstick_apply(e, first, &within));
  if (within) {
    out->verdict = DIT_VERDICT_RIGHT;
    return DIT_OK;
  }
  return floating_judge(e, out);
}

enum dit_status dit_verdict_judge(const struct dit_verdict_case *c, const struct dit_verdict_source *source,
                                  const struct dit_tensor_view *device, const struct dit_tensor_view *first,
                                  struct dit_verdict_result *result, struct dit_error *err) {
  struct dit_error own = {0};
  *result = (struct dit_verdict_result){.index = -1, .cpu_error = NAN, .numel = device->numel};
  if (!views_agree(device, first)) {
    bool is_spare = (c->traits & DIT_OPERATOR_PRIVATE) && c->index > 0 && c->what == DIT_VERDICT_OUTPUT &&
                    (is_private(c) || device->numel == 0 || first->numel == 0);
    result_set(result, is_spare ? DIT_VERDICT_UNKNOWN : DIT_VERDICT_WRONG,
               is_spare ? "statistics that nobody needs are returned by one of the two only"
                        : "the result has another shape than the CPU's");
    return DIT_OK;
  }
  struct evidence e = {
      .c = c, .source = source, .device = device, .result = {.index = -1}, .cpu_error = NAN, .err = err ? err : &own};
  struct dit_judge_result compared;
  DIT_RETURN_IF_NOT_OK(dit_judge_compare(device, first, &equal, &compared, e.err));
  if (compared.unequal == 0) {
    return DIT_OK;
  }
  enum dit_status status = different_judge(&e, first, &compared, result);
  if (status == DIT_OK && result->verdict == DIT_VERDICT_WRONG && is_private(c)) {
    result_set(result, DIT_VERDICT_UNKNOWN, c->op->reason ? c->op->reason : "it is no result");
  }
  evidence_close(&e);
  return status;
}

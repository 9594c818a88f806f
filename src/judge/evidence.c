/// The CPU's own error, and the rule that follows from it (docs/verdict.md; shake.c has the conditioning).
#include "judge/evidence.h"

#include <float.h>
#include <math.h>

#include "dit/alloc.h"
#include "dit/numerics.h"
#include "dit/random.h"
#include "judge/shake.h"

// The most that elementwise errors of the CPU are taken for a property of the operator (in roundoffs): vendors' math
// functions are good to about 8 units in the last place (16 roundoffs, a factor of 4 included) in float32 and float64;
// in narrower types the final rounding is all there is.
static double alpha_get_most(const struct evidence *e) {
  return e->type.roundoff < 0x1p-20 ? 4 : 1;
}

// Runs

enum dit_status evidence_run(struct evidence *e, const struct dit_verdict_request *request,
                             struct dit_tensor_view *value) {
  enum dit_status status = e->source->run(e->source->context, request, e->c->index, value, e->err);
  if (status == DIT_OK && !views_agree(value, e->device)) {
    return dit_error_set(e->err, DIT_ERR_UNSUPPORTED, "the run has another shape");
  }
  return status;
}

enum dit_status evidence_ask_arguments(struct evidence *e) {
  if (e->has_arguments) {
    return DIT_OK;
  }
  e->has_arguments = true;
  e->arguments = (struct dit_verdict_arguments){.index = -1};
  return e->source->arguments(e->source->context, &e->arguments, e->err);
}

// Both runs at inputs a few units in the last place away.
static enum dit_status jitter_open(struct evidence *e, int round, bool narrow, struct dit_tensor_view *native,
                                   struct dit_tensor_view *wide) {
  struct dit_verdict_request request = {
      .kind = DIT_RUN_JITTER,
      .size = DIT_VERDICT_JITTER,
      .narrow = narrow,
      .seed = dit_random_mix(e->c->seed, UINT64_C(0x1000) + (uint64_t)round),
  };
  DIT_RETURN_IF_NOT_OK(evidence_run(e, &request, native));
  request.kind = DIT_RUN_JITTER_WIDE;
  return evidence_run(e, &request, wide);
}

// A run that cannot be made adds nothing.
static enum dit_status run_excuse(enum dit_status status) {
  return status == DIT_ERR_UNSUPPORTED ? DIT_OK : status;
}

enum dit_status evidence_open(struct evidence *e) {
  struct dit_verdict_request request = {.kind = DIT_RUN_WIDE};
  DIT_RETURN_IF_NOT_OK(evidence_run(e, &request, &e->wide));
  struct dit_judge_type wide;
  if (dit_judge_type_get(e->wide.dtype, &wide, NULL) != DIT_OK) {
    return dit_error_set(e->err, DIT_ERR_UNSUPPORTED, "the float64 reference is no floating tensor");
  }
  request.kind = DIT_RUN_NATIVE;
  enum dit_status status = evidence_run(e, &request, &e->native);
  e->has_native = status == DIT_OK;
  e->reference_roundoff = wide.roundoff > 0x1p-53 || e->type.roundoff <= 0x1p-53 ? wide.roundoff : 0;
  return run_excuse(status);
}

void evidence_close(struct evidence *e) {
  values_reset(&e->excused);
  dit_free(e->moves);
  e->moves = NULL;
}

// The rule

struct dit_judge_rule evidence_get_rule(const struct evidence *e) {
  double roundoff = e->type.roundoff, alpha = e->exact ? 0 : e->thin ? alpha_get_most(e) : e->alpha;
  double own = e->exact ? 0 : e->reference_roundoff;
  return (struct dit_judge_rule){
      .relative = DIT_VERDICT_FACTOR * alpha * roundoff + own,
      .absolute = DIT_VERDICT_FACTOR * e->residual,
      .cap = e->thin ? INFINITY : DIT_VERDICT_FACTOR * e->largest,
      .cap_relative = e->exact ? 0 : DIT_VERDICT_FACTOR * roundoff + own,
      .floor = e->type.floor,
      .limit = e->type.limit,
  };
}

enum dit_status evidence_apply(struct evidence *e) {
  struct dit_judge_rule rule = evidence_get_rule(e);
  return dit_judge_compare(e->device, &e->wide, &rule, &e->result, e->err);
}

// The CPU's own error

// Does the CPU round nothing at all? It did not here; with enough full significands, here and at inputs nearby, that is
// no accident but the operator's nature.
static enum dit_status exactness_prove(struct evidence *e) {
  int64_t odd = 0, total = 0;
  if (dit_judge_count_odd(&e->native, &odd, NULL) != DIT_OK) {
    return DIT_OK;
  }
  total = odd;
  for (int round = 0; round < DIT_VERDICT_ROUNDS && total < DIT_VERDICT_ODD; round++) {
    struct dit_tensor_view native, wide;
    struct dit_judge_error error;
    enum dit_status status = jitter_open(e, round, false, &native, &wide);
    if (status != DIT_OK) {
      return run_excuse(status);
    }
    DIT_RETURN_IF_NOT_OK(dit_judge_measure(&native, &wide, 0, 0, &error, e->err));
    if (error.unequal > 0 || dit_judge_count_odd(&native, &odd, NULL) != DIT_OK) {
      return DIT_OK;
    }
    total += odd;
  }
  e->exact = total >= DIT_VERDICT_ODD;
  return DIT_OK;
}

// Operators that only choose, move or copy numbers: what the table says, where the CPU's result confirms it.
static enum dit_status is_exact_by_table(struct evidence *e, bool *exact) {
  *exact = (e->c->traits & (DIT_OPERATOR_EXACT | DIT_OPERATOR_VIEW)) && e->c->what != DIT_VERDICT_GRAD;
  if (*exact && e->c->op && e->c->op->unless) {
    DIT_RETURN_IF_NOT_OK(evidence_ask_arguments(e));
    *exact = !e->arguments.is_inexact;
  }
  return DIT_OK;
}

enum dit_status evidence_measure(struct evidence *e) {
  struct dit_judge_error error = {0};
  double roundoff = e->type.roundoff, most = alpha_get_most(e);
  e->alpha = 1;
  e->cpu_error = NAN;
  e->blind = e->reference_roundoff >= roundoff;
  if (e->has_native) {
    DIT_RETURN_IF_NOT_OK(dit_judge_measure(&e->native, &e->wide, most * roundoff, e->type.floor, &error, e->err));
    e->scale = error.scale;
    if (error.unequal == 0) {
      DIT_RETURN_IF_NOT_OK(is_exact_by_table(e, &e->exact));
    }
    e->blind = e->blind && !e->exact;
    e->residual = error.residual;  // float64 of narrower arguments: what the CPU rounds before it computes in float64
  }
  if (e->has_native && !e->blind) {
    e->largest = e->cpu_error = error.largest;
    e->alpha = fmin(most, fmax(e->alpha, error.ratio / roundoff));
    e->residual = error.residual;
    if (error.unequal == 0 && !e->exact && e->reference_roundoff == 0) {
      DIT_RETURN_IF_NOT_OK(exactness_prove(e));
    }
  }
  // Without the CPU's error single elements are judged by what moves them; under autocast, where many roundings lie on
  // the way, all of them by the largest move.
  int64_t known = e->has_native ? error.finite : e->c->between > 0 ? e->device->numel : 0;
  e->thin = !e->exact && (e->blind || known < DIT_VERDICT_THIN);
  return DIT_OK;
}

enum dit_status evidence_ask_other(struct evidence *e) {
  if (e->c->is_careful && (e->c->traits & DIT_OPERATOR_SCAN)) {
    return DIT_OK;  // the embedded device adds up as the CPU does
  }
  const struct dit_verdict_request request = {.kind = DIT_RUN_OTHER};
  struct dit_tensor_view other;
  struct dit_judge_error error;
  enum dit_status status = evidence_run(e, &request, &other);
  if (status != DIT_OK) {
    return run_excuse(status);
  }
  double roundoff = e->type.roundoff, most = alpha_get_most(e);
  DIT_RETURN_IF_NOT_OK(dit_judge_measure(&other, &e->wide, most * roundoff, e->type.floor, &error, e->err));
  e->largest = fmax(e->largest, error.largest);
  e->alpha = fmin(most, fmax(e->alpha, error.ratio / roundoff));
  e->residual = fmax(e->residual, error.residual);
  return evidence_apply(e);
}

enum dit_status evidence_jitter(struct evidence *e, bool narrow, double scale) {
  double relative = narrow ? 4 * 0x1p-24 : alpha_get_most(e) * e->type.roundoff;
  int rounds = narrow && e->device->numel >= DIT_VERDICT_THIN ? 1 : DIT_VERDICT_ROUNDS;
  for (int round = 0; round < rounds && e->has_native; round++) {
    struct dit_tensor_view native, wide;
    struct dit_judge_error error;
    enum dit_status status = jitter_open(e, round, narrow, &native, &wide);
    if (status == DIT_ERR_UNSUPPORTED) {
      break;
    }
    DIT_RETURN_IF_NOT_OK(status);
    DIT_RETURN_IF_NOT_OK(dit_judge_measure(&native, &wide, relative, e->type.floor, &error, e->err));
    e->residual = fmax(e->residual, scale * error.residual);
  }
  return evidence_apply(e);
}

// NaN and infinities

// The reference as numbers that may be changed.
static enum dit_status excused_open(struct evidence *e) {
  return e->excused.data ? DIT_OK : values_read(&e->wide, &e->excused, e->err);
}

enum dit_status evidence_excuse(struct evidence *e) {
  if (!e->has_native) {
    return DIT_OK;
  }
  struct values mine = {0}, native = {0};
  enum dit_status status = values_read(e->device, &mine, e->err);
  status = status == DIT_OK ? values_read(&e->native, &native, e->err) : status;
  status = status == DIT_OK ? excused_open(e) : status;
  if (status == DIT_OK && mine.count == native.count && mine.count == e->excused.count) {
    for (int64_t i = 0; i < mine.count; i++) {
      bool same = mine.data[i] == native.data[i] || (isnan(mine.data[i]) && isnan(native.data[i]));
      if (same && !isfinite(native.data[i])) {
        e->excused.data[i] = mine.data[i];
      }
    }
    e->wide = e->excused.view;
  }
  values_reset(&mine);
  values_reset(&native);
  return status == DIT_OK ? evidence_apply(e) : status;
}

// What the sums of a call may come to on the way.
struct reach {
  bool has_bad;    ///< an argument or the reference is not finite: no sum is to be expected finite
  double largest;  ///< no partial sum of products of two arguments, or of terms as large as the result, is beyond it
};

static void reach_add_reference(struct reach *reach, const struct values *wide, double terms) {
  for (int64_t i = 0; i < wide->count; i++) {
    double size = fabs(wide->data[i]);
    reach->has_bad |= !isfinite(size);
    reach->largest = isfinite(size) ? fmax(reach->largest, size * terms) : reach->largest;
  }
}

static enum dit_status reach_get(const struct evidence *e, const struct values *wide, struct reach *reach) {
  double first = 0, second = 0, terms = 1;
  *reach = (struct reach){0};
  for (int i = 0; i < e->arguments.input_count; i++) {
    const struct dit_tensor_view *input = &e->arguments.inputs[i];
    enum dit_dtype_class class = dit_dtype_get_class(input->dtype);
    struct dit_tensor_stats stats;
    if (input->numel == 0 || (class != DIT_DTYPE_CLASS_FLOAT && class != DIT_DTYPE_CLASS_COMPLEX)) {
      continue;
    }
    DIT_RETURN_IF_NOT_OK(dit_tensor_get_stats(input, &stats, e->err));
    reach->has_bad |= stats.nan > 0 || stats.pos_inf > 0 || stats.neg_inf > 0;
    double largest = isfinite(stats.abs_max) ? stats.abs_max : 0;
    second = largest > first ? first : fmax(second, largest);
    first = fmax(first, largest);
    terms = fmax(terms, (double)input->numel);
  }
  reach->largest = first * second * terms;
  reach_add_reference(reach, wide, terms);
  return DIT_OK;
}

// Operators that mix elements keep their sums in float32 on the way, in an order of the device's own: beyond its range
// a partial sum is an infinity of its own sign, and the next one may make a NaN of it. Convolutions may go through
// transforms, which spread a NaN over all results near it, or leave out the padding, where 0 * NaN would be one; those
// of the embedded device do not.
enum dit_status evidence_excuse_sums(struct evidence *e) {
  const struct dit_operator *op = e->c->op;
  if (!op || e->blind || (e->c->traits & DIT_OPERATOR_POINTWISE) ||
      !(e->c->traits & (DIT_OPERATOR_CONTRACTION | DIT_OPERATOR_MIXES))) {
    return DIT_OK;
  }
  struct values mine = {0};
  struct reach reach;
  DIT_RETURN_IF_NOT_OK(evidence_ask_arguments(e));
  enum dit_status status = values_read(e->device, &mine, e->err);
  status = status == DIT_OK ? excused_open(e) : status;
  status = status == DIT_OK ? reach_get(e, &e->excused, &reach) : status;
  if (status != DIT_OK || mine.count != e->excused.count) {
    values_reset(&mine);
    return status;
  }
  bool spreads = !e->c->is_careful && reach.has_bad && op->length == DIT_OPERATOR_LENGTH_WINDOW;
  bool overflows = !reach.has_bad && reach.largest > (e->type.roundoff <= 0x1p-53 ? DBL_MAX : FLT_MAX);
  for (int64_t i = 0; (spreads || overflows) && i < mine.count; i++) {
    bool excused = !isfinite(mine.data[i]) || (spreads && !isfinite(e->excused.data[i]));
    e->excused.data[i] = excused ? mine.data[i] : e->excused.data[i];
  }
  e->wide = e->excused.view;
  values_reset(&mine);
  return evidence_apply(e);
}

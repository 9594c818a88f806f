// Is this result right: the auto verdict (docs/verdict.md derives it; dit/judge.h does the arithmetic).
//
// A result that equals the legacy run's, rounded to its dtype, is right at once; so is one within the yardstick that an
// earlier call of the same operator and signature left behind. Everything else is judged by further runs: in float64
// (the reference), in the program's dtypes (the CPU's own error), and, where that error says little, in float64 with
// inputs that are off by a rounding (the conditioning). "Wrong" is only ever said after them. All state is the table of
// yardsticks, of fixed size, under the GIL.
#include "tools/compare/judge.h"

#include <math.h>
#include <string.h>

#include "dit/random.h"
#include "tools/compare/state.h"

#define JUDGE_FACTOR 4.0       ///< F: times the CPU's own error
#define JUDGE_SEEN_FACTOR 2.0  ///< the same when an earlier call's error is used
#define JUDGE_THIN 64          ///< elements below which the CPU's error says little
#define JUDGE_SHAKES 8         ///< shaken runs at most
#define JUDGE_JITTER 4         ///< moves of the inputs, in unit roundoffs
#define JUDGE_ODD 16           ///< full significands that prove that nothing was rounded
#define JUDGE_TABLE 4096

// ---- yardsticks

struct yardstick {
  uint64_t key;  ///< 0: free
  double relative;
  double residual;  ///< relative to the largest number of the result
};

static struct yardstick yardsticks[JUDGE_TABLE];

static uint64_t yardstick_get_key(const struct judge_runs *runs, int index, const struct dit_tensor_view *view) {
  uint64_t key = dit_random_mix(runs->c->signature, runs->c->op->key);
  key = dit_random_mix(key, (uint64_t)runs->what << 40 | (uint64_t)(uint32_t)index << 8 | (uint64_t)view->dtype);
  for (int dim = 0; dim < view->ndim; dim++) {
    key = dit_random_mix(key, (uint64_t)view->sizes[dim]);
  }
  return key | 1;
}

static void yardstick_put(uint64_t key, double relative, double residual) {
  yardsticks[key / 2 % JUDGE_TABLE] = (struct yardstick){key, relative, residual};
}

static const struct yardstick *yardstick_get(uint64_t key) {
  const struct yardstick *entry = &yardsticks[key / 2 % JUDGE_TABLE];
  return entry->key == key ? entry : NULL;
}

bool judge_seen_get(struct compare_case *c, enum compare_what what, int index, const struct dit_tensor_view *view,
                    double *relative, double *residual) {
  const struct judge_runs runs = {.c = c, .what = what};
  const struct yardstick *seen = yardstick_get(yardstick_get_key(&runs, index, view));
  if (seen) {
    *relative = seen->relative;
    *residual = seen->residual;
  }
  return seen != NULL;
}

// Open value number `index` of a run. 1, 0 when there is no such tensor, -1 with an exception.
static int run_open(struct judge_runs *runs, enum compare_precision precision, int index, struct judge_tensor *out) {
  struct judge_values *values = judge_runs_get(runs, precision);
  if (!values) {
    return PyErr_Occurred() ? -1 : 0;
  }
  PyObject *value = index < values->count ? values->value[index] : NULL;
  if (!value || !engine_is_tensor(value)) {
    return 0;
  }
  return judge_tensor_open(out, value) < 0 ? -1 : 1;
}

static bool shapes_agree(const struct dit_tensor_view *a, const struct dit_tensor_view *b) {
  return a->ndim == b->ndim && (a->ndim == 0 || memcmp(a->sizes, b->sizes, (size_t)a->ndim * sizeof *a->sizes) == 0);
}

// ---- the verdict on one floating tensor

/// All that is known while one tensor is judged.
struct judgement_state {
  struct judge_runs *runs;
  int index;
  const struct dit_operator *entry;
  const struct judge_tensor *device;
  struct judge_tensor wide, native;
  bool has_native;
  struct dit_judge_type type;
  double reference_roundoff;  ///< of the reference's own rounding; 0 when it is wide
  double alpha, residual;     ///< the CPU's error: alpha * roundoff * |r| + residual
  double largest;             ///< the CPU's largest error
  double scale;
  bool exact, thin;
  bool blind;          ///< the reference is not better than the result: the CPU's error cannot be measured
  PyObject *py_moves;  ///< owned: errors allowed beyond the rule, per element; NULL for none
  struct dit_judge_result result;
  struct compare_judgement *out;
};

// Runs without the GIL. 0, or -1 with an exception.
static int state_measure(const struct judge_tensor *x, const struct judge_tensor *r, double relative, double floor,
                         struct dit_judge_error *error) {
  struct dit_error err = {0};
  enum dit_status status;
  Py_BEGIN_ALLOW_THREADS;
  status = dit_judge_measure(&x->view, &r->view, relative, floor, error, &err);
  Py_END_ALLOW_THREADS;
  if (status != DIT_OK) {
    PyErr_SetString(PyExc_NotImplementedError, err.message);
  }
  return status == DIT_OK ? 0 : -1;
}

static int rule_apply(const struct judge_tensor *x, const struct judge_tensor *r, const struct dit_judge_rule *rule,
                      struct dit_judge_result *result) {
  struct dit_error err = {0};
  enum dit_status status;
  Py_BEGIN_ALLOW_THREADS;
  status = dit_judge_compare(&x->view, &r->view, rule, result, &err);
  Py_END_ALLOW_THREADS;
  if (status != DIT_OK) {
    PyErr_SetString(PyExc_NotImplementedError, err.message);
  }
  return status == DIT_OK ? 0 : -1;
}

// The most that elementwise errors of the CPU are taken for a property of the operator (in roundoffs): vendors' math
// functions are good to about 8 units in the last place (16 roundoffs, a factor of 4 included) in float32 and float64;
// in narrower types the final rounding is all there is.
static double get_alpha_most(const struct dit_judge_type *type) {
  return type->roundoff < 0x1p-20 ? 4 : 1;
}

// One pair of runs on the CPU: the error of the program's dtypes against the wide one, added to what is known.
static int state_add_error(struct judgement_state *s, const struct judge_tensor *native,
                           const struct judge_tensor *wide, struct dit_judge_error *error) {
  double roundoff = s->type.roundoff, most = get_alpha_most(&s->type);
  if (state_measure(native, wide, most * roundoff, s->type.floor, error) < 0) {
    return -1;
  }
  s->scale = fmax(s->scale, error->scale);
  s->largest = fmax(s->largest, error->largest);
  s->alpha = fmin(most, fmax(s->alpha, error->ratio / roundoff));
  s->residual = fmax(s->residual, error->residual);
  return 0;
}

// Both runs at inputs a few units in the last place away. 1, 0 or -1.
static int jitter_open(struct judgement_state *s, int round, bool narrow, struct judge_tensor *native,
                       struct judge_tensor *wide) {
  struct compare_case *c = s->runs->c;
  c->jitter = JUDGE_JITTER;
  c->narrow = narrow;
  c->shake = 0;
  c->shake_seed = dit_random_mix(c->id, UINT64_C(0x1000) + (uint64_t)round);
  int status = run_open(s->runs, COMPARE_JITTER, s->index, native);
  status = status <= 0 ? status : run_open(s->runs, COMPARE_JITTER_WIDE, s->index, wide);
  c->jitter = 0;
  c->narrow = false;
  return status;
}

// Does the CPU round nothing at all? It did not here; with enough full significands, here and at inputs nearby, that is
// no accident but the operator's nature.
static int state_prove_exact(struct judgement_state *s) {
  int64_t odd = 0, total = 0;
  int status = dit_judge_count_odd(&s->native.view, &odd, NULL) == DIT_OK;
  total = odd;
  for (int round = 0; round < JUDGE_SHAKES && status > 0 && total < JUDGE_ODD; round++) {
    struct judge_tensor native = {0}, wide = {0};
    struct dit_judge_error error = {.unequal = 1};
    status = jitter_open(s, round, false, &native, &wide);
    if (status > 0 && shapes_agree(&native.view, &wide.view)) {
      status = state_measure(&native, &wide, 0, 0, &error) < 0 ? -1 : 1;
      odd = 0;
      (void)!dit_judge_count_odd(&native.view, &odd, NULL);
    }
    judge_tensor_close(&native);
    judge_tensor_close(&wide);
    status = status > 0 && error.unequal > 0 ? 0 : status;
    total += odd;
  }
  s->exact = status > 0 && total >= JUDGE_ODD;
  return status < 0 ? -1 : 0;
}

// The CPU's own error.
static int state_measure_cpu(struct judgement_state *s) {
  struct dit_judge_error error = {0};
  s->alpha = 1;
  s->blind = s->reference_roundoff >= s->type.roundoff;
  if (s->has_native && !s->blind) {
    if (state_add_error(s, &s->native, &s->wide, &error) < 0) {
      return -1;
    }
    s->out->cpu_error = error.largest;
    if (error.unequal == 0 && !s->exact && s->reference_roundoff == 0 && state_prove_exact(s) < 0) {
      return -1;
    }
  }
  s->thin = !s->exact && error.finite < JUDGE_THIN;  // also: without the CPU's error
  return 0;
}

static struct dit_judge_rule state_get_rule(const struct judgement_state *s) {
  double roundoff = s->type.roundoff, alpha = s->exact ? 0 : s->thin ? get_alpha_most(&s->type) : s->alpha;
  return (struct dit_judge_rule){
      .relative = JUDGE_FACTOR * alpha * roundoff + s->reference_roundoff,
      .absolute = JUDGE_FACTOR * s->residual,
      .cap = s->thin ? INFINITY : JUDGE_FACTOR * s->largest,
      .cap_relative = s->exact ? 0 : JUDGE_FACTOR * roundoff + s->reference_roundoff,
      .floor = s->type.floor,
      .limit = s->type.limit,
  };
}

static int state_apply(struct judgement_state *s) {
  struct dit_judge_rule rule = state_get_rule(s);
  return rule_apply(s->device, &s->wide, &rule, &s->result);
}

// ---- runs with inputs nearby

// The CPU's own error at inputs that are a few units in the last place away; several rounds where a result has few
// elements. `narrow`: in float32, whatever the program's dtype is; `scale` makes its error that of the program's dtype.
static int state_jitter(struct judgement_state *s, bool narrow, double scale) {
  double relative = narrow ? 4 * 0x1p-24 : get_alpha_most(&s->type) * s->type.roundoff;
  int status = s->has_native, rounds = s->device->view.numel < JUDGE_THIN ? JUDGE_SHAKES
                                       : narrow                           ? 1
                                                                          : JUDGE_SHAKES / 2;
  for (int round = 0; round < rounds && status > 0; round++) {
    struct judge_tensor native = {0}, wide = {0};
    struct dit_judge_error error;
    status = jitter_open(s, round, narrow, &native, &wide);
    if (status > 0 && shapes_agree(&native.view, &wide.view)) {
      status = state_measure(&native, &wide, relative, s->type.floor, &error) < 0 ? -1 : 1;
      s->residual = status < 0 ? s->residual : fmax(s->residual, scale * error.residual);
    }
    judge_tensor_close(&native);
    judge_tensor_close(&wide);
  }
  return status < 0 ? -1 : state_apply(s);
}

// ---- shaken runs: how far the result moves when the inputs are off by a rounding

// Raise the errors that are allowed per element. 0 or -1.
static int state_add_moves(struct judgement_state *s, const struct judge_tensor *x, const struct judge_tensor *r,
                           double factor) {
  if (!shapes_agree(&x->view, &s->wide.view) || !shapes_agree(&r->view, &s->wide.view)) {
    return 0;
  }
  PyObject *py_moves =
      judge_helper_call("add_moves", "OOOd", s->py_moves ? s->py_moves : Py_None, x->py_tensor, r->py_tensor, factor);
  if (!py_moves) {
    return -1;
  }
  Py_XSETREF(s->py_moves, py_moves);
  return 0;
}

// The rule again, with the device's result brought nearer by what the runs allow at each element.
static int state_apply_moves(struct judgement_state *s) {
  if (!s->py_moves) {
    return 0;
  }
  PyObject *py_near = judge_helper_call("draw_nearer", "OOO", s->device->py_tensor, s->wide.py_tensor, s->py_moves);
  struct judge_tensor near = {0};
  int status = py_near ? judge_tensor_open(&near, py_near) : -1;
  Py_XDECREF(py_near);
  if (status == 0) {
    struct dit_judge_rule rule = state_get_rule(s);
    struct dit_judge_result result;
    status = rule_apply(&near, &s->wide, &rule, &result);
    if (status == 0 && result.wrong == 0) {
      s->result.wrong = 0;
    }
  }
  judge_tensor_close(&near);
  return status;
}

// May a rounding on the way to the result grow? Not in operators that PyTorch calls pointwise. In all others (scans,
// norms, interpolation, whole optimizers, functions of the program) elements are mixed, and a device may round what
// lies between to its dtype, or add it up in another order; so it may in derivatives such as 1 - y^2. The embedded
// device does neither.
static bool state_mixes(const struct judgement_state *s) {
  struct compare_op *info = compare_op_find(s->runs->c->tool->state, s->runs->c->op);
  int8_t *mixes = info ? &info->mixes[s->runs->what == COMPARE_GRAD] : NULL;
  if (mixes && *mixes < 0) {
    PyObject *py_answer = judge_helper_call("is_pointwise", "si", info->op->name, s->runs->what == COMPARE_GRAD);
    *mixes = py_answer && PyObject_IsTrue(py_answer) == 0;
    Py_XDECREF(py_answer);
    py_error_drop();
  }
  return mixes && *mixes > 0 && s->device->info.place != ENGINE_PLACE_HOST;
}

// Terms that an element of the result sums up.
static double state_get_length(const struct judgement_state *s) {
  return judge_get_length(s->runs->c, s->runs->what, s->entry, s->device->view.numel, state_mixes(s));
}

// The embedded device sums in float32 at least and takes its inputs as they are; other devices may not.
static bool state_can_shake(const struct judgement_state *s) {
  bool is_reduced = s->type.roundoff >= 0x1p-20;
  if (s->blind) {
    return true;
  }
  if (s->exact || (is_reduced && s->device->info.place == ENGINE_PLACE_HOST)) {
    return false;
  }
  return (s->entry && s->entry->traits & DIT_OPERATOR_CONTRACTION) || state_mixes(s) || state_get_length(s) >= 2;
}

static double get_growth(const struct judgement_state *s) {
  bool is_contraction = s->entry && s->entry->traits & DIT_OPERATOR_CONTRACTION;
  bool is_scan = s->entry && s->entry->traits & DIT_OPERATOR_SCAN;
  if (s->type.roundoff >= 0x1p-20 && !(state_mixes(s) && (is_scan || s->thin) && !is_contraction)) {
    return 1;  // sums run in float32 at least, but for scans: their errors vanish beside those of the inputs
  }
  double length = state_get_length(s), levels = sqrt(1 + log2(length));
  // Kernels of products add the terms of one element one after the other: a running sum.
  return is_contraction ? fmax(levels, sqrt(length) / 2) : levels;
}

// The relative error of the inputs: that of their own dtypes (0), of autocast, or of TF32. -1: an exception.
static double get_shake(const struct judgement_state *s) {
  const struct compare_case *c = s->runs->c;
  if (c->has_autocast || s->blind) {
    // A wide result of narrow inputs, such as a loss: what lies between may be in the inputs' dtype.
    double roundoff = s->type.roundoff;
    for (int i = 0; c->has_autocast && i < c->twin_count; i++) {
      struct dit_judge_type type;
      roundoff = dit_judge_type_get(c->dtypes[i], &type, NULL) == DIT_OK ? fmax(roundoff, type.roundoff) : roundoff;
    }
    return roundoff;
  }
  bool may_round = s->device->info.place != ENGINE_PLACE_HOST && s->type.roundoff == 0x1p-24 && s->entry &&
                   s->entry->traits & DIT_OPERATOR_CONTRACTION;
  if (!may_round) {
    return 0;
  }
  PyObject *py_roundoff = judge_helper_call("get_input_roundoff", "s", s->entry->name);
  double roundoff = py_roundoff ? PyFloat_AsDouble(py_roundoff) : -1;
  Py_XDECREF(py_roundoff);
  return roundoff;
}

// One shaken run, its moves added to what is allowed, and the rule again. 1, 0: no such run, or -1.
static int state_shake_once(struct judgement_state *s, double growth) {
  struct judge_tensor shaken = {0};
  struct dit_judge_error error;
  int status = run_open(s->runs, COMPARE_SHAKEN, s->index, &shaken);
  if (status > 0 && s->thin) {
    status = state_add_moves(s, &shaken, &s->wide, JUDGE_FACTOR * growth) < 0 ? -1 : 1;
  } else if (status > 0 && shapes_agree(&shaken.view, &s->wide.view)) {
    status = state_measure(&shaken, &s->wide, 0, 0, &error) < 0 ? -1 : 1;
    s->residual = status < 0 ? s->residual : fmax(s->residual, growth * error.largest);
    s->largest = fmax(s->largest, s->residual);
  }
  judge_tensor_close(&shaken);
  if (status > 0 && (s->thin ? state_apply_moves(s) : state_apply(s)) < 0) {
    return -1;
  }
  return status;
}

// Results of few elements are judged element by element, others by the largest move.
static int state_shake(struct judgement_state *s) {
  struct compare_case *c = s->runs->c;
  int status = 1, shakes = s->thin ? JUDGE_SHAKES : state_mixes(s) ? JUDGE_SHAKES / 2 : 1;
  double shake = get_shake(s);
  if (shake < 0) {
    return -1;
  }
  double growth = shake > s->type.roundoff ? 1 : get_growth(s);
  if (c->has_autocast && shake > s->type.roundoff) {
    // What lies between may be of the result's size, as the logarithms of a cross entropy are, and small inputs do not
    // tell how much it loses.
    s->residual = fmax(s->residual, shake * s->scale);
    s->largest = fmax(s->largest, s->residual);
    if (state_apply(s) < 0) {
      return -1;
    }
  }
  for (int i = 0; i < shakes && status > 0 && s->result.wrong > 0; i++) {
    c->shake = shake;
    c->shake_seed = dit_random_mix(c->id, (uint64_t)i + 1);
    status = state_shake_once(s, growth);
  }
  return status < 0 ? -1 : 0;
}

// ---- NaN and infinities that the CPU makes too

static int state_excuse(struct judgement_state *s) {
  if (!s->has_native) {
    return 0;
  }
  PyObject *py_wide = judge_helper_call("excuse", "OOO", s->device->py_tensor, s->native.py_tensor, s->wide.py_tensor);
  struct judge_tensor better = {0};
  int status = py_wide ? judge_tensor_open(&better, py_wide) : -1;
  Py_XDECREF(py_wide);
  if (status == 0) {
    judge_tensor_close(&s->wide);
    s->wide = better;
    status = state_apply(s);
  }
  return status;
}

// ---- putting it together

static void out_set(struct compare_judgement *out, enum compare_verdict verdict, const char *reason) {
  out->auto_verdict = verdict;
  (void)snprintf(out->reason, sizeof out->reason, "%s", reason);
}

static void out_tell_wrong(struct compare_judgement *out, const struct dit_judge_result *result) {
  out->auto_verdict = COMPARE_WRONG;
  out->error = result->error;
  out->allowed = result->allowed;
  out->wrong = result->wrong;
  out->index = result->index;
  out->value = result->value;
  out->reference = result->reference;
  if (result->nonfinite > 0) {
    (void)snprintf(out->reason, sizeof out->reason, "%g where the CPU has %g (%lld of %lld elements)", result->value,
                   result->reference, (long long)result->nonfinite, (long long)result->numel);
    return;
  }
  if (!isnan(out->cpu_error)) {
    (void)snprintf(out->reason, sizeof out->reason, "the CPU's own error in this dtype is %.3g", out->cpu_error);
  } else {
    (void)snprintf(out->reason, sizeof out->reason, "%.9g instead of %.9g", result->value, result->reference);
  }
}

// The reference and the CPU's result in the program's dtype. 1; 0: the verdict is set; -1.
static int state_open_runs(struct judgement_state *s) {
  int found = run_open(s->runs, COMPARE_WIDE, s->index, &s->wide);
  if (found <= 0) {
    char reason[160];
    (void)snprintf(reason, sizeof reason, "no float64 reference: %.120s", s->runs->wide.reason);
    out_set(s->out, COMPARE_UNKNOWN, reason);
    return found;
  }
  if (!shapes_agree(&s->wide.view, &s->device->view)) {
    out_set(s->out, COMPARE_UNKNOWN, "the float64 reference has another shape");
    return 0;
  }
  found = run_open(s->runs, COMPARE_NATIVE, s->index, &s->native);
  if (found < 0) {
    return -1;
  }
  s->has_native = found && shapes_agree(&s->native.view, &s->device->view);
  struct dit_judge_type wide;
  bool is_floating = dit_judge_type_get(s->wide.view.dtype, &wide, NULL) == DIT_OK;
  if (!is_floating) {
    out_set(s->out, COMPARE_UNKNOWN, "the float64 reference is no floating tensor");
    return 0;
  }
  s->reference_roundoff = wide.roundoff > 0x1p-53 || s->type.roundoff <= 0x1p-53 ? wide.roundoff : 0;
  const struct compare_op *info = compare_op_find(s->runs->c->tool->state, s->runs->c->op);
  s->exact = info && info->is_exact && (info->op->flags & ENGINE_OP_VIEW) && s->runs->what != COMPARE_GRAD;
  s->reference_roundoff = s->exact ? 0 : s->reference_roundoff;
  return 1;
}

// Beyond the rule, and not by a NaN or an infinity, which nothing excuses any more.
static bool is_suspicious(const struct judgement_state *s) {
  return s->result.wrong > 0 && s->result.nonfinite == 0;
}

static int state_judge(struct judgement_state *s) {
  int found = state_open_runs(s);
  if (found <= 0) {
    return found;
  }
  if (state_measure_cpu(s) < 0 || state_apply(s) < 0) {
    return -1;
  }
  if (s->result.nonfinite > 0 && state_excuse(s) < 0) {
    return -1;
  }
  // More evidence of the CPU's error: few elements, or an error that is still below four times the CPU's largest one.
  bool is_near = s->result.error <= JUDGE_FACTOR * s->largest;
  if (is_suspicious(s) && !s->exact && !s->blind && (s->thin || is_near) && state_jitter(s, false, 1) < 0) {
    return -1;
  }
  // Narrow types: sums run in float32, and their errors show only where the result is nearly 0, which is rare; float32
  // runs show them everywhere. float64: no reference is better; it errs as float32 does, on its own scale (2^-29; four
  // times that, since the evidence is indirect).
  bool is_narrow = s->type.roundoff >= 0x1p-20, is_widest = s->blind && s->type.roundoff <= 0x1p-53;
  if (is_suspicious(s) && !s->exact && (is_narrow || is_widest) && state_jitter(s, true, is_widest ? 0x1p-27 : 1) < 0) {
    return -1;
  }
  if (is_suspicious(s) && state_can_shake(s) && state_shake(s) < 0) {
    return -1;
  }
  s->out->error = s->result.error;
  s->out->allowed = s->result.allowed;
  if (s->result.wrong > 0) {
    out_tell_wrong(s->out, &s->result);
    return 0;
  }
  s->out->auto_verdict = COMPARE_RIGHT;
  double scale = s->scale > 0 ? s->scale : 1;
  yardstick_put(yardstick_get_key(s->runs, s->index, &s->device->view),
                (s->exact ? 0 : JUDGE_SEEN_FACTOR * s->alpha * s->type.roundoff) + s->reference_roundoff,
                JUDGE_SEEN_FACTOR * s->residual / scale);
  return 0;
}

// Within what an earlier call of this kind allowed. 1, 0 or -1.
static int is_within_yardstick(const struct judgement_state *s, const struct judge_tensor *reference,
                               const struct dit_compare_result *compared) {
  const struct yardstick *seen = yardstick_get(yardstick_get_key(s->runs, s->index, &s->device->view));
  if (!seen) {
    return 0;
  }
  double scale = fmax(fabs(compared->min_b), fabs(compared->max_b));
  struct dit_judge_rule rule = {
      .relative = seen->relative,
      .absolute = isfinite(scale) ? seen->residual * scale : 0,
      .cap = INFINITY,
      .floor = s->type.floor,
      .limit = s->type.limit,
  };
  struct dit_judge_result result;
  return rule_apply(s->device, reference, &rule, &result) < 0 ? -1 : result.wrong == 0;
}

// Integers that point into the first argument, along a dimension that is known.
static bool entry_is_index(const struct dit_operator *entry) {
  return entry && entry->traits & DIT_OPERATOR_TIES && entry->dim != -1;
}

// The gradient of a sort or a maximum goes to one of several equal values: which one is not said. 0 or -1.
static int state_excuse_ties(struct judgement_state *s) {
  bool picks = entry_is_index(s->entry) && s->runs->what == COMPARE_GRAD;
  if (!picks || s->out->auto_verdict != COMPARE_WRONG || s->result.nonfinite > 0) {
    return 0;
  }
  int ties = judge_ties_check(s->runs->c, s->entry);
  if (ties > 0) {
    out_set(s->out, COMPARE_UNKNOWN, "several values are equal: any of them may get the gradient");
  }
  return ties < 0 ? -1 : 0;
}

static int floating_judge(struct judgement_state *s, const struct judge_tensor *reference,
                          const struct dit_compare_result *compared) {
  int within = is_within_yardstick(s, reference, compared);
  if (within != 0) {
    s->out->auto_verdict = COMPARE_RIGHT;
    return within < 0 ? -1 : 0;
  }
  int status = state_judge(s);
  status = status < 0 ? status : state_excuse_ties(s);
  judge_tensor_close(&s->wide);
  judge_tensor_close(&s->native);
  Py_CLEAR(s->py_moves);
  return status;
}

// ---- integers and bool

// Equal to the CPU's in some precision: 1, 0 or -1. `result` is that of the last one that could be compared.
static int is_equal_in(struct judgement_state *s, enum compare_precision precision) {
  static const struct dit_judge_rule equal = {.limit = INFINITY};
  struct judge_tensor other = {0};
  int found = run_open(s->runs, precision, s->index, &other);
  if (found <= 0) {
    return found;
  }
  int same = 0;
  if (shapes_agree(&other.view, &s->device->view)) {
    struct dit_judge_result result;
    same = rule_apply(s->device, &other, &equal, &result) < 0 ? -1 : result.wrong == 0;
  }
  judge_tensor_close(&other);
  return same;
}

static int integer_judge(struct judgement_state *s, const struct judge_tensor *reference) {
  static const struct dit_judge_rule equal = {.limit = INFINITY};
  if (rule_apply(s->device, reference, &equal, &s->result) < 0) {
    return -1;
  }
  int right = s->result.wrong == 0;
  right = right ? right : is_equal_in(s, COMPARE_NATIVE);
  right = right ? right : is_equal_in(s, COMPARE_WIDE);
  if (right == 0 && entry_is_index(s->entry)) {
    right = judge_index_check(s->runs->c, s->entry, s->device->py_tensor, reference->py_tensor);
  }
  if (right < 0) {
    return -1;
  }
  s->out->auto_verdict = COMPARE_RIGHT;
  if (!right) {
    out_tell_wrong(s->out, &s->result);
  }
  return 0;
}

// ---- one pair of values

// Results that may differ and yet be right. 1, 0 or -1.
static int entry_is_loose(struct judge_runs *runs, int index, const struct dit_operator *entry) {
  if (!entry || !(entry->traits & (DIT_OPERATOR_LOOSE | DIT_OPERATOR_SCATTER))) {
    return 0;
  }
  if (entry->traits & DIT_OPERATOR_SCATTER) {
    return judge_scatter_check(runs->c, entry);
  }
  return runs->what == COMPARE_GRAD || (entry->loose >> (index & 31) & 1);
}

static int tensors_judge(struct judge_runs *runs, int index, const struct dit_operator *entry,
                         const struct judge_tensor *device, const struct judge_tensor *reference,
                         struct compare_judgement *out) {
  out->numel = device->view.numel;
  bool is_private = (device->view.numel == 0 || reference->view.numel == 0) && index > 0 &&
                    runs->what == COMPARE_OUTPUT && dit_operator_has(runs->c->op->name, DIT_OPERATOR_PRIVATE);
  if (is_private && !shapes_agree(&device->view, &reference->view)) {
    out_set(out, COMPARE_UNKNOWN, "statistics that nobody needs are returned by one of the two only");
    return 0;
  }
  if (!shapes_agree(&device->view, &reference->view)) {
    out->close = false;
    out->cosine = -1;
    out->max_abs_diff = out->max_relative_diff = NAN;
    (void)snprintf(out->info, sizeof out->info, "Inconsistent shape");
    out_set(out, COMPARE_WRONG, "the result has another shape than the CPU's");
    return 0;
  }
  struct dit_compare_result compared;
  if (judge_legacy_tensor(runs->c, device, reference, out, &compared) < 0) {
    return -1;
  }
  if (compared.unequal == 0) {
    out->auto_verdict = COMPARE_RIGHT;
    return 0;
  }
  int loose = entry_is_loose(runs, index, entry);
  if (loose < 0) {
    return -1;
  }
  if (loose > 0 && compared.nonfinite_mismatch == 0) {
    out_set(out, COMPARE_UNKNOWN, entry->reason);
    return 0;
  }
  struct judgement_state state = {
      .runs = runs, .index = index, .entry = entry, .device = device, .out = out, .result = {.index = -1}};
  if (dit_judge_type_get(device->view.dtype, &state.type, NULL) != DIT_OK) {
    return integer_judge(&state, reference);
  }
  return floating_judge(&state, reference, &compared);
}

int judge_excuse(struct compare_judgement *out) {
  if (!PyErr_ExceptionMatches(PyExc_TypeError) && !PyErr_ExceptionMatches(PyExc_RuntimeError) &&
      !PyErr_ExceptionMatches(PyExc_ValueError)) {
    return -1;  // NotImplementedError is a RuntimeError
  }
  PyObject *kind, *py_error, *traceback;
  PyErr_Fetch(&kind, &py_error, &traceback);
  PyErr_NormalizeException(&kind, &py_error, &traceback);
  PyObject *py_text = py_error ? PyObject_Str(py_error) : NULL;
  const char *text = py_text ? PyUnicode_AsUTF8(py_text) : NULL;
  char reason[160];
  (void)snprintf(reason, sizeof reason, "not comparable: %.120s", text ? text : "");
  reason[strcspn(reason, "\n")] = 0;
  out_set(out, COMPARE_UNKNOWN, reason);
  if (!out->info[0]) {
    memcpy(out->info, reason, sizeof out->info);
  }
  out->close = false;
  out->cosine = -1;
  out->max_abs_diff = out->max_relative_diff = NAN;
  Py_XDECREF(py_text);
  Py_XDECREF(kind);
  Py_XDECREF(py_error);
  Py_XDECREF(traceback);
  py_error_drop();
  return 0;
}

static void out_init(struct compare_judgement *out) {
  *out = (struct compare_judgement){.close = true, .cosine = 1, .index = -1, .cpu_error = NAN};
}

// A gradient that one side does not have.
static void missing_judge(PyObject *device, PyObject *reference, struct compare_judgement *out) {
  bool none = !device && !reference;
  out_set(out, none ? COMPARE_RIGHT : COMPARE_UNKNOWN,
          none      ? ""
          : !device ? "the device made no gradient for this tensor"
                    : "the CPU made no gradient for this tensor");
}

static int value_judge(struct judge_runs *runs, int index, const struct dit_operator *entry, PyObject *device,
                       PyObject *reference, struct compare_judgement *out) {
  if (runs->what == COMPARE_GRAD) {
    device = device == Py_None ? NULL : device;
    reference = reference == Py_None ? NULL : reference;
  }
  if (!device || !reference) {
    missing_judge(device, reference, out);
    return 0;
  }
  if (!engine_is_tensor(device) || !engine_is_tensor(reference)) {
    int status = judge_legacy_value(device, reference, out);
    if (status == 0 && !out->close && judge_value_is_opaque(device, reference)) {
      (void)snprintf(out->reason, sizeof out->reason, "values of type %.80s cannot be compared",
                     Py_TYPE(device)->tp_name);
      out->auto_verdict = COMPARE_UNKNOWN;
      return 0;
    }
    out->auto_verdict = out->close ? COMPARE_RIGHT : COMPARE_WRONG;
    if (status == 0 && !out->close) {
      (void)snprintf(out->reason, sizeof out->reason, "%s", out->info);
    }
    return status;
  }
  struct judge_tensor a = {0}, b = {0};
  int status = judge_tensor_open(&a, device);
  status = status < 0 ? status : judge_tensor_open(&b, reference);
  status = status < 0 ? status : tensors_judge(runs, index, entry, &a, &b, out);
  judge_tensor_close(&a);
  judge_tensor_close(&b);
  return status < 0 ? judge_excuse(out) : 0;
}

int compare_judge(struct compare_case *c, enum compare_what what, PyObject *const *device, PyObject *const *reference,
                  int count, struct compare_judgement *judgements) {
  if (what == COMPARE_GRAD && compare_random_has_kept(c)) {
    return compare_random_judge(c, what, device, reference, count, judgements);
  }
  struct judge_runs runs = {.c = c, .what = what};
  const struct dit_operator *entry = dit_operator_find(c->op->name);
  bool legacy = compare_verdict_is_legacy(c);
  int status = 0;
  for (int i = 0; i < count && status == 0; i++) {
    struct compare_judgement *out = &judgements[i];
    out_init(out);
    status = value_judge(&runs, i, entry, device[i], reference[i], out);
    bool unknown = out->auto_verdict == COMPARE_UNKNOWN && isnan(out->max_abs_diff);
    out->verdict = !legacy ? out->auto_verdict : unknown ? COMPARE_UNKNOWN : out->close ? COMPARE_RIGHT : COMPARE_WRONG;
  }
  judge_runs_reset(&runs);
  return status;
}

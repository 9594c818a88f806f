/// Conditioning: how far the result moves when the inputs are off by a rounding (docs/verdict.md, steps 4 and 5).
#include "judge/shake.h"

#include <math.h>
#include <string.h>

#include "dit/alloc.h"
#include "dit/random.h"

static bool has_trait(const struct evidence *e, uint64_t trait) {
  return (e->c->traits & trait) != 0;
}

// A gradient, or what an operator's own backward gives.
static bool is_derivative(const struct evidence *e) {
  const char *name = e->c->op ? e->c->op->name : "";
  size_t length = strlen(name);
  return e->c->what == DIT_VERDICT_GRAD || (length > 9 && strcmp(name + length - 9, "_backward") == 0);
}

// May a rounding on the way to the result grow? Not in operators that PyTorch calls pointwise. In all others (scans,
// norms, interpolation, whole optimizers, functions of the program) elements are mixed, and a device may round what
// lies between to its dtype, or add it up in another order; so it may in derivatives such as 1 - y^2. The embedded
// device does neither.
static bool is_mixing(const struct evidence *e) {
  if (e->c->is_careful) {
    return false;
  }
  return (is_derivative(e) && has_trait(e, DIT_OPERATOR_CANCELS)) || !has_trait(e, DIT_OPERATOR_POINTWISE);
}

// Terms that an element of the result sums up, at least 1, from the numbers of elements alone. [m, k] x [k, n]: k =
// sqrt(mk * kn / mn); of gradients it is m or n: an extent of an argument, or its rows.
static double length_get(const struct evidence *e) {
  double first = 0, second = 0, longest = 1;
  for (int i = 0; i < e->arguments.input_count; i++) {
    const struct dit_tensor_view *input = &e->arguments.inputs[i];
    double elements = (double)input->numel, last = input->ndim > 0 ? (double)input->sizes[input->ndim - 1] : 1;
    longest = fmax(longest, fmax(last, last > 0 ? elements / last : 0));
    second = elements > first ? first : fmax(second, elements);
    first = fmax(first, elements);
  }
  double out = e->device->numel > 0 ? (double)e->device->numel : 1, length = first / out;
  if (has_trait(e, DIT_OPERATOR_CONTRACTION)) {
    length = fmax(length, e->c->what == DIT_VERDICT_GRAD ? longest : sqrt(first * second / out));
  }
  return fmax(1, is_mixing(e) ? fmax(length, longest) : length);
}

static bool is_narrow(const struct evidence *e) {
  return e->type.roundoff >= 0x1p-20;
}

// The embedded device sums in float32 at least and takes its inputs as they are; other devices may not.
static bool can_shake(const struct evidence *e) {
  if (e->blind || (!e->has_native && e->c->between > 0)) {
    return true;
  }
  if (e->exact || (is_narrow(e) && e->c->is_careful)) {
    return false;
  }
  return has_trait(e, DIT_OPERATOR_CONTRACTION) || is_mixing(e) || length_get(e) >= 2;
}

// How much more than one rounding of all inputs the roundings of a sum move the result.
static double growth_get(const struct evidence *e) {
  bool is_contraction = has_trait(e, DIT_OPERATOR_CONTRACTION), is_scan = has_trait(e, DIT_OPERATOR_SCAN);
  if (is_narrow(e) && !(is_mixing(e) && (is_scan || e->thin) && !is_contraction)) {
    return 1;  // sums run in float32 at least, but for scans: their errors vanish beside those of the inputs
  }
  double length = length_get(e), levels = sqrt(1 + log2(length));
  // Kernels of products add the terms of one element one after the other: a running sum. Scans are running sums.
  return is_contraction || is_scan ? fmax(levels, sqrt(length) / 2) : levels;
}

// Products of products round each time what goes into the next one: attention makes scores and then its result; its
// backward scores, the result, the gradient of the probabilities, and of these its own. The roundings of one product
// move what comes out as much as those of the inputs do, and independent ones add up as the root of their number.
static double chain_get(const struct evidence *e) {
  return !has_trait(e, DIT_OPERATOR_CHAINED) ? 1 : is_derivative(e) ? 2 : sqrt(2);
}

// The relative error of the inputs: that of their own dtypes (0), of the result where nothing is better, or of TF32.
static double size_get(const struct evidence *e) {
  if (e->blind) {
    return e->type.roundoff;
  }
  if (!e->has_native && e->c->between > 0) {
    return fmax(e->type.roundoff, e->c->between);  // the CPU cannot say what autocast costs: all of it may be narrow
  }
  bool may_round = !e->c->is_careful && e->type.roundoff == 0x1p-24 && has_trait(e, DIT_OPERATOR_CONTRACTION);
  return may_round ? e->arguments.input_roundoff : 0;
}

// Moves per element, where a result has few of them

static enum dit_status moves_add(struct evidence *e, const struct dit_tensor_view *shaken, double factor) {
  struct values x = {0}, r = {0};
  enum dit_status status = values_read(shaken, &x, e->err);
  status = status == DIT_OK ? values_read(&e->wide, &r, e->err) : status;
  if (status == DIT_OK && x.count == r.count && !e->moves) {
    e->moves = dit_calloc((size_t)(x.count > 0 ? x.count : 1), sizeof *e->moves);
    status = e->moves ? DIT_OK : dit_error_set(e->err, DIT_ERR_NOMEM, "no memory for %lld moves", (long long)x.count);
  }
  int parts = x.is_complex ? 2 : 1;
  for (int64_t i = 0; status == DIT_OK && x.count == r.count && i < x.count; i += parts) {
    double move =
        x.is_complex ? hypot(x.data[i] - r.data[i], x.data[i + 1] - r.data[i + 1]) : fabs(x.data[i] - r.data[i]);
    move = isfinite(move) ? factor * move : 0;
    e->moves[i / parts] = fmax(e->moves[i / parts], move);
  }
  values_reset(&x);
  values_reset(&r);
  return status;
}

// Every element brought nearer to the reference by as much as the moves say.
static void draw_nearer(const struct values *mine, const struct values *wide, const double *moves) {
  int parts = wide->is_complex ? 2 : 1;
  for (int64_t i = 0; i < wide->count; i += parts) {
    double size = parts == 2 ? hypot(mine->data[i] - wide->data[i], mine->data[i + 1] - wide->data[i + 1])
                             : fabs(mine->data[i] - wide->data[i]);
    double left = size > moves[i / parts] ? 1 - moves[i / parts] / size : 0;
    for (int k = 0; k < parts && isfinite(size); k++) {
      mine->data[i + k] = wide->data[i + k] + (mine->data[i + k] - wide->data[i + k]) * left;
    }
  }
}

// The rule again, with the device's result brought nearer by what the runs allow at each element.
static enum dit_status moves_apply(struct evidence *e) {
  struct values mine = {0}, wide = {0};
  enum dit_status status = values_read(e->device, &mine, e->err);
  status = status == DIT_OK ? values_read(&e->wide, &wide, e->err) : status;
  if (status == DIT_OK && e->moves && mine.count == wide.count) {
    struct dit_judge_rule rule = evidence_get_rule(e);
    struct dit_judge_result result;
    draw_nearer(&mine, &wide, e->moves);
    status = dit_judge_compare(&mine.view, &wide.view, &rule, &result, e->err);
    e->result.wrong = status == DIT_OK && result.wrong == 0 ? 0 : e->result.wrong;
  }
  values_reset(&mine);
  values_reset(&wide);
  return status;
}

// One shaken run, its moves added to what is allowed, and the rule again.
static enum dit_status shake_once(struct evidence *e, const struct dit_verdict_request *request, double growth) {
  struct dit_tensor_view shaken;
  DIT_RETURN_IF_NOT_OK(evidence_run(e, request, &shaken));
  if (e->thin) {
    DIT_RETURN_IF_NOT_OK(moves_add(e, &shaken, DIT_VERDICT_FACTOR * growth));
    return moves_apply(e);
  }
  struct dit_judge_error error;
  DIT_RETURN_IF_NOT_OK(dit_judge_measure(&shaken, &e->wide, 0, 0, &error, e->err));
  e->residual = fmax(e->residual, growth * error.largest);
  e->largest = fmax(e->largest, e->residual);
  return evidence_apply(e);
}

enum dit_status evidence_shake(struct evidence *e) {
  DIT_RETURN_IF_NOT_OK(evidence_ask_arguments(e));
  if (!can_shake(e)) {
    return DIT_OK;
  }
  double size = size_get(e), growth = size > e->type.roundoff ? chain_get(e) : growth_get(e);
  int shakes = e->thin ? DIT_VERDICT_ROUNDS : is_mixing(e) ? DIT_VERDICT_ROUNDS / 2 : 1;
  for (int i = 0; i < shakes && e->result.wrong > 0; i++) {
    const struct dit_verdict_request request = {
        .kind = DIT_RUN_SHAKEN, .size = size, .seed = dit_random_mix(e->c->seed, (uint64_t)i + 1)};
    enum dit_status status = shake_once(e, &request, growth);
    if (status != DIT_OK) {
      return status == DIT_ERR_UNSUPPORTED ? DIT_OK : status;
    }
  }
  return DIT_OK;
}

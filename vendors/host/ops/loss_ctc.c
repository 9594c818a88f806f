/// Connectionist temporal classification (CTC): the loss of an unaligned label sequence, and its gradient.
///
/// log_probs (T, N, C) or (T, C); targets (N, S) or all of them one after the other; input_lengths and target_lengths
/// hold N integers. With l' the target with blanks around every label, alpha[t][s] is the log probability of reaching
/// l'[s] at step t; neg_log_likelihood[n] = -log(alpha[last][end] + alpha[last][end - 1]) and log_alpha (N, T, 2 S + 1)
/// keeps all of alpha (-inf where nothing is reached). out: none gives the losses, sum adds them, mean divides each by
/// its target length (at least 1) and averages; zero_infinity turns infinite losses and their gradients into 0. The
/// gradient is that of the logits behind log_probs, as in PyTorch: exp(log_probs) minus the share of the paths.
/// Computed in double. Outputs are not inputs. Labels out of range are an error before anything is written.
#include <math.h>
#include <string.h>

#include "dense.h"
#include "dit/alloc.h"
#include "frame.h"

enum { PROBS, TARGETS, INPUTS, LABELS, NLL, ALPHA, GRAD, OUT, COUNT };

struct ctc_task {
  struct frame frame;
  struct dit_tensor_view v[COUNT];
  bool backward, zero_infinity;
  diopiReduction_t reduction;
  int64_t blank;
  int64_t steps, batch, classes, width;  ///< T, N, C, and 2 * S + 1 of log_alpha
  const double *probs;
  const int64_t *targets, *inputs, *labels;
  double *nll, *alpha, *grad, *out;
};

static double add_logs(double a, double b) {
  const double top = a > b ? a : b;
  return top == -INFINITY ? top : top + log(exp(a - top) + exp(b - top));
}

/// Where a sample's labels begin in `targets`.
static int64_t get_start(const struct ctc_task *task, int64_t n) {
  int64_t start = 0;
  if (task->v[TARGETS].ndim == 2) {
    return n * task->v[TARGETS].sizes[1];
  }
  for (int64_t i = 0; i < n; i++) {
    start += task->labels[i];
  }
  return start;
}

static int64_t get_label(const struct ctc_task *task, const int64_t *target, int64_t s) {
  return s % 2 ? target[s / 2] : task->blank;
}

static double get_prob(const struct ctc_task *task, int64_t n, int64_t t, int64_t label) {
  return task->probs[(t * task->batch + n) * task->classes + label];
}

/// May a path skip the blank before s?
static bool can_skip(const int64_t *target, int64_t s) {
  return s % 2 && s > 2 && target[s / 2] != target[s / 2 - 1];
}

static void run_forward_sample(const struct ctc_task *task, int64_t n) {
  const int64_t length = task->inputs[n], states = 2 * task->labels[n] + 1;
  const int64_t *target = task->targets + get_start(task, n);
  double *alpha = task->alpha + n * task->steps * task->width;
  for (int64_t i = 0; i < task->steps * task->width; i++) {
    alpha[i] = -INFINITY;
  }
  if (length == 0) {
    task->nll[n] = task->labels[n] == 0 ? 0 : INFINITY;
    return;
  }
  alpha[0] = get_prob(task, n, 0, task->blank);
  if (states > 1) {
    alpha[1] = get_prob(task, n, 0, target[0]);
  }
  for (int64_t t = 1; t < length; t++) {
    const double *from = alpha + (t - 1) * task->width;
    for (int64_t s = 0; s < states; s++) {
      double sum = s > 0 ? add_logs(from[s], from[s - 1]) : from[s];
      sum = can_skip(target, s) ? add_logs(sum, from[s - 2]) : sum;
      alpha[t * task->width + s] = sum + get_prob(task, n, t, get_label(task, target, s));
    }
  }
  const double *last = alpha + (length - 1) * task->width;
  task->nll[n] = -(states > 1 ? add_logs(last[states - 1], last[states - 2]) : last[0]);
}

static void finish_forward(const struct ctc_task *task) {
  double sum = 0;
  for (int64_t n = 0; n < task->batch; n++) {
    double loss = task->nll[n];
    loss = task->zero_infinity && loss == INFINITY ? 0 : loss;
    if (task->reduction == ReductionNone) {
      task->out[n] = loss;
    } else if (task->reduction == ReductionMean) {
      sum += loss / (double)(task->labels[n] > 0 ? task->labels[n] : 1) / (double)task->batch;
    } else {
      sum += loss;
    }
  }
  if (task->reduction != ReductionNone) {
    task->out[0] = sum;
  }
}

/// Log probabilities of the paths through each class at step t, from alpha + beta; then the gradient of that step.
static void store_step(const struct ctc_task *task, int64_t n, int64_t t, const double *beta, double *paths, double g) {
  const int64_t states = 2 * task->labels[n] + 1;
  const int64_t *target = task->targets + get_start(task, n);
  const double *alpha = task->alpha + (n * task->steps + t) * task->width;
  double *out = task->out + (t * task->batch + n) * task->classes;
  for (int64_t c = 0; c < task->classes; c++) {
    paths[c] = -INFINITY;
  }
  for (int64_t s = 0; s < states; s++) {
    const int64_t label = get_label(task, target, s);
    paths[label] = add_logs(paths[label], alpha[s] + beta[s]);
  }
  for (int64_t c = 0; c < task->classes; c++) {
    const double p = get_prob(task, n, t, c);
    const bool is_unreached =
        paths[c] == -INFINITY && task->nll[n] != INFINITY;  // an infinite loss has no gradient: NaN
    out[c] = g * (exp(p) - (is_unreached ? 0 : exp(paths[c] + task->nll[n] - p)));
  }
}

/// room: two lines of states, one line of classes.
static void run_backward_sample(const struct ctc_task *task, int64_t n, double *room) {
  const int64_t length = task->inputs[n], states = 2 * task->labels[n] + 1;
  const int64_t *target = task->targets + get_start(task, n);
  double *beta = room, *next = room + task->width, *paths = room + 2 * task->width;
  double g = task->grad[task->reduction == ReductionNone ? n : 0];
  if (task->reduction == ReductionMean) {
    g /= (double)(task->labels[n] > 0 ? task->labels[n] : 1) * (double)task->batch;
  }
  if (task->zero_infinity && task->nll[n] == INFINITY) {
    return;  // the result is 0 already
  }
  for (int64_t t = length - 1; t >= 0; t--) {
    for (int64_t s = 0; s < states; s++) {
      double sum = t == length - 1 ? (s >= states - 2 ? 0 : -INFINITY) : next[s];
      if (t < length - 1) {
        sum = s + 1 < states ? add_logs(sum, next[s + 1]) : sum;
        sum = s + 2 < states && can_skip(target, s + 2) ? add_logs(sum, next[s + 2]) : sum;
      }
      beta[s] = sum + get_prob(task, n, t, get_label(task, target, s));
    }
    store_step(task, n, t, beta, paths, g);
    double *swap = beta;
    beta = next;
    next = swap;
  }
}

// Arguments

static diopiError_t check_values(struct ctc_task *task) {
  struct frame *frame = &task->frame;
  int64_t total = 0;
  const struct dit_tensor_view *targets = &task->v[TARGETS];
  for (int64_t n = 0; n < task->batch; n++) {
    const int64_t length = task->labels[n], limit = targets->ndim == 2 ? targets->sizes[1] : targets->numel - total;
    FRAME_CHECK(frame, task->inputs[n] >= 0 && task->inputs[n] <= task->steps,
                "'input_lengths' has the value %lld; valid: 0 to %lld", (long long)task->inputs[n],
                (long long)task->steps);
    FRAME_CHECK(frame, length >= 0 && length <= limit && 2 * length + 1 <= task->width,
                "'target_lengths' has the value %lld; 'targets' and 'log_alpha' have no room for it",
                (long long)length);
    const int64_t *target = task->targets + (targets->ndim == 2 ? n * limit : total);
    for (int64_t i = 0; i < length; i++) {
      FRAME_CHECK(frame, target[i] >= 0 && target[i] < task->classes, "'targets' has the value %lld; valid: 0 to %lld",
                  (long long)target[i], (long long)task->classes - 1);
    }
    total += length;
  }
  return diopiSuccess;
}

static diopiError_t work(struct ctc_task *task) {
  FRAME_TRY(check_values(task));
  if (!task->backward) {
    for (int64_t n = 0; n < task->batch; n++) {
      run_forward_sample(task, n);
    }
    finish_forward(task);
    return diopiSuccess;
  }
  double *room = dit_malloc(sizeof(double) * (size_t)(2 * task->width + task->classes));
  if (!room) {
    return frame_fail(&task->frame, diopiErrorOccurred, "no memory for a line of states");
  }
  memset(task->out, 0, sizeof(double) * (size_t)task->v[OUT].numel);
  for (int64_t n = 0; n < task->batch; n++) {
    run_backward_sample(task, n, room);
  }
  dit_free(room);
  return diopiSuccess;
}

static diopiError_t run_ctc(void *argument) {
  struct ctc_task *task = argument;
  struct dense d[COUNT] = {0};
  const unsigned write = 1u << OUT | (task->backward ? 0 : 1u << NLL | 1u << ALPHA);
  bool done = true;
  for (int i = 0; i < COUNT && done; i++) {
    const int dtype = i == TARGETS || i == INPUTS || i == LABELS ? DIT_DTYPE_I64 : DIT_DTYPE_F64;
    done = write >> i & 1 ? dense_reserve(&d[i], &task->v[i], dtype) : dense_read(&d[i], &task->v[i], dtype);
  }
  diopiError_t code = diopiSuccess;
  if (done) {
    task->probs = d[PROBS].data;
    task->targets = d[TARGETS].data;
    task->inputs = d[INPUTS].data;
    task->labels = d[LABELS].data;
    task->nll = d[NLL].data;
    task->alpha = d[ALPHA].data;
    task->grad = d[GRAD].data;
    task->out = d[OUT].data;
    code = work(task);
  } else {
    code = dense_fail(&task->frame);
  }
  for (int i = 0; i < COUNT; i++) {
    if (code == diopiSuccess && write >> i & 1) {
      dense_store(&d[i]);
    }
    dense_close(&d[i]);
  }
  return code;
}

static diopiError_t check_shapes(struct ctc_task *task) {
  struct frame *frame = &task->frame;
  const struct dit_tensor_view *probs = &task->v[PROBS], *alpha = &task->v[ALPHA], *targets = &task->v[TARGETS];
  FRAME_CHECK(frame, probs->ndim == 2 || probs->ndim == 3, "'log_probs' has %d dimensions; valid: (T, N, C) or (T, C)",
              (int)probs->ndim);
  task->steps = probs->sizes[0];
  task->batch = probs->ndim == 3 ? probs->sizes[1] : 1;
  task->classes = probs->sizes[probs->ndim - 1];
  FRAME_CHECK(frame, task->blank >= 0 && task->blank < task->classes, "'blank' is %lld; valid: 0 to %lld",
              (long long)task->blank, (long long)task->classes - 1);
  FRAME_CHECK(frame, targets->ndim == 1 || (targets->ndim == 2 && targets->sizes[0] == task->batch),
              "'targets' must be (N, S) or all labels in one dimension");
  FRAME_CHECK(frame, task->v[INPUTS].numel == task->batch && task->v[LABELS].numel == task->batch,
              "'input_lengths' and 'target_lengths' must have one number for each of the %lld samples",
              (long long)task->batch);
  FRAME_CHECK(frame, task->v[NLL].numel == task->batch, "'neg_log_likelihood' must have one number per sample");
  FRAME_CHECK(frame, alpha->ndim >= 2 && alpha->numel == task->batch * task->steps * alpha->sizes[alpha->ndim - 1],
              "'log_alpha' must be (N, T, 2 * S + 1)");
  task->width = alpha->sizes[alpha->ndim - 1];
  const struct dit_tensor_view *losses = &task->v[task->backward ? GRAD : OUT];
  FRAME_CHECK(frame, losses->numel == (task->reduction == ReductionNone ? task->batch : 1),
              "'%s' has %lld elements; it must have %s", task->backward ? "grad_output" : "out",
              (long long)losses->numel, task->reduction == ReductionNone ? "one per sample" : "one");
  FRAME_CHECK(frame, !task->backward || frame_is_same_shape(&task->v[OUT], probs),
              "'grad_input' has another shape than 'log_probs'");
  return diopiSuccess;
}

static diopiError_t launch(struct ctc_task *task) {
  struct frame *frame = &task->frame;
  static const char *const names[COUNT] = {"log_probs",          "targets",   "input_lengths", "target_lengths",
                                           "neg_log_likelihood", "log_alpha", "grad_output",   "out"};
  FRAME_CHECK(frame, task->reduction >= ReductionNone && task->reduction < ReductionEND,
              "'reduction' is %d; valid: 0 (none), 1 (mean), 2 (sum)", (int)task->reduction);
  for (int i = 0; i < COUNT; i++) {
    const bool whole = i == TARGETS || i == INPUTS || i == LABELS;
    if (task->v[i].handle && !frame_has_dtype(whole ? DTYPES_INT : DTYPES_FLOAT, task->v[i].dtype)) {
      return frame_fail_dtype(frame, i == OUT && task->backward ? "grad_input" : names[i], task->v[i].dtype);
    }
  }
  FRAME_TRY(check_shapes(task));
  const struct dit_tensor_view *inputs[COUNT];
  for (int i = 0; i < COUNT; i++) {
    inputs[i] = &task->v[i];
  }
  FRAME_TRY(frame_check_output(frame, task->backward ? "grad_input" : "out", &task->v[OUT], inputs, OUT, false));
  if (!task->backward) {
    FRAME_TRY(frame_check_output(frame, "neg_log_likelihood", &task->v[NLL], inputs, NLL, false));
    FRAME_TRY(frame_check_output(frame, "log_alpha", &task->v[ALPHA], inputs, ALPHA, false));
  }
  return frame_run(frame, run_ctc, task);
}

diopiError_t diopiCTCLoss(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiTensorHandle_t neg_log_likelihood,
                          diopiTensorHandle_t log_alpha, diopiConstTensorHandle_t log_probs,
                          diopiConstTensorHandle_t targets, diopiConstTensorHandle_t input_lengths,
                          diopiConstTensorHandle_t target_lengths, int64_t blank, diopiReduction_t reduction,
                          bool zero_infinity) {
  struct ctc_task task = {.zero_infinity = zero_infinity, .reduction = reduction, .blank = blank};
  FRAME_BEGIN(&task.frame, ctx);
  FRAME_TAKE(&task.frame, out, &task.v[OUT]);
  FRAME_TAKE(&task.frame, neg_log_likelihood, &task.v[NLL]);
  FRAME_TAKE(&task.frame, log_alpha, &task.v[ALPHA]);
  FRAME_TAKE(&task.frame, log_probs, &task.v[PROBS]);
  FRAME_TAKE(&task.frame, targets, &task.v[TARGETS]);
  FRAME_TAKE(&task.frame, input_lengths, &task.v[INPUTS]);
  FRAME_TAKE(&task.frame, target_lengths, &task.v[LABELS]);
  return launch(&task);
}

diopiError_t diopiCTCLossBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                  diopiConstTensorHandle_t grad_output, diopiConstTensorHandle_t log_probs,
                                  diopiConstTensorHandle_t targets, diopiConstTensorHandle_t input_lengths,
                                  diopiConstTensorHandle_t target_lengths, diopiConstTensorHandle_t neg_log_likelihood,
                                  diopiConstTensorHandle_t log_alpha, int64_t blank, diopiReduction_t reduction,
                                  bool zero_infinity) {
  struct ctc_task task = {.backward = true, .zero_infinity = zero_infinity, .reduction = reduction, .blank = blank};
  FRAME_BEGIN(&task.frame, ctx);
  FRAME_TAKE(&task.frame, grad_input, &task.v[OUT]);
  FRAME_TAKE(&task.frame, grad_output, &task.v[GRAD]);
  FRAME_TAKE(&task.frame, log_probs, &task.v[PROBS]);
  FRAME_TAKE(&task.frame, targets, &task.v[TARGETS]);
  FRAME_TAKE(&task.frame, input_lengths, &task.v[INPUTS]);
  FRAME_TAKE(&task.frame, target_lengths, &task.v[LABELS]);
  FRAME_TAKE(&task.frame, neg_log_likelihood, &task.v[NLL]);
  FRAME_TAKE(&task.frame, log_alpha, &task.v[ALPHA]);
  return launch(&task);
}

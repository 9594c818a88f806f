/// CTC loss on the host (see loss_ctc.c), in double.
#include <math.h>
#include <string.h>

#include "dense.h"
#include "dit/alloc.h"
#include "loss_ctc.h"

struct ctc_work {
  struct ctc_task *call;
  const double *probs;
  const int64_t *targets, *inputs, *labels;
  double *nll, *alpha, *grad, *out;
};

static double add_logs(double a, double b) {
  const double top = a > b ? a : b;
  return top == -INFINITY ? top : top + log(exp(a - top) + exp(b - top));
}

/// Where a sample's labels begin in `targets`.
static int64_t get_start(const struct ctc_work *task, int64_t n) {
  int64_t start = 0;
  if (task->call->v[CTC_TARGETS].ndim == 2) {
    return n * task->call->v[CTC_TARGETS].sizes[1];
  }
  for (int64_t i = 0; i < n; i++) {
    start += task->labels[i];
  }
  return start;
}

static int64_t get_label(const struct ctc_work *task, const int64_t *target, int64_t s) {
  return s % 2 ? target[s / 2] : task->call->blank;
}

static double get_prob(const struct ctc_work *task, int64_t n, int64_t t, int64_t label) {
  return task->probs[(t * task->call->batch + n) * task->call->classes + label];
}

/// May a path skip the blank before s?
static bool can_skip(const int64_t *target, int64_t s) {
  return s % 2 && s > 2 && target[s / 2] != target[s / 2 - 1];
}

static void run_forward_sample(const struct ctc_work *task, int64_t n) {
  const int64_t length = task->inputs[n], states = 2 * task->labels[n] + 1;
  const int64_t *target = task->targets + get_start(task, n);
  double *alpha = task->alpha + n * task->call->steps * task->call->width;
  for (int64_t i = 0; i < task->call->steps * task->call->width; i++) {
    alpha[i] = -INFINITY;
  }
  if (length == 0) {
    task->nll[n] = task->labels[n] == 0 ? 0 : INFINITY;
    return;
  }
  alpha[0] = get_prob(task, n, 0, task->call->blank);
  if (states > 1) {
    alpha[1] = get_prob(task, n, 0, target[0]);
  }
  for (int64_t t = 1; t < length; t++) {
    const double *from = alpha + (t - 1) * task->call->width;
    for (int64_t s = 0; s < states; s++) {
      double sum = s > 0 ? add_logs(from[s], from[s - 1]) : from[s];
      sum = can_skip(target, s) ? add_logs(sum, from[s - 2]) : sum;
      alpha[t * task->call->width + s] = sum + get_prob(task, n, t, get_label(task, target, s));
    }
  }
  const double *last = alpha + (length - 1) * task->call->width;
  task->nll[n] = -(states > 1 ? add_logs(last[states - 1], last[states - 2]) : last[0]);
}

static void finish_forward(const struct ctc_work *task) {
  double sum = 0;
  for (int64_t n = 0; n < task->call->batch; n++) {
    double loss = task->nll[n];
    loss = task->call->zero_infinity && loss == INFINITY ? 0 : loss;
    if (task->call->reduction == ReductionNone) {
      task->out[n] = loss;
    } else if (task->call->reduction == ReductionMean) {
      sum += loss / (double)(task->labels[n] > 0 ? task->labels[n] : 1) / (double)task->call->batch;
    } else {
      sum += loss;
    }
  }
  if (task->call->reduction != ReductionNone) {
    task->out[0] = sum;
  }
}

/// Log probabilities of the paths through each class at step t, from alpha + beta; then the gradient of that step.
static void store_step(const struct ctc_work *task, int64_t n, int64_t t, const double *beta, double *paths, double g) {
  const int64_t states = 2 * task->labels[n] + 1;
  const int64_t *target = task->targets + get_start(task, n);
  const double *alpha = task->alpha + (n * task->call->steps + t) * task->call->width;
  double *out = task->out + (t * task->call->batch + n) * task->call->classes;
  for (int64_t c = 0; c < task->call->classes; c++) {
    paths[c] = -INFINITY;
  }
  for (int64_t s = 0; s < states; s++) {
    const int64_t label = get_label(task, target, s);
    paths[label] = add_logs(paths[label], alpha[s] + beta[s]);
  }
  for (int64_t c = 0; c < task->call->classes; c++) {
    const double p = get_prob(task, n, t, c);
    const bool is_unreached =
        paths[c] == -INFINITY && task->nll[n] != INFINITY;  // an infinite loss has no gradient: NaN
    out[c] = g * (exp(p) - (is_unreached ? 0 : exp(paths[c] + task->nll[n] - p)));
  }
}

/// room: two lines of states, one line of classes.
static void run_backward_sample(const struct ctc_work *task, int64_t n, double *room) {
  const int64_t length = task->inputs[n], states = 2 * task->labels[n] + 1;
  const int64_t *target = task->targets + get_start(task, n);
  double *beta = room, *next = room + task->call->width, *paths = room + 2 * task->call->width;
  double g = task->grad[task->call->reduction == ReductionNone ? n : 0];
  if (task->call->reduction == ReductionMean) {
    g /= (double)(task->labels[n] > 0 ? task->labels[n] : 1) * (double)task->call->batch;
  }
  if (task->call->zero_infinity && task->nll[n] == INFINITY) {
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

static diopiError_t check_values(struct ctc_work *task) {
  struct frame *frame = &task->call->frame;
  int64_t total = 0;
  const struct dit_tensor_view *targets = &task->call->v[CTC_TARGETS];
  for (int64_t n = 0; n < task->call->batch; n++) {
    const int64_t length = task->labels[n], limit = targets->ndim == 2 ? targets->sizes[1] : targets->numel - total;
    FRAME_CHECK(frame, task->inputs[n] >= 0 && task->inputs[n] <= task->call->steps,
                "'input_lengths' has the value %lld; valid: 0 to %lld", (long long)task->inputs[n],
                (long long)task->call->steps);
    FRAME_CHECK(frame, length >= 0 && length <= limit && 2 * length + 1 <= task->call->width,
                "'target_lengths' has the value %lld; 'targets' and 'log_alpha' have no room for it",
                (long long)length);
    const int64_t *target = task->targets + (targets->ndim == 2 ? n * limit : total);
    for (int64_t i = 0; i < length; i++) {
      FRAME_CHECK(frame, target[i] >= 0 && target[i] < task->call->classes,
                  "'targets' has the value %lld; valid: 0 to %lld", (long long)target[i],
                  (long long)task->call->classes - 1);
    }
    total += length;
  }
  return diopiSuccess;
}

static diopiError_t work(struct ctc_work *task) {
  FRAME_TRY(check_values(task));
  if (!task->call->backward) {
    for (int64_t n = 0; n < task->call->batch; n++) {
      run_forward_sample(task, n);
    }
    finish_forward(task);
    return diopiSuccess;
  }
  double *room = dit_malloc(sizeof(double) * (size_t)(2 * task->call->width + task->call->classes));
  if (!room) {
    return frame_fail(&task->call->frame, diopiErrorOccurred, "no memory for a line of states");
  }
  memset(task->out, 0, sizeof(double) * (size_t)task->call->v[CTC_OUT].numel);
  for (int64_t n = 0; n < task->call->batch; n++) {
    run_backward_sample(task, n, room);
  }
  dit_free(room);
  return diopiSuccess;
}

static diopiError_t run_ctc(void *argument) {
  struct ctc_work room = {.call = argument}, *task = &room;
  struct dense d[CTC_COUNT] = {0};
  const unsigned write = 1u << CTC_OUT | (task->call->backward ? 0 : 1u << CTC_NLL | 1u << CTC_ALPHA);
  bool done = true;
  for (int i = 0; i < CTC_COUNT && done; i++) {
    const int dtype = i == CTC_TARGETS || i == CTC_INPUTS || i == CTC_LABELS ? DIT_DTYPE_I64 : DIT_DTYPE_F64;
    done =
        write >> i & 1 ? dense_reserve(&d[i], &task->call->v[i], dtype) : dense_read(&d[i], &task->call->v[i], dtype);
  }
  diopiError_t code = diopiSuccess;
  if (done) {
    task->probs = d[CTC_PROBS].data;
    task->targets = d[CTC_TARGETS].data;
    task->inputs = d[CTC_INPUTS].data;
    task->labels = d[CTC_LABELS].data;
    task->nll = d[CTC_NLL].data;
    task->alpha = d[CTC_ALPHA].data;
    task->grad = d[CTC_GRAD].data;
    task->out = d[CTC_OUT].data;
    code = work(task);
  } else {
    code = dense_fail(&task->call->frame);
  }
  for (int i = 0; i < CTC_COUNT; i++) {
    if (code == diopiSuccess && write >> i & 1) {
      dense_store(&d[i]);
    }
    dense_close(&d[i]);
  }
  return code;
}

diopiError_t ctc_run(struct ctc_task *task) {
  return frame_run(&task->frame, run_ctc, task);
}

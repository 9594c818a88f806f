/// Focal losses of mmcv and their gradients.
///
/// sigmoid: p = 1 / (1 + exp(-input[n, c])); output = -alpha (1 - p)^gamma log(p) where target[n] is c, else
/// -(1 - alpha) p^gamma log(1 - p); times weight[target[n]], 1 for a target that is no class (background).
/// softmax: p = softmax[n, target[n]]; output[n] = -alpha (1 - p)^gamma log(p) weight[target[n]], 0 for a negative
/// target. Logarithms are of at least the least normal float. The gradients are with respect to the logits. Floating
/// dtypes, one for all but the targets; each element is computed in double.
#include <float.h>
#include <math.h>

#include "call.h"
#include "engine/mathd.h"

struct focal_task {
  double gamma, alpha;
};

static double safe_log(double value) {
  return log(value > FLT_MIN ? value : FLT_MIN);
}
#define LEAST_LOG -87.33654475055310898657  // of FLT_MIN

/// p = 1 / (1 + exp(-x)), q = 1 - p and their logarithms: of one exponential and one logarithm, exact at both ends.
struct odds {
  double p, q, log_p, log_q;
};

KERNEL_INLINE struct odds get_odds(double x) {
  const double e = exp_f64(-fabs(x)), large = 1 / (1 + e), small = e * large, rest = log_f64(1 + e);
  const bool below = x < 0;
  return (struct odds){below ? small : large, below ? large : small, (below ? x : 0) - rest, (below ? 0 : -x) - rest};
}

/// exp(log)^gamma
KERNEL_INLINE double get_power(double log, double gamma) {
  return gamma == 0 ? 1 : exp_f64(gamma * log);
}
KERNEL_INLINE double limit_log(double log) {
  return log > LEAST_LOG ? log : LEAST_LOG;
}

KERNEL_INLINE double get_hit_loss(double x, const struct focal_task *task) {
  const struct odds odds = get_odds(x);
  return -task->alpha * get_power(odds.log_q, task->gamma) * limit_log(odds.log_p);
}
KERNEL_INLINE double get_miss_loss(double x, const struct focal_task *task) {
  const struct odds odds = get_odds(x);
  return -(1 - task->alpha) * get_power(odds.log_p, task->gamma) * limit_log(odds.log_q);
}
KERNEL_INLINE double get_hit_gradient(double x, const struct focal_task *task) {
  const struct odds odds = get_odds(x);
  return -task->alpha * get_power(odds.log_q, task->gamma) * (odds.q - task->gamma * odds.p * limit_log(odds.log_p));
}
KERNEL_INLINE double get_miss_gradient(double x, const struct focal_task *task) {
  const struct odds odds = get_odds(x);
  return -(1 - task->alpha) * get_power(odds.log_p, task->gamma) *
         (task->gamma * odds.q * limit_log(odds.log_q) - odds.p);
}

/// A row of logits, none of which is the target.
#define MISS_PARAMS(type) (type * out, const type *in, int64_t count, double weight, const struct focal_task *of)
#define DEFINE_MISSES(kind, tag, type)                                 \
  KERNEL_INLINE void miss_##kind##_##tag##_body MISS_PARAMS(type) {    \
    const struct focal_task task = *of;                                \
    KERNEL_LANES                                                       \
    for (int64_t i = 0; i < count; i++) {                              \
      out[i] = (type)(weight * get_miss_##kind((double)in[i], &task)); \
    }                                                                  \
  }                                                                    \
  KERNEL_MULTI(static, miss_##kind##_##tag, MISS_PARAMS(type), (out, in, count, weight, of))
DEFINE_MISSES(loss, f32, float)
DEFINE_MISSES(loss, f64, double)
DEFINE_MISSES(gradient, f32, float)
DEFINE_MISSES(gradient, f64, double)

#define LOOPS "focal_loops.h"
#include "twice.h"

enum { INPUT, TARGET, WEIGHT, OUTPUT };

static diopiError_t run_sigmoid(struct call *call) {
  CALL_LOOP(call, call_size(call, 'n'), 40 * call_size(call, 'c'), sigmoid_rows);
  return diopiSuccess;
}
static diopiError_t run_sigmoid_backward(struct call *call) {
  CALL_LOOP(call, call_size(call, 'n'), 40 * call_size(call, 'c'), sigmoid_backward_rows);
  return diopiSuccess;
}
static diopiError_t run_softmax(struct call *call) {
  CALL_LOOP(call, call_size(call, 'n'), 40, softmax_rows);
  return diopiSuccess;
}
static diopiError_t run_softmax_backward(struct call *call) {
  CALL_LOOP(call, call_size(call, 'n'), 40 + call_size(call, 'c'), softmax_backward_rows);
  return diopiSuccess;
}

diopiError_t diopiSigmoidFocalLossMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t output,
                                       diopiConstTensorHandle_t input, diopiConstTensorHandle_t target,
                                       diopiConstTensorHandle_t weight, float gamma, float alpha) {
  struct call call;
  CALL_BEGIN(&call, ctx);
  CALL_IN(&call, input, "f:nc");
  CALL_IN(&call, target, "i:n");
  CALL_OPTIONAL(&call, weight, "f:c");
  CALL_OUT(&call, output, "f:nc");
  call.task = &(struct focal_task){gamma, alpha};
  return call_run(&call, run_sigmoid);
}

diopiError_t diopiSigmoidFocalLossBackwardMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                               diopiConstTensorHandle_t input, diopiConstTensorHandle_t target,
                                               diopiConstTensorHandle_t weight, float gamma, float alpha) {
  struct call call;
  CALL_BEGIN(&call, ctx);
  CALL_IN(&call, input, "f:nc");
  CALL_IN(&call, target, "i:n");
  CALL_OPTIONAL(&call, weight, "f:c");
  CALL_OUT(&call, grad_input, "f:nc");
  call.task = &(struct focal_task){gamma, alpha};
  return call_run(&call, run_sigmoid_backward);
}

diopiError_t diopiSoftmaxFocalLossMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t output,
                                       diopiConstTensorHandle_t softmax, diopiConstTensorHandle_t target,
                                       diopiConstTensorHandle_t weight, float gamma, float alpha) {
  struct call call;
  CALL_BEGIN(&call, ctx);
  CALL_IN(&call, softmax, "f:nc");
  CALL_IN(&call, target, "i:n");
  CALL_OPTIONAL(&call, weight, "f:c");
  CALL_OUT(&call, output, "f:n");
  call_limit(&call, TARGET, INT64_MIN, call_size(&call, 'c') - 1);
  call.task = &(struct focal_task){gamma, alpha};
  return call_run(&call, run_softmax);
}

diopiError_t diopiSoftmaxFocalLossBackwardMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                               diopiTensorHandle_t buff, diopiConstTensorHandle_t softmax,
                                               diopiConstTensorHandle_t target, diopiConstTensorHandle_t weight,
                                               float gamma, float alpha) {
  struct call call;
  CALL_BEGIN(&call, ctx);
  CALL_IN(&call, softmax, "f:nc");
  CALL_IN(&call, target, "i:n");
  CALL_OPTIONAL(&call, weight, "f:c");
  CALL_OUT(&call, grad_input, "f:nc");
  CALL_INOUT(&call, buff, "f:n");
  call_limit(&call, TARGET, INT64_MIN, call_size(&call, 'c') - 1);
  call.task = &(struct focal_task){gamma, alpha};
  return call_run(&call, run_softmax_backward);
}

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

struct focal_task {
  double gamma, alpha;
};

static double safe_log(double value) {
  return log(value > FLT_MIN ? value : FLT_MIN);
}

static double sigmoid_loss(double x, bool hit, const struct focal_task *task) {
  const double p = 1 / (1 + exp(-x)), q = 1 / (1 + exp(x));
  return hit ? -task->alpha * pow(q, task->gamma) * safe_log(p)
             : -(1 - task->alpha) * pow(p, task->gamma) * safe_log(q);
}

static double sigmoid_gradient(double x, bool hit, const struct focal_task *task) {
  const double p = 1 / (1 + exp(-x)), q = 1 / (1 + exp(x)), gamma = task->gamma;
  return hit ? -task->alpha * pow(q, gamma) * (q - gamma * p * safe_log(p))
             : -(1 - task->alpha) * pow(p, gamma) * (gamma * q * safe_log(q) - p);
}

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

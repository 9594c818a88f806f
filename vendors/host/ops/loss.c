/// Losses between elements: mean squared error, smooth L1, binary cross entropy with and without logits, focal loss.
///
/// With d = input - target:
///   MSE d^2; smooth L1 d^2 / (2 beta) for |d| < beta, else |d| - beta / 2;
///   BCE -(t log x + (1 - t) log(1 - x)), logarithms not below -100, times weight; x must lie in [0, 1];
///   logits (1 - t) x + (1 + (pos_weight - 1) t) log(1 + exp(-x)), times weight;
///   focal alpha_t (1 - p_t)^gamma BCE(sigmoid(x), t) with p_t the probability of the target (alpha < 0: alpha_t = 1).
/// Operands broadcast; `out` has that shape, or no dimension (or one element) for a mean or sum. Gradients are those of
/// `input`, times grad_output (of the loss's shape; one element for a mean or sum). Computed in float for half types,
/// sums in double over blocks. An output may be exactly an input.
#include "loss.h"

#include <string.h>

enum {
  OUT = LOSS_OUT,
  X = LOSS_X,
  TARGET = LOSS_TARGET,
  WEIGHT = LOSS_WEIGHT,
  POS_WEIGHT = LOSS_POS_WEIGHT,
  GRAD = LOSS_GRAD,
  OPERANDS = LOSS_OPERANDS
};

static const char *get_name(const struct loss_task *task, int operand) {
  static const char *const names[OPERANDS] = {"out", "input", "target", "weight", "pos_weight", "grad_output"};
  return operand == OUT && task->backward ? "grad_input" : names[operand];
}

static diopiError_t take(struct loss_task *task, int operand, diopiConstTensorHandle_t handle) {
  return frame_take(&task->frame, get_name(task, operand), handle, &task->views[operand]);
}

/// Broadcast everything but the result of a mean or sum and a gradient of one element.
static diopiError_t set_shapes(struct loss_task *task) {
  struct dit_error err = {.message = ""};
  for (int i = X; i <= TARGET; i++) {
    const struct dit_tensor_view *view = &task->views[i];
    enum dit_status status = dit_shape_broadcast(view->ndim, view->sizes, &task->ndim, task->sizes, &err);
    if (status != DIT_OK) {
      return frame_get_code(&task->frame, status, &err);
    }
  }
  FRAME_TRY(frame_get_code(&task->frame, dit_shape_get_numel(task->ndim, task->sizes, &task->numel, &err), &err));
  for (int i = OUT; i < OPERANDS; i++) {
    struct dit_tensor_view *view = &task->views[i];
    const bool single = task->reduction != ReductionNone && (i == GRAD || (i == OUT && !task->backward));
    if (!view->handle) {
      continue;
    }
    if (single) {
      FRAME_CHECK(&task->frame, view->numel == 1, "'%s' has %lld elements; it must have one for this reduction",
                  get_name(task, i), (long long)view->numel);
      task->one_gradient = task->one_gradient || i == GRAD;
      continue;
    }
    bool fits = view->ndim == task->ndim &&
                (view->ndim == 0 || memcmp(view->sizes, task->sizes, sizeof(int64_t) * (size_t)view->ndim) == 0);
    if (!fits && i != OUT) {
      struct dit_tensor_view wide;
      fits = frame_expand(view, task->ndim, task->sizes, task->strides[i], &wide);
      *view = wide;
    }
    FRAME_CHECK(&task->frame, fits, "'%s' does not have the broadcast shape of 'input' and 'target'",
                get_name(task, i));
  }
  return diopiSuccess;
}

static diopiError_t launch(struct loss_task *task) {
  const struct dit_tensor_view *inputs[OPERANDS - 1];
  FRAME_CHECK(&task->frame, task->reduction >= ReductionNone && task->reduction < ReductionEND,
              "'reduction' is %d; valid: 0 (none), 1 (mean), 2 (sum)", (int)task->reduction);
  for (int i = 0; i < OPERANDS; i++) {
    const struct dit_tensor_view *view = &task->views[i];
    if (view->handle && !frame_has_dtype(i == TARGET ? DTYPES_PLAIN : DTYPES_FLOAT, view->dtype)) {
      return frame_fail_dtype(&task->frame, get_name(task, i), view->dtype);
    }
    if (i > 0) {
      inputs[i - 1] = view;
    }
  }
  FRAME_TRY(frame_check_output(&task->frame, get_name(task, OUT), &task->views[OUT], inputs, OPERANDS - 1, true));
  FRAME_TRY(set_shapes(task));
  task->work = task->views[X].dtype == DIT_DTYPE_F64 || task->views[TARGET].dtype == DIT_DTYPE_F64 ? DIT_DTYPE_F64
                                                                                                   : DIT_DTYPE_F32;
  task->scale = task->reduction == ReductionMean ? 1 / (double)task->numel : 1;
  return loss_run(task);
}

static diopiError_t run_forward(const char *function, diopiContextHandle_t ctx, enum loss_kind kind,
                                diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                                diopiConstTensorHandle_t target, diopiConstTensorHandle_t weight,
                                diopiConstTensorHandle_t pos_weight, diopiReduction_t reduction, double a, double b) {
  struct loss_task task = {.kind = kind, .reduction = reduction, .a = a, .b = b};
  FRAME_TRY(frame_begin(&task.frame, function, ctx));
  FRAME_TRY(take(&task, OUT, out));
  FRAME_TRY(take(&task, X, input));
  FRAME_TRY(take(&task, TARGET, target));
  FRAME_TAKE_OPTIONAL(&task.frame, weight, &task.views[WEIGHT]);
  FRAME_TAKE_OPTIONAL(&task.frame, pos_weight, &task.views[POS_WEIGHT]);
  return launch(&task);
}

static diopiError_t run_backward(const char *function, diopiContextHandle_t ctx, enum loss_kind kind,
                                 diopiTensorHandle_t grad_input, diopiConstTensorHandle_t grad_output,
                                 diopiConstTensorHandle_t input, diopiConstTensorHandle_t target,
                                 diopiConstTensorHandle_t weight, diopiConstTensorHandle_t pos_weight,
                                 diopiReduction_t reduction, double a, double b) {
  struct loss_task task = {.kind = kind, .reduction = reduction, .backward = true, .a = a, .b = b};
  FRAME_TRY(frame_begin(&task.frame, function, ctx));
  FRAME_TRY(take(&task, OUT, grad_input));
  FRAME_TRY(take(&task, GRAD, grad_output));
  FRAME_TRY(take(&task, X, input));
  FRAME_TRY(take(&task, TARGET, target));
  FRAME_TAKE_OPTIONAL(&task.frame, weight, &task.views[WEIGHT]);
  FRAME_TAKE_OPTIONAL(&task.frame, pos_weight, &task.views[POS_WEIGHT]);
  return launch(&task);
}

diopiError_t diopiMSELoss(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                          diopiConstTensorHandle_t target, diopiReduction_t reduction) {
  return run_forward(__func__, ctx, LOSS_MSE, out, input, target, NULL, NULL, reduction, 0, 0);
}

diopiError_t diopiMSELossBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                  diopiConstTensorHandle_t grad_output, diopiConstTensorHandle_t input,
                                  diopiConstTensorHandle_t target, diopiReduction_t reduction) {
  return run_backward(__func__, ctx, LOSS_MSE, grad_input, grad_output, input, target, NULL, NULL, reduction, 0, 0);
}

/// A negative or NaN beta is an argument error.
static diopiError_t check_beta(const char *function, diopiContextHandle_t ctx, double beta) {
  struct frame frame;
  FRAME_TRY(frame_begin(&frame, function, ctx));
  FRAME_CHECK(&frame, beta >= 0, "'beta' is %g; it must not be negative", beta);
  return diopiSuccess;
}

diopiError_t diopiSmoothL1Loss(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                               diopiConstTensorHandle_t target, diopiReduction_t reduction, double beta) {
  FRAME_TRY(check_beta(__func__, ctx, beta));
  return run_forward(__func__, ctx, LOSS_SMOOTH_L1, out, input, target, NULL, NULL, reduction, beta, 0);
}

diopiError_t diopiSmoothL1LossBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                       diopiConstTensorHandle_t grad_output, diopiConstTensorHandle_t input,
                                       diopiConstTensorHandle_t target, diopiReduction_t reduction, double beta) {
  FRAME_TRY(check_beta(__func__, ctx, beta));
  return run_backward(__func__, ctx, LOSS_SMOOTH_L1, grad_input, grad_output, input, target, NULL, NULL, reduction,
                      beta, 0);
}

diopiError_t diopiBCELoss(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                          diopiConstTensorHandle_t target, diopiConstTensorHandle_t weight,
                          diopiReduction_t reduction) {
  return run_forward(__func__, ctx, LOSS_BCE, out, input, target, weight, NULL, reduction, 0, 0);
}

diopiError_t diopiBCELossBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                  diopiConstTensorHandle_t grad_output, diopiConstTensorHandle_t input,
                                  diopiConstTensorHandle_t target, diopiConstTensorHandle_t weight,
                                  diopiReduction_t reduction) {
  return run_backward(__func__, ctx, LOSS_BCE, grad_input, grad_output, input, target, weight, NULL, reduction, 0, 0);
}

diopiError_t diopiBCEWithLogits(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                                diopiConstTensorHandle_t target, diopiConstTensorHandle_t weight,
                                diopiConstTensorHandle_t pos_weight, diopiReduction_t reduction) {
  return run_forward(__func__, ctx, pos_weight ? LOSS_WEIGHTED_LOGITS : LOSS_LOGITS, out, input, target, weight,
                     pos_weight, reduction, 0, 0);
}

diopiError_t diopiBCEWithLogitsBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                        diopiConstTensorHandle_t grad_output, diopiConstTensorHandle_t input,
                                        diopiConstTensorHandle_t target, diopiConstTensorHandle_t weight,
                                        diopiConstTensorHandle_t pos_weight, diopiReduction_t reduction) {
  return run_backward(__func__, ctx, pos_weight ? LOSS_WEIGHTED_LOGITS : LOSS_LOGITS, grad_input, grad_output, input,
                      target, weight, pos_weight, reduction, 0, 0);
}

diopiError_t diopiSigmoidFocalLoss(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t inputs,
                                   diopiConstTensorHandle_t targets, float alpha, float gamma,
                                   diopiReduction_t reduction) {
  return run_forward(__func__, ctx, LOSS_FOCAL, out, inputs, targets, NULL, NULL, reduction, (double)alpha,
                     (double)gamma);
}

/// The standard's order of parameters: grad_output first, the result fourth, gamma before alpha.
diopiError_t diopiSigmoidFocalLossBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_output,
                                           diopiConstTensorHandle_t input, diopiConstTensorHandle_t target,
                                           diopiTensorHandle_t grad_input, float gamma, float alpha,
                                           diopiReduction_t reduction) {
  return run_backward(__func__, ctx, LOSS_FOCAL, grad_input, grad_output, input, target, NULL, NULL, reduction,
                      (double)alpha, (double)gamma);
}

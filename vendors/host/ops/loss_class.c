/// Losses of class numbers: negative log likelihood, and cross entropy (with softmax inside).
///
/// input is (N, C, d...) or (C), target (N, d...) or () of class numbers; cross entropy also takes probabilities of
/// input's shape. With w the class weights (1 where absent) and l = input, or log_softmax(input) for cross entropy:
///   loss = -w[t] * l[t], 0 where t is ignore_index; with label smoothing s: (1 - s) * that - s / C * sum(w * l);
///   probabilities p: -sum(w * (p * (1 - s) + s / C) * l).
/// A mean divides by the sum of w[t] of the points that count (for probabilities by the number of points). `out` has
/// target's shape or one element; grad_input has input's shape and may be exactly the input. Sums are in double. A
/// class number outside [0, C) that is not ignore_index is an error before anything is written.
#include "loss_class.h"

static diopiError_t check_dtypes(struct class_task *task) {
  const struct dit_tensor_view *views[] = {&task->v_x, &task->v_weight, &task->v_grad, &task->v_out, &task->v_total};
  const char *names[] = {"input", "weight", "grad_output", task->backward ? "grad_input" : "out", "totalWeight"};
  for (int i = 0; i < 5; i++) {
    if (views[i]->handle && !frame_has_dtype(DTYPES_FLOAT, views[i]->dtype)) {
      return frame_fail_dtype(&task->frame, names[i], views[i]->dtype);
    }
  }
  if (!frame_has_dtype(DTYPES_INT | (task->softmax ? DTYPES_FLOAT : 0), task->v_target.dtype)) {
    return frame_fail_dtype(&task->frame, "target", task->v_target.dtype);
  }
  return diopiSuccess;
}

/// Is `target` input without its class dimension?
static bool has_target_shape(const struct dit_tensor_view *x, int dim, const struct dit_tensor_view *target) {
  int next = 0;
  for (int d = 0; d < x->ndim; d++) {
    if (d != dim && (next >= target->ndim || target->sizes[next++] != x->sizes[d])) {
      return false;
    }
  }
  return next == target->ndim;
}

static diopiError_t check_shapes(struct class_task *task) {
  struct frame *frame = &task->frame;
  const struct dit_tensor_view *x = &task->v_x, *target = &task->v_target;
  const bool classes = frame_has_dtype(DTYPES_INT, target->dtype);
  const int dim = x->ndim == 1 ? 0 : 1;
  FRAME_CHECK(frame, x->ndim >= 1, "'input' has no dimension; it must be (N, C, ...) or (C)");
  FRAME_CHECK(frame, classes ? has_target_shape(x, dim, target) : frame_is_same_shape(x, target),
              classes ? "'target' must have the shape of 'input' without its class dimension %d"
                      : "'target' holds probabilities and must have the shape of 'input' (class dimension %d)",
              dim);
  task->shape = line_shape_get(x, dim);
  task->points = task->shape.outer * task->shape.inner;
  FRAME_CHECK(frame, !task->v_weight.handle || task->v_weight.numel == task->shape.length,
              "'weight' has %lld elements; the input has %lld classes", (long long)task->v_weight.numel,
              (long long)task->shape.length);
  const struct dit_tensor_view *points = task->backward ? &task->v_grad : &task->v_out;
  FRAME_CHECK(frame,
              task->reduction != ReductionNone ? points->numel == 1
              : classes                        ? frame_is_same_shape(points, target)
                                               : has_target_shape(x, dim, points),
              "'%s' must have %s", task->backward ? "grad_output" : "out",
              task->reduction == ReductionNone ? "one element per point" : "one element for this reduction");
  FRAME_CHECK(frame, !task->backward || frame_is_same_shape(&task->v_out, x),
              "'grad_input' has another shape than 'input'");
  FRAME_CHECK(frame, !task->v_total.handle || task->v_total.numel == 1, "'totalWeight' must have one element");
  return diopiSuccess;
}

static diopiError_t launch(struct class_task *task) {
  struct frame *frame = &task->frame;
  const char *name = task->backward ? "grad_input" : "out";
  FRAME_CHECK(frame, task->reduction >= ReductionNone && task->reduction < ReductionEND,
              "'reduction' is %d; valid: 0 (none), 1 (mean), 2 (sum)", (int)task->reduction);
  FRAME_CHECK(frame, task->smoothing >= 0 && task->smoothing <= 1, "'label_smoothing' is %g; valid: 0 to 1",
              task->smoothing);
  FRAME_TRY(check_dtypes(task));
  FRAME_TRY(check_shapes(task));
  const struct dit_tensor_view *inputs[] = {&task->v_x, &task->v_target, &task->v_weight, &task->v_grad};
  FRAME_TRY(frame_check_output(frame, name, &task->v_out, inputs, 1, task->backward));
  FRAME_TRY(frame_check_output(frame, name, &task->v_out, inputs + 1, 3, false));
  if (task->v_total.handle && !task->backward) {
    FRAME_TRY(frame_check_output(frame, "totalWeight", &task->v_total, inputs, 4, false));
    const struct dit_tensor_view *out = &task->v_out;
    FRAME_TRY(frame_check_output(frame, "totalWeight", &task->v_total, &out, 1, false));
  }
  task->work = task->v_x.dtype == DIT_DTYPE_F64 ? DIT_DTYPE_F64 : DIT_DTYPE_F32;
  return class_run(task);
}

static diopiError_t take(struct class_task *task, const char *function, diopiContextHandle_t ctx,
                         diopiTensorHandle_t out, diopiConstTensorHandle_t grad_output, diopiConstTensorHandle_t input,
                         diopiConstTensorHandle_t target, diopiConstTensorHandle_t weight) {
  FRAME_TRY(frame_begin(&task->frame, function, ctx));
  FRAME_TRY(frame_take(&task->frame, task->backward ? "grad_input" : "out", out, &task->v_out));
  if (task->backward) {
    FRAME_TAKE(&task->frame, grad_output, &task->v_grad);
  }
  FRAME_TAKE(&task->frame, input, &task->v_x);
  FRAME_TAKE(&task->frame, target, &task->v_target);
  FRAME_TAKE_OPTIONAL(&task->frame, weight, &task->v_weight);
  return diopiSuccess;
}

diopiError_t diopiCrossEntropyLoss(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                                   diopiConstTensorHandle_t target, diopiConstTensorHandle_t weight,
                                   diopiReduction_t reduction, int64_t ignore_index, double label_smoothing) {
  struct class_task task = {
      .reduction = reduction, .softmax = true, .ignore = ignore_index, .smoothing = label_smoothing};
  FRAME_TRY(take(&task, __func__, ctx, out, NULL, input, target, weight));
  return launch(&task);
}

diopiError_t diopiCrossEntropyLossBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                           diopiConstTensorHandle_t grad_output, diopiConstTensorHandle_t input,
                                           diopiConstTensorHandle_t target, diopiConstTensorHandle_t weight,
                                           diopiReduction_t reduction, int64_t ignore_index, double label_smoothing) {
  struct class_task task = {
      .reduction = reduction, .softmax = true, .backward = true, .ignore = ignore_index, .smoothing = label_smoothing};
  FRAME_TRY(take(&task, __func__, ctx, grad_input, grad_output, input, target, weight));
  return launch(&task);
}

diopiError_t diopiNLLLoss(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                          diopiConstTensorHandle_t target, diopiConstTensorHandle_t weight, diopiReduction_t reduction,
                          int64_t ignore_index) {
  struct class_task task = {.reduction = reduction, .ignore = ignore_index};
  FRAME_TRY(take(&task, __func__, ctx, out, NULL, input, target, weight));
  return launch(&task);
}

diopiError_t diopiNLLLossBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                  diopiConstTensorHandle_t grad_output, diopiConstTensorHandle_t input,
                                  diopiConstTensorHandle_t target, diopiConstTensorHandle_t weight,
                                  diopiReduction_t reduction, int64_t ignore_index) {
  struct class_task task = {.reduction = reduction, .backward = true, .ignore = ignore_index};
  FRAME_TRY(take(&task, __func__, ctx, grad_input, grad_output, input, target, weight));
  return launch(&task);
}

/// totalWeight: the sum of weights that a mean divides by (0 without reduction).
diopiError_t diopiNLLLossV2(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiTensorHandle_t totalWeight,
                            diopiConstTensorHandle_t input, diopiConstTensorHandle_t target,
                            diopiConstTensorHandle_t weight, diopiReduction_t reduction, int64_t ignore_index) {
  struct class_task task = {.reduction = reduction, .ignore = ignore_index};
  FRAME_TRY(take(&task, __func__, ctx, out, NULL, input, target, weight));
  FRAME_TAKE(&task.frame, totalWeight, &task.v_total);
  return launch(&task);
}

diopiError_t diopiNLLLossV2Backward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                    diopiConstTensorHandle_t grad_output, diopiConstTensorHandle_t input,
                                    diopiConstTensorHandle_t target, diopiConstTensorHandle_t weight,
                                    diopiConstTensorHandle_t totalWeight, diopiReduction_t reduction,
                                    int64_t ignore_index) {
  struct class_task task = {.reduction = reduction, .backward = true, .ignore = ignore_index, .total_given = true};
  FRAME_TRY(take(&task, __func__, ctx, grad_input, grad_output, input, target, weight));
  FRAME_TAKE(&task.frame, totalWeight, &task.v_total);
  return launch(&task);
}

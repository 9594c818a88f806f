/// The gradients of batch norm, and the backward pieces of synchronised batch norm.
///
/// With d = x - mean, n elements per channel and g the gradient of y:
///   grad_weight = sum(g * d) * invstd, grad_bias = sum(g),
///   grad_input = (g - sum(g) / n - d * invstd^2 * sum(g * d) / n) * invstd * weight; outside training g * invstd *
///   weight.
/// Statistics have any floating dtype (float32 for half inputs). grad_input may be exactly the input or the gradient.
#include "norm_batch.h"

diopiError_t diopiBatchNormBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                    diopiTensorHandle_t grad_weight, diopiTensorHandle_t grad_bias,
                                    diopiConstTensorHandle_t grad_output, diopiConstTensorHandle_t input,
                                    diopiConstTensorHandle_t weight, diopiConstTensorHandle_t running_mean,
                                    diopiConstTensorHandle_t running_var, diopiConstTensorHandle_t save_mean,
                                    diopiConstTensorHandle_t save_invstd, bool training, double eps) {
  struct backward_task b = {.training = training, .variance = !training, .eps = eps};
  struct batch_task *task = &b.t;
  FRAME_BEGIN(&task->frame, ctx);
  FRAME_TAKE_OPTIONAL(&task->frame, grad_input, &task->v_out);
  FRAME_TAKE_OPTIONAL(&task->frame, grad_weight, &b.grad_weight);
  FRAME_TAKE_OPTIONAL(&task->frame, grad_bias, &b.grad_bias);
  FRAME_TAKE(&task->frame, grad_output, &task->v_g);
  FRAME_TAKE(&task->frame, input, &task->v_x);
  FRAME_TAKE_OPTIONAL(&task->frame, weight, &b.weight);
  FRAME_TRY(
      frame_take(&task->frame, training ? "save_mean" : "running_mean", training ? save_mean : running_mean, &b.mean));
  FRAME_TRY(frame_take(&task->frame, training ? "save_invstd" : "running_var", training ? save_invstd : running_var,
                       &b.scale));
  FRAME_TRY(batch_set_input(task));
  FRAME_TRY(batch_check_big(task, "grad_output", &task->v_g));
  if (grad_input) {
    FRAME_TRY(batch_check_big(task, "grad_input", &task->v_out));
  }
  FRAME_TRY(batch_check_channels(task, "weight", &b.weight));
  FRAME_TRY(batch_check_channels(task, training ? "save_mean" : "running_mean", &b.mean));
  FRAME_TRY(batch_check_channels(task, training ? "save_invstd" : "running_var", &b.scale));
  FRAME_TRY(batch_check_channels(task, "grad_weight", &b.grad_weight));
  FRAME_TRY(batch_check_channels(task, "grad_bias", &b.grad_bias));
  FRAME_TRY(batch_check_out(task, "grad_input", &task->v_out, true));
  FRAME_TRY(batch_check_out(task, "grad_weight", &b.grad_weight, false));
  FRAME_TRY(batch_check_out(task, "grad_bias", &b.grad_bias, false));
  b.total = (double)task->count;
  return batch_backward(&b);
}

diopiError_t diopiBatchNormBackwardReduce(diopiContextHandle_t ctx, diopiTensorHandle_t sum_dy,
                                          diopiTensorHandle_t sum_dy_xmu, diopiTensorHandle_t grad_weight,
                                          diopiTensorHandle_t grad_bias, diopiConstTensorHandle_t grad_out,
                                          diopiConstTensorHandle_t input, diopiConstTensorHandle_t mean,
                                          diopiConstTensorHandle_t invstd, diopiConstTensorHandle_t weight,
                                          bool input_g, bool weight_g, bool bias_g) {
  struct backward_task b = {.training = true};
  struct batch_task *task = &b.t;
  (void)weight;
  FRAME_BEGIN(&task->frame, ctx);
  FRAME_TRY(frame_take_optional(&task->frame, "sum_dy", input_g ? sum_dy : NULL, &b.sum_dy));
  FRAME_TRY(frame_take_optional(&task->frame, "sum_dy_xmu", input_g ? sum_dy_xmu : NULL, &b.sum_dy_xmu));
  FRAME_TRY(frame_take_optional(&task->frame, "grad_weight", weight_g ? grad_weight : NULL, &b.grad_weight));
  FRAME_TRY(frame_take_optional(&task->frame, "grad_bias", bias_g ? grad_bias : NULL, &b.grad_bias));
  FRAME_TAKE(&task->frame, grad_out, &task->v_g);
  FRAME_TAKE(&task->frame, input, &task->v_x);
  FRAME_TAKE(&task->frame, mean, &b.mean);
  FRAME_TAKE(&task->frame, invstd, &b.scale);
  FRAME_TRY(batch_set_input(task));
  FRAME_TRY(batch_check_big(task, "grad_out", &task->v_g));
  const struct dit_tensor_view *outs[] = {&b.sum_dy, &b.sum_dy_xmu, &b.grad_weight, &b.grad_bias};
  static const char *const names[] = {"sum_dy", "sum_dy_xmu", "grad_weight", "grad_bias"};
  for (int i = 0; i < 4; i++) {
    FRAME_TRY(batch_check_channels(task, names[i], outs[i]));
    FRAME_TRY(batch_check_out(task, names[i], outs[i], false));
  }
  FRAME_TRY(batch_check_channels(task, "mean", &b.mean));
  FRAME_TRY(batch_check_channels(task, "invstd", &b.scale));
  return batch_backward(&b);
}

diopiError_t diopiBatchNormBackwardElemt(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                         diopiConstTensorHandle_t grad_out, diopiConstTensorHandle_t input,
                                         diopiConstTensorHandle_t mean, diopiConstTensorHandle_t invstd,
                                         diopiConstTensorHandle_t weight, diopiConstTensorHandle_t sum_dy,
                                         diopiConstTensorHandle_t sum_dy_xmu, diopiConstTensorHandle_t count) {
  struct backward_task b = {.training = true};
  struct batch_task *task = &b.t;
  FRAME_BEGIN(&task->frame, ctx);
  FRAME_TAKE(&task->frame, grad_input, &task->v_out);
  FRAME_TAKE(&task->frame, grad_out, &task->v_g);
  FRAME_TAKE(&task->frame, input, &task->v_x);
  FRAME_TAKE(&task->frame, mean, &b.mean);
  FRAME_TAKE(&task->frame, invstd, &b.scale);
  FRAME_TAKE_OPTIONAL(&task->frame, weight, &b.weight);
  FRAME_TAKE(&task->frame, sum_dy, &b.sum_dy);
  FRAME_TAKE(&task->frame, sum_dy_xmu, &b.sum_dy_xmu);
  FRAME_TAKE(&task->frame, count, &b.count);
  FRAME_TRY(batch_set_input(task));
  FRAME_TRY(batch_check_big(task, "grad_input", &task->v_out));
  FRAME_TRY(batch_check_big(task, "grad_out", &task->v_g));
  FRAME_TRY(batch_check_channels(task, "mean", &b.mean));
  FRAME_TRY(batch_check_channels(task, "invstd", &b.scale));
  FRAME_TRY(batch_check_channels(task, "weight", &b.weight));
  FRAME_TRY(batch_check_channels(task, "sum_dy", &b.sum_dy));
  FRAME_TRY(batch_check_channels(task, "sum_dy_xmu", &b.sum_dy_xmu));
  if (!frame_has_dtype(DTYPES_REAL, b.count.dtype)) {
    return frame_fail_dtype(&task->frame, "count", b.count.dtype);
  }
  FRAME_TRY(batch_check_out(task, "grad_input", &task->v_out, true));
  return batch_backward_elemt(&b);
}

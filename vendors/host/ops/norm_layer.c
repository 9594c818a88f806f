/// Layer norm and RMS norm over the last dimensions, with gradients.
///
/// Rows of N elements: y = (x - mean) * s * weight + bias with s = 1 / sqrt(variance + eps); RMS norm: mean = 0 and the
/// variance is the mean of squares. weight and bias have N elements or are absent. Saved statistics hold one number per
/// row, in any floating dtype (float32 for half inputs). Gradients, with h = g * weight and z = (x - mean) * s:
///   grad_input = s * (h - mean(h) - z * mean(h * z)), RMS norm without mean(h);
///   grad_weight = sum over rows of g * z; grad_bias = sum over rows of g.
/// Accumulated in double over blocks of float. Outputs may be exactly the input or the gradient.
#include "norm_layer.h"

#include <string.h>

// Arguments

/// Cut the input into rows of the elements from dimension `axis` on.
static diopiError_t set_rows(struct layer_task *task, int axis) {
  const struct dit_tensor_view *x = &task->v_input;
  task->rows = task->length = 1;
  for (int dim = 0; dim < x->ndim; dim++) {
    *(dim < axis ? &task->rows : &task->length) *= x->sizes[dim];
  }
  task->work = x->dtype == DIT_DTYPE_F64 ? DIT_DTYPE_F64 : DIT_DTYPE_F32;
  return diopiSuccess;
}

static diopiError_t get_axis(struct layer_task *task, diopiSize_t shape, int *axis) {
  struct frame *frame = &task->frame;
  const struct dit_tensor_view *x = &task->v_input;
  FRAME_CHECK(frame, shape.data && shape.len > 0 && shape.len <= x->ndim,
              "'normalized_shape' has %lld dimensions; valid: 1 to the input's %d", (long long)shape.len, (int)x->ndim);
  *axis = x->ndim - (int)shape.len;
  for (int64_t i = 0; i < shape.len; i++) {
    FRAME_CHECK(frame, shape.data[i] == x->sizes[*axis + i],
                "'normalized_shape' has size %lld where the input has %lld; they must agree", (long long)shape.data[i],
                (long long)x->sizes[*axis + i]);
  }
  return diopiSuccess;
}

/// Dtype and number of elements of an argument that may be absent.
static diopiError_t check(struct layer_task *task, const char *name, const struct dit_tensor_view *view,
                          int64_t numel) {
  if (!view->handle) {
    return diopiSuccess;
  }
  if (!frame_has_dtype(DTYPES_FLOAT, view->dtype)) {
    return frame_fail_dtype(&task->frame, name, view->dtype);
  }
  FRAME_CHECK(&task->frame, view->numel == numel, "'%s' has %lld elements; it must have %lld", name,
              (long long)view->numel, (long long)numel);
  return diopiSuccess;
}

static diopiError_t check_output(struct layer_task *task, const char *name, const struct dit_tensor_view *out,
                                 bool in_place) {
  const struct dit_tensor_view *inputs[] = {&task->v_input, &task->v_grad, &task->v_weight, &task->v_bias};
  return out->handle ? frame_check_output(&task->frame, name, out, inputs, 4, in_place) : diopiSuccess;
}

static diopiError_t launch_forward(struct layer_task *task, int axis, const char *mean, const char *scale) {
  FRAME_TRY(set_rows(task, axis));
  FRAME_TRY(check(task, "input", &task->v_input, task->v_input.numel));
  FRAME_TRY(check(task, "out", &task->v_out, task->v_input.numel));
  FRAME_CHECK(&task->frame, frame_is_same_shape(&task->v_out, &task->v_input), "'out' has another shape than 'input'");
  FRAME_TRY(check(task, mean, &task->v_mean, task->rows));
  FRAME_TRY(check(task, scale, &task->v_scale, task->rows));
  FRAME_TRY(check(task, "weight", &task->v_weight, task->length));
  FRAME_TRY(check(task, "bias", &task->v_bias, task->length));
  FRAME_TRY(check_output(task, "out", &task->v_out, true));
  FRAME_TRY(check_output(task, mean, &task->v_mean, false));
  FRAME_TRY(check_output(task, scale, &task->v_scale, false));
  return layer_forward(task);
}

static diopiError_t launch_backward(struct layer_task *task, int axis, const char *mean, const char *scale) {
  FRAME_TRY(set_rows(task, axis));
  FRAME_TRY(check(task, "input", &task->v_input, task->v_input.numel));
  FRAME_TRY(check(task, "grad_input", &task->v_out, task->v_input.numel));
  FRAME_TRY(check(task, "grad_output", &task->v_grad, task->v_input.numel));
  FRAME_CHECK(&task->frame, frame_is_same_shape(&task->v_grad, &task->v_input),
              "'grad_output' has another shape than 'input'");
  FRAME_CHECK(&task->frame, !task->v_out.handle || frame_is_same_shape(&task->v_out, &task->v_input),
              "'grad_input' has another shape than 'input'");
  FRAME_TRY(check(task, mean, &task->v_mean, task->rows));
  FRAME_TRY(check(task, scale, &task->v_scale, task->rows));
  FRAME_TRY(check(task, "weight", &task->v_weight, task->length));
  FRAME_TRY(check(task, "grad_weight", &task->v_grad_weight, task->length));
  FRAME_TRY(check(task, "grad_bias", &task->v_grad_bias, task->length));
  FRAME_TRY(check_output(task, "grad_input", &task->v_out, true));
  FRAME_TRY(check_output(task, "grad_weight", &task->v_grad_weight, false));
  FRAME_TRY(check_output(task, "grad_bias", &task->v_grad_bias, false));
  return layer_backward(task);
}

static diopiError_t take_forward(struct layer_task *task, const char *function, diopiContextHandle_t ctx,
                                 diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                                 diopiConstTensorHandle_t weight, diopiConstTensorHandle_t bias, double eps) {
  memset(task, 0, sizeof *task);
  task->eps = eps;
  FRAME_TRY(frame_begin(&task->frame, function, ctx));
  FRAME_TAKE(&task->frame, out, &task->v_out);
  FRAME_TAKE(&task->frame, input, &task->v_input);
  FRAME_TAKE_OPTIONAL(&task->frame, weight, &task->v_weight);
  FRAME_TAKE_OPTIONAL(&task->frame, bias, &task->v_bias);
  return diopiSuccess;
}

static diopiError_t take_backward(struct layer_task *task, const char *function, diopiContextHandle_t ctx,
                                  diopiTensorHandle_t grad_input, diopiTensorHandle_t grad_weight,
                                  diopiTensorHandle_t grad_bias, diopiConstTensorHandle_t grad_output,
                                  diopiConstTensorHandle_t input, diopiConstTensorHandle_t weight) {
  memset(task, 0, sizeof *task);
  FRAME_TRY(frame_begin(&task->frame, function, ctx));
  FRAME_TAKE_OPTIONAL(&task->frame, grad_input, &task->v_out);
  FRAME_TAKE_OPTIONAL(&task->frame, grad_weight, &task->v_grad_weight);
  FRAME_TAKE_OPTIONAL(&task->frame, grad_bias, &task->v_grad_bias);
  FRAME_TAKE(&task->frame, grad_output, &task->v_grad);
  FRAME_TAKE(&task->frame, input, &task->v_input);
  FRAME_TAKE_OPTIONAL(&task->frame, weight, &task->v_weight);
  return diopiSuccess;
}

diopiError_t diopiLayerNorm(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiTensorHandle_t save_mean,
                            diopiTensorHandle_t save_invstd, diopiConstTensorHandle_t input,
                            diopiConstTensorHandle_t weight, diopiConstTensorHandle_t bias,
                            diopiSize_t normalized_shape, double eps) {
  struct layer_task task;
  int axis;
  FRAME_TRY(take_forward(&task, __func__, ctx, out, input, weight, bias, eps));
  FRAME_TAKE_OPTIONAL(&task.frame, save_mean, &task.v_mean);
  FRAME_TAKE_OPTIONAL(&task.frame, save_invstd, &task.v_scale);
  FRAME_TRY(get_axis(&task, normalized_shape, &axis));
  return launch_forward(&task, axis, "save_mean", "save_invstd");
}

diopiError_t diopiLayerNormBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                    diopiTensorHandle_t grad_weight, diopiTensorHandle_t grad_bias,
                                    diopiConstTensorHandle_t grad_output, diopiConstTensorHandle_t input,
                                    diopiConstTensorHandle_t weight, diopiConstTensorHandle_t bias,
                                    diopiConstTensorHandle_t mean, diopiConstTensorHandle_t rstd,
                                    diopiSize_t normalized_shape) {
  struct layer_task task;
  int axis;
  (void)bias;
  FRAME_TRY(take_backward(&task, __func__, ctx, grad_input, grad_weight, grad_bias, grad_output, input, weight));
  FRAME_TAKE(&task.frame, mean, &task.v_mean);
  FRAME_TAKE(&task.frame, rstd, &task.v_scale);
  FRAME_TRY(get_axis(&task, normalized_shape, &axis));
  return launch_backward(&task, axis, "mean", "rstd");
}

/// The same with the first normalised dimension by number; running_var holds 1 / sqrt(variance + eps), as save_invstd.
diopiError_t diopiLayerNormGB(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiTensorHandle_t running_mean,
                              diopiTensorHandle_t running_var, diopiConstTensorHandle_t input,
                              diopiConstTensorHandle_t weight, diopiConstTensorHandle_t bias, const double eps,
                              const int64_t begin_norm_axis) {
  struct layer_task task;
  int axis;
  FRAME_TRY(take_forward(&task, __func__, ctx, out, input, weight, bias, eps));
  FRAME_TAKE_OPTIONAL(&task.frame, running_mean, &task.v_mean);
  FRAME_TAKE_OPTIONAL(&task.frame, running_var, &task.v_scale);
  FRAME_TRY(frame_wrap_dim(&task.frame, "begin_norm_axis", begin_norm_axis, task.v_input.ndim, &axis));
  return launch_forward(&task, axis, "running_mean", "running_var");
}

diopiError_t diopiLayerNormGBBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                      diopiTensorHandle_t grad_weight, diopiTensorHandle_t grad_bias,
                                      diopiConstTensorHandle_t grad_output, diopiConstTensorHandle_t input,
                                      diopiConstTensorHandle_t weight, diopiConstTensorHandle_t bias,
                                      diopiConstTensorHandle_t running_mean, diopiConstTensorHandle_t running_std,
                                      const int64_t begin_norm_axis) {
  struct layer_task task;
  int axis;
  (void)bias;
  FRAME_TRY(take_backward(&task, __func__, ctx, grad_input, grad_weight, grad_bias, grad_output, input, weight));
  FRAME_TAKE(&task.frame, running_mean, &task.v_mean);
  FRAME_TAKE(&task.frame, running_std, &task.v_scale);
  FRAME_TRY(frame_wrap_dim(&task.frame, "begin_norm_axis", begin_norm_axis, task.v_input.ndim, &axis));
  return launch_backward(&task, axis, "running_mean", "running_std");
}

diopiError_t diopiRMSNorm(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiTensorHandle_t inv_rms,
                          diopiConstTensorHandle_t input, diopiSize_t normalized_shape, diopiConstTensorHandle_t weight,
                          diopiConstTensorHandle_t bias, double eps) {
  struct layer_task task;
  int axis;
  FRAME_TRY(take_forward(&task, __func__, ctx, out, input, weight, bias, eps));
  FRAME_TAKE_OPTIONAL(&task.frame, inv_rms, &task.v_scale);
  FRAME_TRY(get_axis(&task, normalized_shape, &axis));
  task.rms = true;
  return launch_forward(&task, axis, "mean", "inv_rms");
}

diopiError_t diopiRMSNormBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                  diopiTensorHandle_t grad_weight, diopiTensorHandle_t grad_bias,
                                  diopiConstTensorHandle_t grad_output, diopiConstTensorHandle_t input,
                                  diopiConstTensorHandle_t weight, diopiConstTensorHandle_t bias,
                                  diopiConstTensorHandle_t inv_rms, diopiSize_t normalized_shape, double eps) {
  struct layer_task task;
  int axis;
  (void)bias;
  FRAME_TRY(take_backward(&task, __func__, ctx, grad_input, grad_weight, grad_bias, grad_output, input, weight));
  FRAME_TAKE(&task.frame, inv_rms, &task.v_scale);
  FRAME_TRY(get_axis(&task, normalized_shape, &axis));
  task.rms = true;
  task.eps = eps;
  return launch_backward(&task, axis, "mean", "inv_rms");
}

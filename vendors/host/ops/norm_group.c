/// Group norm and instance norm, with gradients.
///
/// Channels (dimension 1) are cut into groups; mean and scale = 1 / sqrt(variance + eps) belong to one group of one
/// sample: y = (x - mean) * scale * weight[c] + bias[c]. Instance norm has one channel per group and keeps no
/// statistics; its channels are in dimension `axis` (1 for NCHW), and every other dimension but the first is averaged.
/// Gradients as for layer norm, with sums over a group. Statistics have any floating dtype (float32 for half inputs).
/// Sums in double over blocks of float. Outputs may be exactly the input or the gradient.
#include "norm_group.h"

static diopiError_t check(struct group_task *task, const char *name, const struct dit_tensor_view *view,
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

static diopiError_t check_big(struct group_task *task, const char *name, const struct dit_tensor_view *view) {
  FRAME_TRY(check(task, name, view, task->v_x.numel));
  FRAME_CHECK(&task->frame, !view->handle || frame_is_same_shape(view, &task->v_x),
              "'%s' has another shape than 'input'", name);
  return diopiSuccess;
}

static diopiError_t check_out(struct group_task *task, const char *name, const struct dit_tensor_view *out,
                              bool in_place) {
  const struct dit_tensor_view *inputs[] = {&task->v_x, &task->v_g, &task->v_weight, &task->v_bias};
  return out->handle ? frame_check_output(&task->frame, name, out, inputs, 4, in_place) : diopiSuccess;
}

static diopiError_t set_groups(struct group_task *task, int64_t groups) {
  const struct dit_tensor_view *x = &task->v_x;
  FRAME_CHECK(&task->frame, x->ndim >= 2, "'input' has %d dimensions; it must have at least 2: (N, C, ...)",
              (int)x->ndim);
  FRAME_CHECK(&task->frame, groups > 0 && x->sizes[1] % groups == 0,
              "'num_groups' is %lld; the input's %lld channels must be a multiple of it", (long long)groups,
              (long long)x->sizes[1]);
  task->samples = x->sizes[0];
  task->groups = groups;
  task->width = x->sizes[1] / groups;
  task->area = 1;
  for (int dim = 2; dim < x->ndim; dim++) {
    task->area *= x->sizes[dim];
  }
  return diopiSuccess;
}

/// The channels of an instance norm as dimension 1.
static void move_channels(struct dit_tensor_view *view, struct shaped *room, int axis) {
  if (!view->handle) {
    return;
  }
  shaped_init(room, view, false);
  for (int dim = axis; dim > 1; dim--) {
    room->sizes[dim] = view->sizes[dim - 1];
    room->strides[dim] = view->strides[dim - 1];
  }
  room->sizes[1] = view->sizes[axis];
  room->strides[1] = view->strides[axis];
  shaped_finish(room);
  *view = room->view;
}

static diopiError_t set_instances(struct group_task *task, struct shaped *rooms, int64_t axis, const char *out) {
  int channels;
  struct dit_tensor_view *x = &task->v_x;
  FRAME_CHECK(&task->frame, x->ndim >= 2, "'input' has %d dimensions; it must have at least 2: (N, C, ...)",
              (int)x->ndim);
  FRAME_TRY(frame_wrap_dim(&task->frame, "axis", axis, x->ndim, &channels));
  FRAME_CHECK(&task->frame, channels > 0, "'axis' is %lld; channels cannot be in dimension 0", (long long)axis);
  FRAME_TRY(check_big(task, out, &task->v_out));
  FRAME_TRY(check_big(task, "grad_output", &task->v_g));
  move_channels(x, &rooms[0], channels);
  move_channels(&task->v_out, &rooms[1], channels);
  move_channels(&task->v_g, &rooms[2], channels);
  FRAME_CHECK(&task->frame, x->sizes[1] > 0, "'input' has no channels in dimension %d", channels);
  return set_groups(task, x->sizes[1]);
}

static diopiError_t launch_forward(struct group_task *task, const char *out, const char *weight) {
  const int64_t channels = task->groups * task->width, groups = task->samples * task->groups;
  task->work = task->v_x.dtype == DIT_DTYPE_F64 ? DIT_DTYPE_F64 : DIT_DTYPE_F32;
  FRAME_TRY(check(task, "input", &task->v_x, task->v_x.numel));
  FRAME_TRY(check_big(task, out, &task->v_out));
  FRAME_TRY(check(task, "save_mean", &task->v_mean, groups));
  FRAME_TRY(check(task, "save_invstd", &task->v_scale, groups));
  FRAME_TRY(check(task, weight, &task->v_weight, channels));
  FRAME_TRY(check(task, "bias", &task->v_bias, channels));
  FRAME_TRY(check_out(task, out, &task->v_out, true));
  FRAME_TRY(check_out(task, "save_mean", &task->v_mean, false));
  FRAME_TRY(check_out(task, "save_invstd", &task->v_scale, false));
  return group_forward(task);
}

static diopiError_t launch_backward(struct group_task *task, const char *weight, const char *grad_weight) {
  const int64_t channels = task->groups * task->width, groups = task->samples * task->groups;
  task->work = task->v_x.dtype == DIT_DTYPE_F64 ? DIT_DTYPE_F64 : DIT_DTYPE_F32;
  FRAME_TRY(check(task, "input", &task->v_x, task->v_x.numel));
  FRAME_TRY(check_big(task, "grad_output", &task->v_g));
  FRAME_TRY(check_big(task, "grad_input", &task->v_out));
  FRAME_TRY(check(task, "mean", &task->v_mean, groups));
  FRAME_TRY(check(task, "rstd", &task->v_scale, groups));
  FRAME_TRY(check(task, weight, &task->v_weight, channels));
  FRAME_TRY(check(task, grad_weight, &task->v_grad_weight, channels));
  FRAME_TRY(check(task, "grad_bias", &task->v_grad_bias, channels));
  FRAME_TRY(check_out(task, "grad_input", &task->v_out, true));
  FRAME_TRY(check_out(task, grad_weight, &task->v_grad_weight, false));
  FRAME_TRY(check_out(task, "grad_bias", &task->v_grad_bias, false));
  return group_backward(task);
}

diopiError_t diopiGroupNorm(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiTensorHandle_t save_mean,
                            diopiTensorHandle_t save_invstd, diopiConstTensorHandle_t input,
                            diopiConstTensorHandle_t weight, diopiConstTensorHandle_t bias, int64_t num_groups,
                            double eps) {
  struct group_task task = {.eps = eps};
  FRAME_BEGIN(&task.frame, ctx);
  FRAME_TAKE(&task.frame, out, &task.v_out);
  FRAME_TAKE_OPTIONAL(&task.frame, save_mean, &task.v_mean);
  FRAME_TAKE_OPTIONAL(&task.frame, save_invstd, &task.v_scale);
  FRAME_TAKE(&task.frame, input, &task.v_x);
  FRAME_TAKE_OPTIONAL(&task.frame, weight, &task.v_weight);
  FRAME_TAKE_OPTIONAL(&task.frame, bias, &task.v_bias);
  FRAME_TRY(set_groups(&task, num_groups));
  return launch_forward(&task, "out", "weight");
}

diopiError_t diopiGroupNormBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                    diopiTensorHandle_t grad_weight, diopiTensorHandle_t grad_bias,
                                    diopiConstTensorHandle_t grad_output, diopiConstTensorHandle_t input,
                                    diopiConstTensorHandle_t weight, diopiConstTensorHandle_t mean,
                                    diopiConstTensorHandle_t rstd, int64_t num_groups) {
  struct group_task task = {.eps = 0};
  FRAME_BEGIN(&task.frame, ctx);
  FRAME_TAKE_OPTIONAL(&task.frame, grad_input, &task.v_out);
  FRAME_TAKE_OPTIONAL(&task.frame, grad_weight, &task.v_grad_weight);
  FRAME_TAKE_OPTIONAL(&task.frame, grad_bias, &task.v_grad_bias);
  FRAME_TAKE(&task.frame, grad_output, &task.v_g);
  FRAME_TAKE(&task.frame, input, &task.v_x);
  FRAME_TAKE_OPTIONAL(&task.frame, weight, &task.v_weight);
  FRAME_TAKE(&task.frame, mean, &task.v_mean);
  FRAME_TAKE(&task.frame, rstd, &task.v_scale);
  FRAME_TRY(set_groups(&task, num_groups));
  return launch_backward(&task, "weight", "grad_weight");
}

diopiError_t diopiInstanceNorm(diopiContextHandle_t ctx, diopiTensorHandle_t output, diopiConstTensorHandle_t input,
                               const int64_t axis, diopiConstTensorHandle_t scale, diopiConstTensorHandle_t bias,
                               const double eps) {
  struct group_task task = {.eps = eps};
  struct shaped rooms[3];
  FRAME_BEGIN(&task.frame, ctx);
  FRAME_TAKE(&task.frame, output, &task.v_out);
  FRAME_TAKE(&task.frame, input, &task.v_x);
  FRAME_TAKE_OPTIONAL(&task.frame, scale, &task.v_weight);
  FRAME_TAKE_OPTIONAL(&task.frame, bias, &task.v_bias);
  FRAME_TRY(set_instances(&task, rooms, axis, "output"));
  return launch_forward(&task, "output", "scale");
}

diopiError_t diopiInstanceNormBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                       diopiTensorHandle_t grad_scale, diopiTensorHandle_t grad_bias,
                                       diopiConstTensorHandle_t grad_output, diopiConstTensorHandle_t input,
                                       diopiConstTensorHandle_t scale, diopiConstTensorHandle_t bias,
                                       const int64_t axis, const double eps) {
  struct group_task task = {.eps = eps, .recompute = true};
  struct shaped rooms[3];
  (void)bias;
  FRAME_BEGIN(&task.frame, ctx);
  FRAME_TAKE_OPTIONAL(&task.frame, grad_input, &task.v_out);
  FRAME_TAKE_OPTIONAL(&task.frame, grad_scale, &task.v_grad_weight);
  FRAME_TAKE_OPTIONAL(&task.frame, grad_bias, &task.v_grad_bias);
  FRAME_TAKE(&task.frame, grad_output, &task.v_g);
  FRAME_TAKE(&task.frame, input, &task.v_x);
  FRAME_TAKE_OPTIONAL(&task.frame, scale, &task.v_weight);
  FRAME_TRY(set_instances(&task, rooms, axis, "grad_input"));
  return launch_backward(&task, "scale", "grad_scale");
}

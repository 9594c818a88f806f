/// Batch norm: statistics per channel (dimension 1), and the forward pieces of synchronised batch norm.
///
/// y = (x - mean) * invstd * weight + bias, invstd = 1 / sqrt(variance + eps); in training mean and variance are the
/// batch's and running = (1 - momentum) * running + momentum * new (variance with n / (n - 1)). Statistics have any
/// floating dtype (float32 for half inputs). The output may be exactly the input.
#include "norm_batch.h"

diopiError_t diopiBatchNorm(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiTensorHandle_t save_mean,
                            diopiTensorHandle_t save_invstd, diopiConstTensorHandle_t input,
                            diopiConstTensorHandle_t weight, diopiConstTensorHandle_t bias,
                            diopiTensorHandle_t running_mean, diopiTensorHandle_t running_var, bool training,
                            double momentum, double eps) {
  struct forward_task f = {.training = training, .momentum = momentum, .eps = eps};
  struct batch_task *task = &f.t;
  FRAME_BEGIN(&task->frame, ctx);
  FRAME_TAKE(&task->frame, out, &task->v_out);
  FRAME_TAKE_OPTIONAL(&task->frame, save_mean, &f.mean);
  FRAME_TAKE_OPTIONAL(&task->frame, save_invstd, &f.scale);
  FRAME_TAKE(&task->frame, input, &task->v_x);
  FRAME_TAKE_OPTIONAL(&task->frame, weight, &f.weight);
  FRAME_TAKE_OPTIONAL(&task->frame, bias, &f.bias);
  FRAME_TAKE_OPTIONAL(&task->frame, running_mean, &f.running_mean);
  FRAME_TAKE_OPTIONAL(&task->frame, running_var, &f.running_var);
  FRAME_TRY(batch_set_input(task));
  FRAME_TRY(batch_check_big(task, "out", &task->v_out));
  FRAME_CHECK(&task->frame, training || (f.running_mean.handle && f.running_var.handle),
              "outside training 'running_mean' and 'running_var' are needed; one of them is NULL");
  FRAME_CHECK(&task->frame, !training || task->count > 0 || task->channels == 0,
              "'input' has no elements per channel; training needs at least one");
  if (training) {  // outside training the saved statistics are not written, so an empty tensor may stand for them
    FRAME_TRY(batch_check_channels(task, "save_mean", &f.mean));
    FRAME_TRY(batch_check_channels(task, "save_invstd", &f.scale));
  }
  FRAME_TRY(batch_check_channels(task, "weight", &f.weight));
  FRAME_TRY(batch_check_channels(task, "bias", &f.bias));
  FRAME_TRY(batch_check_channels(task, "running_mean", &f.running_mean));
  FRAME_TRY(batch_check_channels(task, "running_var", &f.running_var));
  FRAME_TRY(batch_check_out(task, "out", &task->v_out, true));
  FRAME_TRY(batch_check_out(task, "save_mean", &f.mean, false));
  FRAME_TRY(batch_check_out(task, "save_invstd", &f.scale, false));
  return batch_forward(&f);
}

diopiError_t diopiBatchNormStats(diopiContextHandle_t ctx, diopiTensorHandle_t mean, diopiTensorHandle_t invstd,
                                 diopiConstTensorHandle_t input, double eps) {
  struct forward_task f = {.training = true, .eps = eps};
  struct batch_task *task = &f.t;
  FRAME_BEGIN(&task->frame, ctx);
  FRAME_TAKE(&task->frame, mean, &f.mean);
  FRAME_TAKE(&task->frame, invstd, &f.scale);
  FRAME_TAKE(&task->frame, input, &task->v_x);
  FRAME_TRY(batch_set_input(task));
  FRAME_CHECK(&task->frame, task->count > 0 || task->channels == 0,
              "'input' has no elements per channel; it needs at least one");
  FRAME_TRY(batch_check_channels(task, "mean", &f.mean));
  FRAME_TRY(batch_check_channels(task, "invstd", &f.scale));
  FRAME_TRY(batch_check_out(task, "mean", &f.mean, false));
  FRAME_TRY(batch_check_out(task, "invstd", &f.scale, false));
  return batch_forward(&f);
}

/// `eps` is in invstd already.
diopiError_t diopiBatchNormElemt(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                                 diopiConstTensorHandle_t weight, diopiConstTensorHandle_t bias,
                                 diopiConstTensorHandle_t mean, diopiConstTensorHandle_t invstd, float eps) {
  struct forward_task f = {.eps = (double)eps};
  struct batch_task *task = &f.t;
  FRAME_BEGIN(&task->frame, ctx);
  FRAME_TAKE(&task->frame, out, &task->v_out);
  FRAME_TAKE(&task->frame, input, &task->v_x);
  FRAME_TAKE_OPTIONAL(&task->frame, weight, &f.weight);
  FRAME_TAKE_OPTIONAL(&task->frame, bias, &f.bias);
  FRAME_TAKE(&task->frame, mean, &f.mean);
  FRAME_TAKE(&task->frame, invstd, &f.scale);
  FRAME_TRY(batch_set_input(task));
  FRAME_TRY(batch_check_big(task, "out", &task->v_out));
  FRAME_TRY(batch_check_channels(task, "weight", &f.weight));
  FRAME_TRY(batch_check_channels(task, "bias", &f.bias));
  FRAME_TRY(batch_check_channels(task, "mean", &f.mean));
  FRAME_TRY(batch_check_channels(task, "invstd", &f.scale));
  FRAME_TRY(batch_check_out(task, "out", &task->v_out, true));
  return batch_elemt(&f);
}

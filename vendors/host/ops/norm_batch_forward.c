/// Batch norm: statistics per channel (dimension 1), and the forward pieces of synchronised batch norm.
///
/// y = (x - mean) * invstd * weight + bias, invstd = 1 / sqrt(variance + eps); in training mean and variance are the
/// batch's and running = (1 - momentum) * running + momentum * new (variance with n / (n - 1)). Statistics have any
/// floating dtype (float32 for half inputs). The output may be exactly the input.
#include <math.h>

#include "dit/alloc.h"
#include "norm_batch.h"

/// mean and variance (in `sum`) of each channel.
static void compute_moments(struct batch_task *task) {
  const double n = (double)task->count;
  batch_sum(task, 0);
  for (int64_t c = 0; c < task->channels; c++) {
    task->mean[c] = task->sum[c] / n;
  }
  batch_sum(task, 1);
  for (int64_t c = 0; c < task->channels; c++) {
    task->sum[c] /= n;
  }
}

/// y = b * (x - a) + c from mean and scale (invstd). `a` is the mean as the loops have it; what its rounding lost is in
/// `c`, so values near the mean keep their digits.
static void set_forward(struct batch_task *task) {
  for (int64_t c = 0; c < task->channels; c++) {
    task->a[c] = task->work == DIT_DTYPE_F32 ? (double)(float)task->mean[c] : task->mean[c];
    task->b[c] = task->scale[c] * task->weight[c];
    task->c[c] = task->bias[c] - (task->mean[c] - task->a[c]) * task->b[c];
  }
}

struct forward_task {
  struct batch_task t;
  struct dit_tensor_view mean, scale, weight, bias, running_mean, running_var;
  bool training;
  double momentum, eps;
};

static bool update_running(struct forward_task *f) {
  struct batch_task *task = &f->t;
  const double n = (double)task->count, unbias = n / (n - 1);
  if (!batch_read_channels(&f->running_mean, task->a, task->channels, 0) ||
      !batch_read_channels(&f->running_var, task->b, task->channels, 0)) {
    return false;
  }
  for (int64_t c = 0; c < task->channels; c++) {
    task->a[c] = (1 - f->momentum) * task->a[c] + f->momentum * task->mean[c];
    task->b[c] = (1 - f->momentum) * task->b[c] + f->momentum * task->sum[c] * unbias;
  }
  return batch_write_channels(&f->running_mean, task->a, task->channels) &&
         batch_write_channels(&f->running_var, task->b, task->channels);
}

static bool work_forward(struct forward_task *f, struct batch_tensors *big) {
  struct batch_task *task = &f->t;
  const int64_t channels = task->channels;
  if (!batch_set_up(task) || !batch_open(task, big) || !batch_read_channels(&f->weight, task->weight, channels, 1) ||
      !batch_read_channels(&f->bias, task->bias, channels, 0)) {
    return false;
  }
  if (f->training) {
    compute_moments(task);
  } else if (!batch_read_channels(&f->running_mean, task->mean, channels, 0) ||
             !batch_read_channels(&f->running_var, task->sum, channels, 1)) {
    return false;
  }
  for (int64_t c = 0; c < channels; c++) {
    task->scale[c] = 1 / sqrt(task->sum[c] + f->eps);
  }
  if (f->training && (!batch_write_channels(&f->mean, task->mean, channels) ||
                      !batch_write_channels(&f->scale, task->scale, channels) || !update_running(f))) {
    return false;
  }
  if (task->v_out.handle) {
    set_forward(task);
    batch_apply(task);
    dense_store(&big->out);
  }
  return true;
}

static diopiError_t run_forward(void *argument) {
  struct forward_task *f = argument;
  struct batch_tensors big = {0};
  const bool done = work_forward(f, &big);
  batch_close(&big);
  dit_free(f->t.room);
  return done ? diopiSuccess : dense_fail(&f->t.frame);
}

static diopiError_t queue(struct forward_task *f, frame_work *work) {
  return FRAME_QUEUE(&f->t.frame, work, f, NULL, &f->t.v_x, &f->t.v_g, &f->t.v_out, &f->mean, &f->scale, &f->weight,
                     &f->bias, &f->running_mean, &f->running_var);
}

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
  return queue(&f, run_forward);
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
  return queue(&f, run_forward);
}

static diopiError_t run_elemt(void *argument) {
  struct forward_task *f = argument;
  struct batch_task *task = &f->t;
  struct batch_tensors big = {0};
  bool done = batch_set_up(task) && batch_open(task, &big) &&
              batch_read_channels(&f->weight, task->weight, task->channels, 1) &&
              batch_read_channels(&f->bias, task->bias, task->channels, 0) &&
              batch_read_channels(&f->mean, task->mean, task->channels, 0) &&
              batch_read_channels(&f->scale, task->scale, task->channels, 1);
  if (done) {
    set_forward(task);
    batch_apply(task);
    dense_store(&big.out);
  }
  batch_close(&big);
  dit_free(task->room);
  return done ? diopiSuccess : dense_fail(&task->frame);
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
  return queue(&f, run_elemt);
}

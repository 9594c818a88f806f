/// Batch norm forward on the host (see norm_batch_forward.c).
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

diopiError_t batch_forward(struct forward_task *f) {
  return queue(f, run_forward);
}

diopiError_t batch_elemt(struct forward_task *f) {
  return queue(f, run_elemt);
}

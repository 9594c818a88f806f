/// Gradients of batch norm on the host (see norm_batch_backward.c).
#include <math.h>

#include "dit/alloc.h"
#include "norm_batch.h"

/// grad_input = a * g + b * x + c from sum and dot over `total` elements.
static void set_backward(const struct backward_task *b) {
  const struct batch_task *task = &b->t;
  for (int64_t c = 0; c < task->channels; c++) {
    const double scale = task->scale[c];
    task->a[c] = scale * task->weight[c];
    task->b[c] = b->training ? -task->a[c] * scale * scale * task->dot[c] / b->total : 0;
    task->c[c] = b->training ? -task->a[c] * task->sum[c] / b->total - task->b[c] * task->mean[c] : 0;
  }
}

static bool write_parameters(struct backward_task *b) {
  struct batch_task *task = &b->t;
  for (int64_t c = 0; c < task->channels; c++) {
    task->bias[c] = task->dot[c] * task->scale[c];
  }
  return batch_write_channels(&b->grad_weight, task->bias, task->channels) &&
         batch_write_channels(&b->grad_bias, task->sum, task->channels) &&
         batch_write_channels(&b->sum_dy, task->sum, task->channels) &&
         batch_write_channels(&b->sum_dy_xmu, task->dot, task->channels);
}

static bool work_backward(struct backward_task *b, struct batch_tensors *big) {
  struct batch_task *task = &b->t;
  const int64_t channels = task->channels;
  if (!batch_set_up(task) || !batch_open(task, big) || !batch_read_channels(&b->weight, task->weight, channels, 1) ||
      !batch_read_channels(&b->mean, task->mean, channels, 0) ||
      !batch_read_channels(&b->scale, task->scale, channels, 1)) {
    return false;
  }
  for (int64_t c = 0; b->variance && c < channels; c++) {
    task->scale[c] = 1 / sqrt(task->scale[c] + b->eps);
  }
  batch_sum(task, 2);
  if (!write_parameters(b)) {
    return false;
  }
  if (task->v_out.handle) {
    set_backward(b);
    batch_apply(task);
    dense_store(&big->out);
  }
  return true;
}

static diopiError_t run_backward(void *argument) {
  struct backward_task *b = argument;
  struct batch_tensors big = {0};
  const bool done = work_backward(b, &big);
  batch_close(&big);
  dit_free(b->t.room);
  return done ? diopiSuccess : dense_fail(&b->t.frame);
}

static diopiError_t queue(struct backward_task *b, frame_work *work) {
  return FRAME_QUEUE(&b->t.frame, work, b, NULL, &b->t.v_x, &b->t.v_g, &b->t.v_out, &b->mean, &b->scale, &b->weight,
                     &b->grad_weight, &b->grad_bias, &b->sum_dy, &b->sum_dy_xmu, &b->count);
}

/// Total of the counts of all processes.
static bool read_total(const struct dit_tensor_view *count, double *total) {
  struct dense dense = {0};
  *total = 0;
  if (!dense_read(&dense, count, DIT_DTYPE_F64)) {
    return false;
  }
  for (int64_t i = 0; i < count->numel; i++) {
    *total += ((const double *)dense.data)[i];
  }
  dense_close(&dense);
  return true;
}

static diopiError_t run_backward_elemt(void *argument) {
  struct backward_task *b = argument;
  struct batch_task *task = &b->t;
  const int64_t channels = task->channels;
  struct batch_tensors big = {0};
  bool done = batch_set_up(task) && batch_open(task, &big) &&
              batch_read_channels(&b->weight, task->weight, channels, 1) &&
              batch_read_channels(&b->mean, task->mean, channels, 0) &&
              batch_read_channels(&b->scale, task->scale, channels, 1) &&
              batch_read_channels(&b->sum_dy, task->sum, channels, 0) &&
              batch_read_channels(&b->sum_dy_xmu, task->dot, channels, 0) && read_total(&b->count, &b->total);
  if (done) {
    set_backward(b);
    batch_apply(task);
    dense_store(&big.out);
  }
  batch_close(&big);
  dit_free(task->room);
  return done ? diopiSuccess : dense_fail(&task->frame);
}

diopiError_t batch_backward(struct backward_task *b) {
  return queue(b, run_backward);
}

diopiError_t batch_backward_elemt(struct backward_task *b) {
  return queue(b, run_backward_elemt);
}

/// The gathering step of synchronised batch norm on the host (see norm_batch_gather.c).
#include <math.h>

#include "norm_batch.h"

enum { MEAN_ALL, SCALE_ALL, COUNTS, RUNNING_MEAN, RUNNING_VAR, MEAN, SCALE, COUNT };

static void gather_channel(const struct batch_gather_task *task, double *const *p, int64_t c) {
  double n = 0, mean = 0, squares = 0;
  for (int64_t i = 0; i < task->processes; i++) {
    const double count = p[COUNTS][i], scale = p[SCALE_ALL][i * task->channels + c];
    const double delta = p[MEAN_ALL][i * task->channels + c] - mean, sum = n + count;
    if (count <= 0) {
      continue;
    }
    squares += count * (1 / (scale * scale) - task->eps) + delta * delta * n * count / sum;
    mean += delta * count / sum;
    n = sum;
  }
  p[MEAN][c] = mean;
  p[SCALE][c] = 1 / sqrt(squares / n + task->eps);
  if (p[RUNNING_MEAN]) {
    p[RUNNING_MEAN][c] += task->momentum * (mean - p[RUNNING_MEAN][c]);
  }
  if (p[RUNNING_VAR]) {
    p[RUNNING_VAR][c] += task->momentum * (squares / (n - 1) - p[RUNNING_VAR][c]);
  }
}

static diopiError_t run_gather(void *argument) {
  struct batch_gather_task *task = argument;
  const struct dit_tensor_view *views[COUNT] = {&task->mean_all,     &task->scale_all,   &task->counts,
                                                &task->running_mean, &task->running_var, &task->mean,
                                                &task->scale};
  struct dense d[COUNT] = {0};
  double *p[COUNT];
  bool done = true;
  for (int i = 0; i < COUNT && done; i++) {
    done = i >= MEAN ? dense_reserve(&d[i], views[i], DIT_DTYPE_F64) : dense_read(&d[i], views[i], DIT_DTYPE_F64);
    p[i] = d[i].data;
  }
  if (done) {
    for (int64_t c = 0; c < task->channels; c++) {
      gather_channel(task, p, c);
    }
    for (int i = RUNNING_MEAN; i < COUNT; i++) {
      dense_store(&d[i]);
    }
  }
  for (int i = 0; i < COUNT; i++) {
    dense_close(&d[i]);
  }
  return done ? diopiSuccess : dense_fail(&task->frame);
}

diopiError_t batch_gather(struct batch_gather_task *task) {
  return frame_run(&task->frame, run_gather, task);
}

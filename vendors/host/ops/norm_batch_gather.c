/// Statistics of several processes as one: the gathering step of synchronised batch norm.
///
/// Process i has counts[i] elements per channel with mean_all[i][c] and invstd_all[i][c]. The merged mean and
/// invstd = 1 / sqrt(variance + eps) go to `mean` and `invstd`; running statistics, where given, move by `momentum`
/// (the variance with n / (n - 1)). `input` only tells the dtype that the caller works in. Computed in double.
#include <math.h>
#include <string.h>

#include "dense.h"
#include "frame.h"

struct gather_task {
  struct frame frame;
  struct dit_tensor_view mean, scale, mean_all, scale_all, running_mean, running_var, counts;
  double momentum, eps;
  int64_t processes, channels;
};

enum { MEAN_ALL, SCALE_ALL, COUNTS, RUNNING_MEAN, RUNNING_VAR, MEAN, SCALE, COUNT };

static void gather_channel(const struct gather_task *task, double *const *p, int64_t c) {
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
  struct gather_task *task = argument;
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

diopiError_t diopiBatchNormGatherStatsWithCounts(diopiContextHandle_t ctx, diopiTensorHandle_t mean,
                                                 diopiTensorHandle_t invstd, diopiConstTensorHandle_t input,
                                                 diopiConstTensorHandle_t mean_all, diopiConstTensorHandle_t invstd_all,
                                                 diopiTensorHandle_t running_mean, diopiTensorHandle_t running_var,
                                                 float momentum, float eps, diopiConstTensorHandle_t counts) {
  struct gather_task task = {.momentum = (double)momentum, .eps = (double)eps};
  struct dit_tensor_view x;
  FRAME_BEGIN(&task.frame, ctx);
  FRAME_TAKE(&task.frame, mean, &task.mean);
  FRAME_TAKE(&task.frame, invstd, &task.scale);
  FRAME_TAKE(&task.frame, input, &x);
  FRAME_TAKE(&task.frame, mean_all, &task.mean_all);
  FRAME_TAKE(&task.frame, invstd_all, &task.scale_all);
  FRAME_TAKE_OPTIONAL(&task.frame, running_mean, &task.running_mean);
  FRAME_TAKE_OPTIONAL(&task.frame, running_var, &task.running_var);
  FRAME_TAKE(&task.frame, counts, &task.counts);
  FRAME_CHECK(&task.frame, task.mean_all.ndim == 2 && frame_is_same_shape(&task.mean_all, &task.scale_all),
              "'mean_all' and 'invstd_all' must have one shape (processes, channels)");
  task.processes = task.mean_all.sizes[0];
  task.channels = task.mean_all.sizes[1];
  FRAME_CHECK(&task.frame, task.counts.numel == task.processes, "'counts' has %lld elements; there are %lld processes",
              (long long)task.counts.numel, (long long)task.processes);
  const struct dit_tensor_view *views[] = {&task.mean, &task.scale, &task.running_mean, &task.running_var};
  const struct dit_tensor_view *inputs[] = {&task.mean_all, &task.scale_all, &task.counts};
  static const char *const names[] = {"mean", "invstd", "running_mean", "running_var"};
  for (int i = 0; i < 4; i++) {
    if (views[i]->handle) {
      FRAME_CHECK(&task.frame, views[i]->numel == task.channels, "'%s' has %lld elements; there are %lld channels",
                  names[i], (long long)views[i]->numel, (long long)task.channels);
      if (!frame_has_dtype(DTYPES_FLOAT, views[i]->dtype)) {
        return frame_fail_dtype(&task.frame, names[i], views[i]->dtype);
      }
      FRAME_TRY(frame_check_output(&task.frame, names[i], views[i], inputs, 3, false));
    }
  }
  for (int i = 0; i < 3; i++) {
    if (!frame_has_dtype(DTYPES_REAL, inputs[i]->dtype)) {
      return frame_fail_dtype(&task.frame, i == 2 ? "counts" : "mean_all", inputs[i]->dtype);
    }
  }
  return frame_run(&task.frame, run_gather, &task);
}

/// Statistics of several processes as one: the gathering step of synchronised batch norm.
///
/// Process i has counts[i] elements per channel with mean_all[i][c] and invstd_all[i][c]. The merged mean and
/// invstd = 1 / sqrt(variance + eps) go to `mean` and `invstd`; running statistics, where given, move by `momentum`
/// (the variance with n / (n - 1)). `input` only tells the dtype that the caller works in. Computed in double.
#include "norm_batch.h"

diopiError_t diopiBatchNormGatherStatsWithCounts(diopiContextHandle_t ctx, diopiTensorHandle_t mean,
                                                 diopiTensorHandle_t invstd, diopiConstTensorHandle_t input,
                                                 diopiConstTensorHandle_t mean_all, diopiConstTensorHandle_t invstd_all,
                                                 diopiTensorHandle_t running_mean, diopiTensorHandle_t running_var,
                                                 float momentum, float eps, diopiConstTensorHandle_t counts) {
  struct batch_gather_task task = {.momentum = (double)momentum, .eps = (double)eps};
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
  return batch_gather(&task);
}

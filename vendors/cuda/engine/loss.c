/// Losses between elements on CUDA (vendors/host/ops/loss.h).
#include "ops/loss.h"

#include "engine/nest.h"
#include "kernels/loss.h"
#include "launch.h"
#include "ops/fail.h"
#include "plan.h"

KERNEL_REFERENCE(loss_map_f32, loss);
KERNEL_REFERENCE(loss_map_f64, loss);
KERNEL_REFERENCE(loss_sum_f32, loss);
KERNEL_REFERENCE(loss_sum_f64, loss);
KERNEL_REFERENCE(loss_join, loss);

/// Operands of one element, and absent ones, stand still.
static bool set_task(struct loss_kernel *kernel, const struct loss_task *task) {
  static const int64_t none[DIT_MAX_DIMS] = {0};
  struct dit_tensor_view wide[LOSS_OPERANDS];
  const struct dit_tensor_view *views[LOSS_OPERANDS];
  struct nest nest;
  const bool reduces = !task->backward && task->reduction != ReductionNone;
  for (int i = 0; i < LOSS_OPERANDS; i++) {
    const struct dit_tensor_view *view = &task->views[i];
    const bool single = !view->handle || (i == LOSS_OUT && reduces) || (i == LOSS_GRAD && task->one_gradient);
    wide[i] = *view;
    wide[i].dtype = view->handle ? view->dtype : DIT_DTYPE_F32;
    wide[i].ndim = task->ndim;
    wide[i].sizes = task->sizes;
    wide[i].numel = task->numel;
    wide[i].strides = single ? none : view->strides;
    views[i] = &wide[i];
    kernel->data[i] = view->handle ? view->data : NULL;
    kernel->dtype[i] = (int16_t)wide[i].dtype;
  }
  nest_init(&nest, LOSS_OPERANDS, views);
  if (nest.ndim > LOSS_KERNEL_DIMS) {
    return false;
  }
  kernel->ndim = (int16_t)nest.ndim;
  kernel->numel = task->numel;
  kernel->is_wide = task->numel > INT32_MAX;
  for (int dim = 0; dim < nest.ndim; dim++) {
    kernel->sizes[dim] = nest.sizes[dim];
    if (!kernel->is_wide && task->numel > 0) {
      kernel->divisors[dim] = plan_get_divisor(nest.sizes[dim]);
    }
    for (int i = 0; i < LOSS_OPERANDS; i++) {
      kernel->strides[dim][i] = nest.strides[i][dim];
    }
  }
  return true;
}

diopiError_t loss_run(struct loss_task *task) {
  struct frame *frame = &task->frame;
  struct dit_error err = {.message = ""};
  const bool is_double = task->work == DIT_DTYPE_F64, reduces = !task->backward && task->reduction != ReductionNone;
  struct loss_kernel kernel = {.kind = task->kind,
                               .is_backward = task->backward,
                               .is_mean = task->reduction == ReductionMean,
                               .a = task->a,
                               .b = task->b,
                               .scale = task->scale};
  if (!set_task(&kernel, task)) {
    return frame_get_code(frame, DIT_ERR_UNSUPPORTED, &err);
  }
  if (task->numel == 0 && !reduces) {
    return diopiSuccess;
  }
  struct kernel_grid grid = {.x = kernel_get_blocks(task->numel, LOSS_KERNEL_THREADS * 2),
                             .threads = LOSS_KERNEL_THREADS};
  if (!reduces) {
    return frame_get_code(
        frame, kernel_launch(is_double ? &loss_map_f64 : &loss_map_f32, frame->stream, grid, &kernel, &err), &err);
  }
  kernel.blocks = (int32_t)grid.x;
  kernel.partials = scratch_take(frame->context, grid.x * sizeof(double));
  if (!kernel.partials) {
    return frame_fail_device(frame, "no device memory for sums");
  }
  FRAME_TRY(frame_get_code(
      frame, kernel_launch(is_double ? &loss_sum_f64 : &loss_sum_f32, frame->stream, grid, &kernel, &err), &err));
  grid.x = 1;
  return frame_get_code(frame, kernel_launch(&loss_join, frame->stream, grid, &kernel, &err), &err);
}

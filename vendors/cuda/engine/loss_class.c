/// Losses of class numbers on CUDA (vendors/host/ops/loss_class.h).
///
/// Class numbers are looked at by the kernels, as index tensors are (engine/index.c); with the option launch_blocking
/// before the work.
#include "ops/loss_class.h"

#include "kernels/loss.h"
#include "kinds.h"
#include "launch.h"
#include "ops/fail.h"
#include "packed.h"

#define REFERENCES(tag)                          \
  KERNEL_REFERENCE(class_loss_##tag, class);     \
  KERNEL_REFERENCE(class_gradient_##tag, class); \
  KERNEL_REFERENCE(class_targets_##tag, class);
FLOAT_KINDS(REFERENCES)
KERNEL_REFERENCE(class_join, class);
KERNEL_REFERENCE(class_weights, class);
KERNEL_REFERENCE(class_check, class);

struct class_tensors {
  struct packed x, target, weight, grad, out, total;
};

static diopiError_t launch(struct class_task *task, struct kernel *kernel, unsigned blocks,
                           const struct class_kernel *parameters) {
  struct dit_error err = {.message = ""};
  const struct kernel_grid grid = {.x = blocks, .threads = LOSS_KERNEL_THREADS};
  return frame_get_code(&task->frame, kernel_launch(kernel, task->frame.stream, grid, parameters, &err), &err);
}

static diopiError_t open_all(struct class_task *task, struct class_tensors *tensors, struct class_kernel *kernel) {
  struct frame *frame = &task->frame;
  FRAME_TRY(packed_read(&tensors->x, frame, &task->v_x));
  FRAME_TRY(packed_read(&tensors->target, frame, &task->v_target));
  FRAME_TRY(packed_read(&tensors->weight, frame, &task->v_weight));
  FRAME_TRY(packed_read(&tensors->grad, frame, &task->v_grad));
  FRAME_TRY(packed_reserve(&tensors->out, frame, &task->v_out));
  FRAME_TRY(packed_read(&tensors->total, frame, &task->v_total));
  *kernel = (struct class_kernel){.x = tensors->x.view.data,
                                  .target = tensors->target.view.data,
                                  .weight = tensors->weight.view.data,
                                  .grad = tensors->grad.view.data,
                                  .out = tensors->out.view.data,
                                  .total = tensors->total.view.data,
                                  .target_dtype = task->v_target.dtype,
                                  .weight_dtype = task->v_weight.dtype,
                                  .grad_dtype = task->v_grad.dtype,
                                  .out_dtype = task->v_out.dtype,
                                  .total_dtype = task->v_total.dtype,
                                  .has_softmax = task->softmax,
                                  .has_probabilities = !frame_has_dtype(DTYPES_INT, task->v_target.dtype),
                                  .is_mean = task->reduction == ReductionMean,
                                  .is_reduced = task->reduction != ReductionNone,
                                  .points = task->points,
                                  .classes = task->shape.length,
                                  .inner = task->shape.inner,
                                  .ignored = task->ignore,
                                  .smoothing = task->smoothing};
  // one class alone is looked at, classes lie far apart, or they are few
  const bool is_single = !kernel->has_softmax && !kernel->has_probabilities && !(kernel->smoothing > 0);
  const bool spread = is_single || kernel->inner >= 8 || kernel->classes <= 4;
  kernel->lanes = spread ? 1 : kernel->classes <= 1024 ? 32 : LOSS_KERNEL_THREADS;
  kernel->blocks = (int32_t)kernel_get_blocks(kernel->points, LOSS_KERNEL_THREADS / kernel->lanes);
  return diopiSuccess;
}

static diopiError_t check_targets(struct class_task *task, struct class_kernel *kernel) {
  struct dit_error err = {.message = ""};
  int64_t wrong;
  if (kernel->has_probabilities || kernel->points == 0 || !launch_is_checked()) {
    return diopiSuccess;
  }
  kernel->wrong = scratch_take(task->frame.context, sizeof wrong);
  if (!kernel->wrong) {
    return frame_fail_device(&task->frame, "no device memory to check class numbers");
  }
  FRAME_TRY(launch(task, &class_check, 1, kernel));
  FRAME_TRY(
      frame_get_code(&task->frame, launch_read(task->frame.stream, &wrong, kernel->wrong, sizeof wrong, &err), &err));
  FRAME_CHECK_RANGE(&task->frame, wrong == task->ignore,
                    "'target' holds %lld; valid for a dimension of size %lld: 0 to %lld, and ignore_index %lld",
                    (long long)wrong, (long long)task->shape.length, (long long)task->shape.length - 1,
                    (long long)task->ignore);
  return diopiSuccess;
}

static diopiError_t reserve_partials(struct class_task *task, struct class_kernel *kernel) {
  kernel->partials = scratch_take(task->frame.context, (size_t)kernel->blocks * 2 * sizeof(double));
  return kernel->partials ? diopiSuccess : frame_fail_device(&task->frame, "no device memory for sums");
}

static diopiError_t run_forward(struct class_task *task, struct class_tensors *tensors, struct class_kernel *kernel) {
  struct frame *frame = &task->frame;
  const bool reduces = task->reduction != ReductionNone;
  FRAME_TRY(reserve_partials(task, kernel));
  if (kernel->points > 0 || reduces) {
    FRAME_TRY(launch(task, KIND_OF_FLOAT(class_loss, task->v_x.dtype), (unsigned)kernel->blocks, kernel));
  }
  if (reduces) {
    FRAME_TRY(launch(task, &class_join, 1, kernel));
  } else if (kernel->total) {
    struct dit_error err = {.message = ""};
    FRAME_TRY(frame_get_code(
        frame, launch_set(frame->stream, kernel->total, 0, dit_dtype_get_size(task->v_total.dtype), &err), &err));
  }
  FRAME_TRY(packed_store(&tensors->out, frame, &task->v_out));
  return packed_store(&tensors->total, frame, &task->v_total);
}

/// A mean divides by the sum of weights: the caller's, or one that is computed first.
static diopiError_t set_total(struct class_task *task, struct class_kernel *kernel) {
  struct class_kernel sum = *kernel;
  if (task->total_given || kernel->has_probabilities || !kernel->is_mean) {
    return diopiSuccess;
  }
  sum.blocks = (int32_t)kernel_get_blocks(kernel->points, LOSS_KERNEL_THREADS);
  FRAME_TRY(reserve_partials(task, &sum));
  sum.total = scratch_take(task->frame.context, sizeof(double));
  if (!sum.total) {
    return frame_fail_device(&task->frame, "no device memory for sums");
  }
  sum.total_dtype = DIT_DTYPE_F64;
  sum.out = NULL;
  FRAME_TRY(launch(task, &class_weights, (unsigned)sum.blocks, &sum));
  FRAME_TRY(launch(task, &class_join, 1, &sum));
  kernel->total = sum.total;
  kernel->total_dtype = sum.total_dtype;
  return diopiSuccess;
}

/// Without softmax: zeros, then one class of each point.
static diopiError_t run_targets(struct class_task *task, const struct class_kernel *kernel) {
  struct frame *frame = &task->frame;
  struct dit_error err = {.message = ""};
  const size_t bytes = (size_t)task->v_x.numel * dit_dtype_get_size(task->v_x.dtype);
  FRAME_TRY(frame_get_code(frame, launch_set(frame->stream, kernel->out, 0, bytes, &err), &err));
  return launch(task, KIND_OF_FLOAT(class_targets, task->v_x.dtype),
                kernel_get_blocks(kernel->points, LOSS_KERNEL_THREADS), kernel);
}

diopiError_t class_run(struct class_task *task) {
  struct class_tensors tensors;
  struct class_kernel kernel;
  if (task->backward && task->v_out.dtype != task->v_x.dtype) {
    return frame_fail_dtype(&task->frame, "grad_input", task->v_out.dtype);
  }
  FRAME_TRY(open_all(task, &tensors, &kernel));
  FRAME_TRY(check_targets(task, &kernel));
  if (!task->backward) {
    return run_forward(task, &tensors, &kernel);
  }
  if (task->v_x.numel == 0) {
    return diopiSuccess;
  }
  FRAME_TRY(set_total(task, &kernel));
  if (!kernel.has_softmax && !kernel.has_probabilities) {
    FRAME_TRY(run_targets(task, &kernel));
  } else {
    FRAME_TRY(launch(task, KIND_OF_FLOAT(class_gradient, task->v_x.dtype), (unsigned)kernel.blocks, &kernel));
  }
  return packed_store(&tensors.out, &task->frame, &task->v_out);
}

/// Layer and RMS norm on CUDA (vendors/host/ops/norm_layer.h): the launches.
#include "ops/norm_layer.h"

#include "kernels/layer.h"
#include "launch.h"
#include "ops/fail.h"
#include "packed.h"

#define TAGS(X) X(f32) X(f64) X(f16) X(bf16)
#define REFERENCES(tag)                          \
  KERNEL_REFERENCE(layer_forward_##tag, layer);  \
  KERNEL_REFERENCE(layer_backward_##tag, layer); \
  KERNEL_REFERENCE(layer_columns_##tag, layer);
TAGS(REFERENCES)
KERNEL_REFERENCE(layer_join_f32, layer);
KERNEL_REFERENCE(layer_join_f64, layer);

#define CHOOSE(name, dtype)                         \
  ((dtype) == DIT_DTYPE_F32   ? &layer_##name##_f32 \
   : (dtype) == DIT_DTYPE_F64 ? &layer_##name##_f64 \
   : (dtype) == DIT_DTYPE_F16 ? &layer_##name##_f16 \
                              : &layer_##name##_bf16)
#define SHARED_ROW ((size_t)48 << 10)

/// Rows wait in shared memory where they fit.
static struct kernel_grid get_grid(struct layer_kernel *kernel, int work) {
  const size_t bytes = (size_t)kernel->length * dit_dtype_get_size(work);
  const int64_t most = (int64_t)kernel_get_multiprocessors() * 8;
  kernel->is_cached = bytes <= SHARED_ROW;
  return (struct kernel_grid){.x = (unsigned)(kernel->rows < most ? kernel->rows : most),
                              .threads = LAYER_KERNEL_THREADS,
                              .shared = kernel->is_cached ? bytes : 0};
}

diopiError_t layer_forward(struct layer_task *task) {
  struct frame *frame = &task->frame;
  struct packed input, weight, bias, out, mean, scale;
  struct dit_error err = {.message = ""};
  if (task->v_out.dtype != task->v_input.dtype) {
    return frame_fail_dtype(frame, "out", task->v_out.dtype);
  }
  FRAME_TRY(packed_read(&input, frame, &task->v_input));
  FRAME_TRY(packed_read(&weight, frame, &task->v_weight));
  FRAME_TRY(packed_read(&bias, frame, &task->v_bias));
  FRAME_TRY(packed_reserve(&out, frame, &task->v_out));
  FRAME_TRY(packed_reserve(&mean, frame, &task->v_mean));
  FRAME_TRY(packed_reserve(&scale, frame, &task->v_scale));
  struct layer_kernel kernel = {.input = input.view.data,
                                .weight = weight.view.data,
                                .bias = bias.view.data,
                                .out = out.view.data,
                                .mean = mean.view.data,
                                .scale = scale.view.data,
                                .rows = task->rows,
                                .length = task->length,
                                .eps = task->eps,
                                .weight_dtype = weight.view.dtype,
                                .bias_dtype = bias.view.dtype,
                                .mean_dtype = mean.view.dtype,
                                .scale_dtype = scale.view.dtype,
                                .is_rms = task->rms};
  if (task->rows == 0) {
    return diopiSuccess;
  }
  const struct kernel_grid grid = get_grid(&kernel, task->work);
  FRAME_TRY(frame_get_code(
      frame, kernel_launch(CHOOSE(forward, task->v_input.dtype), frame->stream, grid, &kernel, &err), &err));
  FRAME_TRY(packed_store(&out, frame, &task->v_out));
  FRAME_TRY(packed_store(&mean, frame, &task->v_mean));
  return packed_store(&scale, frame, &task->v_scale);
}

/// Sums of columns: in parts, then together.
static diopiError_t launch_columns(struct layer_task *task, struct layer_kernel *kernel) {
  struct frame *frame = &task->frame;
  struct dit_error err = {.message = ""};
  const int64_t blocks = (kernel->length + LAYER_KERNEL_COLUMNS - 1) / LAYER_KERNEL_COLUMNS;
  int64_t splits = (int64_t)kernel_get_multiprocessors() * 4 / (blocks > 0 ? blocks : 1);
  splits = splits > (kernel->rows + 31) / 32 ? (kernel->rows + 31) / 32 : splits;
  kernel->splits = (int32_t)(splits < 1 ? 1 : splits);
  kernel->part = (kernel->rows + kernel->splits - 1) / kernel->splits;
  kernel->partials = scratch_take(frame->context,
                                  (size_t)kernel->splits * 2 * (size_t)kernel->length * dit_dtype_get_size(task->work));
  if (!kernel->partials) {
    return frame_fail_device(frame, "no device memory for sums of columns");
  }
  const struct kernel_grid grid = {
      .x = (unsigned)blocks, .y = (unsigned)kernel->splits, .threads = LAYER_KERNEL_THREADS};
  FRAME_TRY(frame_get_code(
      frame, kernel_launch(CHOOSE(columns, task->v_input.dtype), frame->stream, grid, kernel, &err), &err));
  const struct kernel_grid line = {.x = kernel_get_blocks(kernel->length, LAYER_KERNEL_THREADS),
                                   .threads = LAYER_KERNEL_THREADS};
  struct kernel *join = task->work == DIT_DTYPE_F64 ? &layer_join_f64 : &layer_join_f32;
  return frame_get_code(frame, kernel_launch(join, frame->stream, line, kernel, &err), &err);
}

diopiError_t layer_backward(struct layer_task *task) {
  struct frame *frame = &task->frame;
  struct packed input, grad, weight, mean, scale, out, grad_weight, grad_bias;
  struct dit_error err = {.message = ""};
  const int dtype = task->v_input.dtype;
  if (task->v_grad.dtype != dtype || (task->v_out.handle && task->v_out.dtype != dtype)) {
    return frame_fail(frame, diopiDtypeNotSupported, "'input' and its gradients must have one dtype here");
  }
  FRAME_TRY(packed_read(&input, frame, &task->v_input));
  FRAME_TRY(packed_read(&grad, frame, &task->v_grad));
  FRAME_TRY(packed_read(&weight, frame, &task->v_weight));
  FRAME_TRY(packed_read(&mean, frame, &task->v_mean));
  FRAME_TRY(packed_read(&scale, frame, &task->v_scale));
  FRAME_TRY(packed_reserve(&out, frame, &task->v_out));
  FRAME_TRY(packed_reserve(&grad_weight, frame, &task->v_grad_weight));
  FRAME_TRY(packed_reserve(&grad_bias, frame, &task->v_grad_bias));
  struct layer_kernel kernel = {.input = input.view.data,
                                .grad = grad.view.data,
                                .weight = weight.view.data,
                                .mean = mean.view.data,
                                .scale = scale.view.data,
                                .out = out.view.data,
                                .grad_weight = grad_weight.view.data,
                                .grad_bias = grad_bias.view.data,
                                .rows = task->rows,
                                .length = task->length,
                                .weight_dtype = weight.view.dtype,
                                .mean_dtype = mean.view.dtype,
                                .scale_dtype = scale.view.dtype,
                                .grad_weight_dtype = grad_weight.view.dtype,
                                .grad_bias_dtype = grad_bias.view.dtype,
                                .is_rms = task->rms};
  // the sums first: grad_input may lie over an operand
  if (task->length > 0 && (kernel.grad_weight || kernel.grad_bias)) {
    FRAME_TRY(launch_columns(task, &kernel));
  }
  if (kernel.out && task->rows > 0 && task->length > 0) {
    const struct kernel_grid grid = get_grid(&kernel, task->work);
    FRAME_TRY(frame_get_code(frame, kernel_launch(CHOOSE(backward, dtype), frame->stream, grid, &kernel, &err), &err));
  }
  FRAME_TRY(packed_store(&out, frame, &task->v_out));
  FRAME_TRY(packed_store(&grad_weight, frame, &task->v_grad_weight));
  return packed_store(&grad_bias, frame, &task->v_grad_bias);
}

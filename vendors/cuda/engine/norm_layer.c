/// Layer and RMS norm on CUDA (vendors/host/ops/norm_layer.h): the launches.
#include "ops/norm_layer.h"

#include "kernels/layer.h"
#include "kernels/rows.h"
#include "kinds.h"
#include "launch.h"
#include "ops/fail.h"
#include "packed.h"

#define REFERENCES(tag)                          \
  KERNEL_REFERENCE(layer_forward_##tag, layer);  \
  KERNEL_REFERENCE(layer_backward_##tag, layer); \
  KERNEL_REFERENCE(layer_columns_##tag, layer);
FLOAT_KINDS(REFERENCES)
KERNEL_REFERENCE(layer_join_f32, layer);
KERNEL_REFERENCE(layer_join_f64, layer);
#define ROW_KINDS(X) X(f32) X(f16) X(bf16)
#define ROW_REFERENCES(tag)                              \
  KERNEL_REFERENCE(layer_row_forward_##tag, layer_row);  \
  KERNEL_REFERENCE(layer_row_backward_##tag, layer_row); \
  KERNEL_REFERENCE(layer_vector_columns_##tag, layer_row);
ROW_KINDS(ROW_REFERENCES)
KERNEL_REFERENCE(layer_vector_join, layer_row);

#define CHOOSE_ROW(name, dtype)                     \
  ((dtype) == DIT_DTYPE_F32   ? &layer_##name##_f32 \
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

static bool is_single(int dtype) {
  return dtype == DIT_DTYPE_F32 || dtype == DIT_DTYPE_F16 || dtype == DIT_DTYPE_BF16;
}

/// Is everything of this dtype, in whole vectors? What has one element for a row is of any floating dtype but double.
static bool is_vectors(const struct layer_kernel *kernel, int dtype) {
  const char *const operands[] = {kernel->input, kernel->grad, kernel->weight, kernel->bias, kernel->out};
  const bool is_same =
      (!kernel->weight || kernel->weight_dtype == dtype) && (!kernel->bias || kernel->bias_dtype == dtype);
  const bool is_known = (!kernel->mean || is_single(kernel->mean_dtype)) &&
                        (!kernel->scale || is_single(kernel->scale_dtype)) &&
                        (!kernel->grad_weight || is_single(kernel->grad_weight_dtype)) &&
                        (!kernel->grad_bias || is_single(kernel->grad_bias_dtype));
  uintptr_t places = 0;
  for (size_t i = 0; i < sizeof operands / sizeof *operands; i++) {
    places |= (uintptr_t)operands[i];
  }
  return is_single(dtype) && is_same && is_known && places % 16 == 0 && kernel->length > 0 &&
         kernel->length % (16 / (int64_t)dit_dtype_get_size(dtype)) == 0;
}

/// Rows that wait in registers (kernels/rows.h): one for a block, or several.
static bool get_row_grid(struct layer_kernel *kernel, int dtype, struct kernel_grid *grid) {
  if (!is_vectors(kernel, dtype)) {
    return false;
  }
  kernel->lanes = row_get_lanes(kernel->length * (int64_t)dit_dtype_get_size(dtype) / 16);
  grid->threads = kernel->lanes > 32 ? (unsigned)kernel->lanes : ROW_SMALL;
  const int64_t rows = kernel->lanes > 0 ? grid->threads / (unsigned)kernel->lanes : 1;
  const int64_t blocks = (kernel->rows + rows - 1) / rows;
  grid->x = (unsigned)blocks;
  return kernel->lanes > 0 && blocks <= INT32_MAX;
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
  const int dtype = task->v_input.dtype;
  struct kernel_grid grid = {0};
  struct kernel *rows = CHOOSE_ROW(row_forward, dtype);
  if (!get_row_grid(&kernel, dtype, &grid)) {
    grid = get_grid(&kernel, task->work);
    rows = KIND_OF_FLOAT(layer_forward, dtype);
  }
  FRAME_TRY(frame_get_code(frame, kernel_launch(rows, frame->stream, grid, &kernel, &err), &err));
  FRAME_TRY(packed_store(&out, frame, &task->v_out));
  FRAME_TRY(packed_store(&mean, frame, &task->v_mean));
  return packed_store(&scale, frame, &task->v_scale);
}

/// Sums of columns: in parts, then together.
static diopiError_t launch_columns(struct layer_task *task, struct layer_kernel *kernel) {
  struct frame *frame = &task->frame;
  struct dit_error err = {.message = ""};
  const int dtype = task->v_input.dtype;
  const bool is_vector = is_vectors(kernel, dtype);
  const int64_t columns = LAYER_KERNEL_COLUMNS * (is_vector ? 16 / (int64_t)dit_dtype_get_size(dtype) : 1);
  const int64_t blocks = (kernel->length + columns - 1) / columns;
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
  struct kernel *parts = is_vector ? CHOOSE_ROW(vector_columns, dtype) : KIND_OF_FLOAT(layer_columns, dtype);
  FRAME_TRY(frame_get_code(frame, kernel_launch(parts, frame->stream, grid, kernel, &err), &err));
  const struct kernel_grid lines = {
      .x = (unsigned)((kernel->length + 31) / 32), .y = 2, .threads = LAYER_KERNEL_THREADS};
  const struct kernel_grid line = {.x = kernel_get_blocks(kernel->length, LAYER_KERNEL_THREADS),
                                   .threads = LAYER_KERNEL_THREADS};
  struct kernel *join = is_vector                     ? &layer_vector_join
                        : task->work == DIT_DTYPE_F64 ? &layer_join_f64
                                                      : &layer_join_f32;
  return frame_get_code(frame, kernel_launch(join, frame->stream, is_vector ? lines : line, kernel, &err), &err);
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
    struct kernel_grid grid = {0};
    struct kernel *rows = CHOOSE_ROW(row_backward, dtype);
    if (!get_row_grid(&kernel, dtype, &grid)) {
      grid = get_grid(&kernel, task->work);
      rows = KIND_OF_FLOAT(layer_backward, dtype);
    }
    FRAME_TRY(frame_get_code(frame, kernel_launch(rows, frame->stream, grid, &kernel, &err), &err));
  }
  FRAME_TRY(packed_store(&out, frame, &task->v_out));
  FRAME_TRY(packed_store(&grad_weight, frame, &task->v_grad_weight));
  return packed_store(&grad_bias, frame, &task->v_grad_bias);
}

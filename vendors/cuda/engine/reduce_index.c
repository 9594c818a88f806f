/// Where extremes lie, and the standard deviation, on CUDA (vendors/host/engine/reduce_index.h, ops/reduce_index.h).
#include "engine/reduce_index.h"

#include "channel.h"
#include "kernels/line.h"
#include "ops/fail.h"
#include "ops/reduce_index.h"
#include "plan.h"

#define TAGS(X) X(f32) X(f64) X(i64)
#define REFERENCES(tag)               \
  KERNEL_REFERENCE(pick_##tag, pick); \
  KERNEL_REFERENCE(pick_join_##tag, pick);
TAGS(REFERENCES)
KERNEL_REFERENCE(channel_deviations_f32, channel_finish);
KERNEL_REFERENCE(channel_deviations_f64, channel_finish);

#define PART 65536  ///< elements of a line that a block is worth

/// The view without dimension `dim`, which lies at its beginning.
static void drop_dim(const struct dit_tensor_view *in, int dim, struct dit_tensor_view *view, int64_t *sizes,
                     int64_t *strides) {
  int next = 0;
  for (int d = 0; d < in->ndim; d++) {
    if (d != dim) {
      sizes[next] = in->sizes[d];
      strides[next++] = view->strides[d];
    }
  }
  view->ndim = next;
  view->sizes = sizes;
  view->strides = strides;
  view->numel = in->numel / in->sizes[dim];
}

/// Threads of a line, and parts of long lines where there are few.
static enum dit_status choose_grid(struct pick_kernel *task, void *stream, int64_t width, struct kernel_grid *grid,
                                   struct dit_error *err) {
  const int64_t lines = task->lines.numel, most = (int64_t)kernel_get_multiprocessors() * 4;
  struct launch_scratch scratch;
  task->lanes = task->step != width || task->length < 32 ? 1 : task->length <= 1024 ? 32 : LINE_KERNEL_THREADS;
  task->lanes = lines == 1 ? LINE_KERNEL_THREADS : task->lanes;
  task->splits = 1;
  if (task->lanes == LINE_KERNEL_THREADS && lines < most && task->length >= 2 * PART) {
    int64_t splits = task->length / PART < most / lines ? task->length / PART : most / lines;
    splits = splits * lines > 16384 ? 16384 / lines : splits;
    task->splits = splits > 1 ? (int32_t)splits : 1;
  }
  task->part = (task->length + task->splits - 1) / task->splits;
  if (task->splits > 1) {
    DIT_RETURN_IF_NOT_OK(launch_get_scratch(stream, &scratch, err));
    task->found = scratch.memory;
    task->best = task->found + lines * task->splits;
  }
  *grid = (struct kernel_grid){.x = kernel_get_blocks(lines, LINE_KERNEL_THREADS / task->lanes),
                               .y = (unsigned)task->splits,
                               .threads = LINE_KERNEL_THREADS};
  return DIT_OK;
}

/// Lines that are split: their parts, then the best of the parts.
static enum dit_status launch_pick(void *stream, struct kernel_grid grid, const struct pick_kernel *task,
                                   struct dit_error *err) {
  const bool is_wide = task->dtype == DIT_DTYPE_F64;
  const bool is_float = task->dtype == DIT_DTYPE_F32 || task->dtype == DIT_DTYPE_F16 || task->dtype == DIT_DTYPE_BF16;
  DIT_RETURN_IF_NOT_OK(kernel_launch(is_float ? &pick_f32 : is_wide ? &pick_f64 : &pick_i64, stream, grid, task, err));
  if (task->splits == 1) {
    return DIT_OK;
  }
  const struct kernel_grid join = {.x = kernel_get_blocks(task->lines.numel, LINE_KERNEL_THREADS),
                                   .threads = LINE_KERNEL_THREADS};
  return kernel_launch(is_float ? &pick_join_f32 : is_wide ? &pick_join_f64 : &pick_join_i64, stream, join, task, err);
}

enum dit_status reduce_index_launch(void *stream, bool largest, const struct dit_tensor_view *values,
                                    const struct dit_tensor_view *indices, const struct dit_tensor_view *in, int dim,
                                    struct dit_error *err) {
  struct dit_tensor_view views[3] = {*indices, values ? *values : *indices, *in};
  int64_t sizes[3][DIT_MAX_DIMS], strides[3][DIT_MAX_DIMS];
  struct pick_kernel task = {.dtype = in->dtype, .is_largest = largest, .has_values = values != NULL};
  struct kernel_grid grid;
  struct nest nest;
  const int64_t width = (int64_t)dit_dtype_get_size(in->dtype);
  if (!plan_is_loadable(in->dtype) || in->dtype == DIT_DTYPE_U64) {
    return DIT_ERR_UNSUPPORTED;
  }
  if (in->numel == 0) {
    return DIT_OK;
  }
  for (int i = 0; i < 3; i++) {
    drop_dim(in, dim, &views[i], sizes[i], strides[i]);
  }
  nest_init(&nest, 3, (const struct dit_tensor_view *const[]){&views[0], &views[1], &views[2]});
  if (!plan_set_strided(&task.lines, &nest)) {
    return DIT_ERR_UNSUPPORTED;
  }
  task.length = in->sizes[dim];
  task.step = in->strides[dim] * width;
  DIT_RETURN_IF_NOT_OK(choose_grid(&task, stream, width, &grid, err));
  launch_begin_sequence();
  const enum dit_status status = launch_pick(stream, grid, &task, err);
  launch_end_sequence();
  return status;
}

diopiError_t arg_run_flat(struct frame *frame, const struct dit_tensor_view *out, const struct dit_tensor_view *in,
                          bool largest) {
  struct packed packed;
  struct shaped flat;
  struct dit_error err = {.message = ""};
  FRAME_TRY(packed_read(&packed, frame, in));
  shaped_init(&flat, &packed.view, false);
  flat.view.ndim = 0;
  shaped_push(&flat, in->numel, 1);
  return frame_get_code(frame, reduce_index_launch(frame->stream, largest, NULL, out, &flat.view, 0, &err), &err);
}

/// Rows as channels of one sample.
diopiError_t std_run(struct std_task *task) {
  struct frame *frame = task->frame;
  struct channel_walk walk = {.frame = frame, .dtype = task->in->dtype, .work = task->work};
  struct packed out;
  struct dit_error err = {.message = ""};
  FRAME_TRY(packed_read(&walk.x, frame, task->in));
  FRAME_TRY(packed_reserve(&out, frame, task->out));
  if (task->kept == 0) {
    return diopiSuccess;
  }
  walk.kernel = (struct channel_kernel){.x = walk.x.view.data,
                                        .samples = 1,
                                        .channels = task->kept,
                                        .area = task->reduced,
                                        .count = task->reduced,
                                        .width = 1};
  FRAME_TRY(channel_moments(&walk));
  const struct channel_finish finish = {.partials = walk.kernel.partials,
                                        .channels = task->kept,
                                        .count = task->reduced,
                                        .part = walk.kernel.part,
                                        .splits = walk.kernel.splits,
                                        .eps = task->correction,
                                        .scale = {.data = out.view.data, .dtype = out.view.dtype}};
  const struct kernel_grid grid = {.x = kernel_get_blocks(task->kept, CHANNEL_KERNEL_THREADS / 32),
                                   .threads = CHANNEL_KERNEL_THREADS};
  FRAME_TRY(
      frame_get_code(frame,
                     kernel_launch(task->work == DIT_DTYPE_F64 ? &channel_deviations_f64 : &channel_deviations_f32,
                                   frame->stream, grid, &finish, &err),
                     &err));
  return packed_store(&out, frame, task->out);
}

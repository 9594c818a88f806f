/// Joining rows, triangles, gradients of windows and one_hot on CUDA (vendors/host/ops: cat.h, triangle.h, unfold.h).
#include "kernels/move.h"

#include <string.h>

#include "kinds.h"
#include "launch.h"
#include "ops/cat.h"
#include "ops/gather.h"
#include "ops/triangle.h"
#include "ops/unfold.h"
#include "plan.h"

#define MOVES(width)                    \
  KERNEL_REFERENCE(join_##width, move); \
  KERNEL_REFERENCE(triangle_##width, move);
WIDTH_KINDS(MOVES)
#define SUMS(tag) KERNEL_REFERENCE(unfold_sum_##tag, move);
ELEMENT_KINDS(SUMS)
diopiError_t join_run(struct frame *frame, const struct join_task *task) {
  _Static_assert(JOIN_KERNEL_PARTS >= JOIN_PARTS, "every part has a place");
  struct join_kernel kernel = {
      .whole = task->whole, .rows = task->rows, .count = (int32_t)task->count, .is_split = task->split};
  struct dit_error err = {.message = ""};
  int64_t all = (int64_t)(uintptr_t)task->whole, at = 0, vector = 16;
  for (int64_t i = 0; i < task->count; i++) {
    all |= (int64_t)(uintptr_t)task->part[i].data | task->part[i].bytes;
  }
  while (all % vector != 0) {
    vector /= 2;
  }
  for (int64_t i = 0; i < task->count; i++) {
    kernel.data[i] = task->part[i].data;
    kernel.begin[i] = at;
    at += task->part[i].bytes / vector;
  }
  kernel.begin[task->count] = kernel.units = at;
  kernel.total = task->rows * at;
  kernel.is_wide = kernel.total > INT32_MAX;
  if (kernel.total == 0) {
    return diopiSuccess;
  }
  if (!kernel.is_wide) {
    kernel.divisor = plan_get_divisor(at);
  }
  const int64_t block = MOVE_KERNEL_THREADS * JOIN_KERNEL_UNITS, blocks = (kernel.total + block - 1) / block;
  const struct kernel_grid grid = {.x = (unsigned)(blocks < 1 << 30 ? blocks : 1 << 30),
                                   .threads = MOVE_KERNEL_THREADS};
  return frame_get_code(frame, kernel_launch(KIND_OF_WIDTH(join, vector), frame->stream, grid, &kernel, &err), &err);
}

diopiError_t triangle_run(struct frame *frame, const struct triangle_task *task) {
  struct dit_error err = {.message = ""};
  struct triangle_kernel kernel = {.rows = task->rows,
                                   .columns = task->columns,
                                   .diagonal = task->diagonal,
                                   .row_step = {task->row_step[0], task->row_step[1]},
                                   .step = {task->step[0], task->step[1]},
                                   .is_upper = task->upper,
                                   .is_in_place = task->in_place};
  if (!plan_set_strided(&kernel.walk, &task->rest)) {
    return frame_get_code(frame, DIT_ERR_UNSUPPORTED, &err);
  }
  const struct kernel_grid grid = {
      .x = kernel_get_blocks(kernel.walk.numel * kernel.rows * kernel.columns, MOVE_KERNEL_THREADS * 2),
      .threads = MOVE_KERNEL_THREADS};
  return frame_get_code(frame, kernel_launch(KIND_OF_WIDTH(triangle, task->width), frame->stream, grid, &kernel, &err),
                        &err);
}

static struct kernel *find_sum(int dtype) {
  switch (dtype) {
    case DIT_DTYPE_F32:
      return &unfold_sum_f32;
    case DIT_DTYPE_F64:
      return &unfold_sum_f64;
    case DIT_DTYPE_F16:
      return &unfold_sum_f16;
    case DIT_DTYPE_BF16:
      return &unfold_sum_bf16;
    case DIT_DTYPE_U8:
    case DIT_DTYPE_I8:
      return &unfold_sum_u8;
    case DIT_DTYPE_I16:
      return &unfold_sum_u16;
    case DIT_DTYPE_I32:
      return &unfold_sum_u32;
    case DIT_DTYPE_I64:
      return &unfold_sum_u64;
    case DIT_DTYPE_BOOL:
      return &unfold_sum_bool;
    default:
      return NULL;
  }
}

bool unfold_has_dtype(int dtype) {
  return find_sum(dtype) != NULL;
}

diopiError_t unfold_run_backward(struct frame *frame, const struct unfold_task *task) {
  struct dit_error err = {.message = ""};
  struct unfold_kernel kernel = {.length = task->length,
                                 .windows = task->windows,
                                 .size = task->size,
                                 .step = task->step,
                                 .out_step = task->out_step,
                                 .window_step = task->window_step,
                                 .element_step = task->element_step};
  if (!plan_set_strided(&kernel.walk, &task->nest)) {
    return frame_get_code(frame, DIT_ERR_UNSUPPORTED, &err);
  }
  const struct kernel_grid grid = {.x = kernel_get_blocks(kernel.walk.numel * kernel.length, MOVE_KERNEL_THREADS),
                                   .threads = MOVE_KERNEL_THREADS};
  return frame_get_code(frame, kernel_launch(find_sum(task->dtype), frame->stream, grid, &kernel, &err), &err);
}

/// Zeros, then ones scattered along the last dimension.
diopiError_t hot_run(struct hot_task *task) {
  struct scatter_task scatter = {.frame = task->frame, .self = task->out, .has_copied = true, .mode = SCATTER_SET};
  struct layout index;
  FRAME_TRY(layout_check_index(task->frame, "input", &task->input, task->out.sizes[task->input.ndim], false));
  layout_init(&index, &task->input);
  index.sizes[index.view.ndim] = 1;
  index.strides[index.view.ndim] = 1;
  index.view.ndim++;
  layout_finish(&index);
  scatter.index = index.view;
  scatter.dim = scatter.self.ndim - 1;
  memcpy(scatter.value, &(int64_t){1}, sizeof(int64_t));
  return scatter_run(&scatter);
}

/// gather and scatter on CUDA (vendors/host/ops/gather.h), as walks whose positions move along the target themselves.
#include "ops/gather.h"

#include <string.h>

#include "index_task.h"
#include "plan.h"

/// `whole` is indexed along `dim` by `index`, element for element with `other` (NULL: a number).
static bool set_task(struct index_kernel *task, const struct dit_tensor_view *whole,
                     const struct dit_tensor_view *other, const struct dit_tensor_view *index, int dim) {
  const int64_t width = (int64_t)dit_dtype_get_size(whole->dtype), index_width = index->dtype == DIT_DTYPE_I64 ? 8 : 4;
  struct layout base, positions, steps, values;
  struct nest nest;
  *task = (struct index_kernel){.target = whole->data,
                                .other = other ? other->data : NULL,
                                .count = index->numel,
                                .rest = 1,
                                .columns = 1,
                                .is_strict = 1,
                                .skipped = -1};
  gather_limit(&base, whole, index, dim);
  gather_limit(&positions, index, index, -1);
  gather_limit(&values, other ? other : whole, index, -1);
  gather_limit(&steps, whole, index, dim);  // keys: the number of the target's element
  dit_shape_set_contiguous(whole->ndim, whole->sizes, steps.strides);
  const int64_t step = steps.strides[dim];
  steps.strides[dim] = 0;
  layout_finish(&steps);
  nest_init(&nest, 4, (const struct dit_tensor_view *const[]){&values.view, &positions.view, &base.view, &steps.view});
  if (nest.ndim > INDEX_KERNEL_DIMS) {
    return false;
  }
  task->positions.ndim = nest.ndim;
  task->positions.is_wide = task->count > INT32_MAX;
  for (int i = 0; i < nest.ndim; i++) {
    task->positions.sizes[i] = nest.sizes[i];
    if (!task->positions.is_wide) {
      task->positions.divisors[i] = plan_get_divisor(nest.sizes[i]);
    }
    task->other_strides[i] = other ? nest.strides[0][i] : 0;
    task->column[0].strides[i] = nest.strides[1][i];
    task->base_strides[i] = nest.strides[2][i];
    task->base_factors[i] = (uint32_t)(nest.strides[3][i] / width);
  }
  task->column[0].data = index->data;
  task->column[0].size = whole->sizes[dim];
  task->column[0].step = whole->strides[dim] * width;
  task->column[0].factor = (uint32_t)step;
  task->column[0].is_wide = index_width == 8;
  task->keys_limit = (uint64_t)whole->numel;
  return true;
}

diopiError_t gather_run(struct gather_task *task) {
  struct frame *frame = task->frame;
  struct index_kernel kernel;
  struct dit_error err = {.message = ""};
  FRAME_TRY(layout_check_index(frame, "index", &task->index, task->input.sizes[task->dim], false));
  if (task->out.numel == 0) {
    return diopiSuccess;
  }
  if (!set_task(&kernel, &task->input, &task->out, &task->index, task->dim)) {
    return frame_get_code(frame, DIT_ERR_UNSUPPORTED, &err);
  }
  const int width = (int)dit_dtype_get_size(task->out.dtype);
  return frame_get_code(frame, index_task_move(&kernel, frame->stream, width, true, &err), &err);
}

bool scatter_has_dtype(enum scatter_mode mode, int dtype) {
  return mode == SCATTER_SET || index_can_add(dtype);
}

diopiError_t scatter_run(struct scatter_task *task) {
  struct frame *frame = task->frame;
  struct index_kernel kernel;
  struct dit_error err = {.message = ""};
  const bool empty = task->index.numel == 0;
  FRAME_TRY(layout_check_index(frame, "index", &task->index, task->self.sizes[task->dim], false));
  if (!empty && (!set_task(&kernel, &task->self, task->src.handle ? &task->src : NULL, &task->index, task->dim) ||
                 (task->mode != SCATTER_SET && kernel.keys_limit > UINT32_MAX))) {
    return frame_get_code(frame, DIT_ERR_UNSUPPORTED, &err);
  }
  FRAME_TRY(scatter_prepare(task));
  if (empty) {
    return diopiSuccess;
  }
  kernel.is_number = !task->src.handle;
  memcpy(kernel.number, task->value, sizeof kernel.number);
  kernel.is_multiply = task->mode == SCATTER_MULTIPLY;
  const int width = (int)dit_dtype_get_size(task->self.dtype);
  return frame_get_code(frame,
                        task->mode == SCATTER_SET
                            ? index_task_move(&kernel, frame->stream, width, false, &err)
                            : index_task_sum(&kernel, frame->context, frame->stream, task->self.dtype, &err),
                        &err);
}

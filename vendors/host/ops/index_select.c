/// Rows by number along one dimension: index_select with its gradient, and index_fill.
///
/// index_select: out[..., i, ...] = input[..., index[i], ...]; index is 1-d (or 0-d) with int32 or int64 from 0 to
/// size - 1. Every dtype. Backward: grad_input[..., r, ...] = sum of grad[..., i, ...] with index[i] = r, in order;
/// half types are summed in float and rounded once; all dtypes but uint16..uint64 and complex32.
/// index_fill: input with value at the rows that index names; negative numbers count from the end. value is a number,
/// or a 0-d tensor, that input's dtype can hold. out and input may be one tensor. Every dtype.
#include <string.h>

#include "engine/index.h"
#include "layout.h"

struct select_task {
  struct frame *frame;
  struct dit_tensor_view target, other, index, input;
  int dim;
  bool zero, wrap;  ///< fill the target with zeros first; negative positions are valid
  enum index_mode mode;
  const char *index_name;
  const void *number;  ///< the element that is `other`
};

static diopiError_t run_select(void *argument) {
  struct select_task *task = argument;
  struct frame now = frame_get_inner(task->frame);
  const struct dit_tensor_view *columns[DIT_MAX_DIMS] = {NULL};
  struct index_walk walk;
  FRAME_TRY(layout_check_index(task->frame, task->index_name, &task->index, task->target.sizes[task->dim], task->wrap));
  if (task->zero) {
    FRAME_TRY(layout_zero(&now, &task->target));
  } else if (task->input.handle) {
    FRAME_TRY(layout_copy(&now, &task->target, &task->input));
  }
  columns[task->dim] = &task->index;
  index_walk_init(&walk, &task->target, columns, &task->other, task->dim);
  walk.number = task->number;
  walk.strict = !task->wrap;
  struct dit_error err = {.message = ""};
  return frame_get_code(task->frame, index_walk_run(now.context, now.stream, &walk, task->mode, &err), &err);
}

/// `part` has the shape of `whole` with the length of index in `dim`; both and index get at least one dimension.
static diopiError_t check_select(struct select_task *task, struct dit_tensor_view *whole, const char *name,
                                 struct dit_tensor_view *part, int64_t dim) {
  struct frame *frame = task->frame;
  int64_t sizes[DIT_MAX_DIMS];
  FRAME_TRY(frame_wrap_dim(frame, "dim", dim, whole->ndim, &task->dim));
  FRAME_CHECK(frame, task->index.ndim <= 1, "'index' has %d dimensions; valid: 0 and 1", task->index.ndim);
  layout_raise(&task->index);
  layout_raise(whole);
  layout_raise(part);
  memcpy(sizes, whole->sizes, sizeof(int64_t) * (size_t)whole->ndim);
  sizes[task->dim] = task->index.sizes[0];
  return layout_check_sizes(frame, name, part, whole->ndim, sizes);
}

diopiError_t diopiIndexSelect(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                              int64_t dim, diopiConstTensorHandle_t index) {
  struct frame frame;
  struct select_task task = {.frame = &frame, .mode = INDEX_TAKE, .index_name = "index"};
  FRAME_BEGIN(&frame, ctx);
  FRAME_TAKE(&frame, out, &task.other);
  FRAME_TAKE(&frame, input, &task.target);
  FRAME_TAKE(&frame, index, &task.index);
  FRAME_TRY(layout_check_dtype(&frame, "out", &task.other, "input", &task.target));
  FRAME_TRY(check_select(&task, &task.target, "out", &task.other, dim));
  const struct dit_tensor_view *inputs[] = {&task.target, &task.index};
  FRAME_TRY(frame_check_output(&frame, "out", &task.other, inputs, 2, false));
  return frame_run(&frame, run_select, &task);
}

diopiError_t diopiIndexSelectBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                      diopiConstTensorHandle_t grad, diopiSize_t input_sizes, int64_t dim,
                                      diopiConstTensorHandle_t index) {
  struct frame frame;
  struct select_task task = {.frame = &frame, .mode = INDEX_ADD, .zero = true, .index_name = "index"};
  FRAME_BEGIN(&frame, ctx);
  FRAME_TAKE(&frame, grad_input, &task.target);
  FRAME_TAKE(&frame, grad, &task.other);
  FRAME_TAKE(&frame, index, &task.index);
  FRAME_TRY(layout_check_sizes(&frame, "grad_input", &task.target, (int)input_sizes.len, input_sizes.data));
  FRAME_TRY(layout_check_dtype(&frame, "grad_input", &task.target, "grad", &task.other));
  if (!index_can_add(task.target.dtype)) {
    return frame_fail_dtype(&frame, "grad", task.target.dtype);
  }
  FRAME_TRY(check_select(&task, &task.target, "grad", &task.other, dim));
  const struct dit_tensor_view *inputs[] = {&task.other, &task.index};
  FRAME_TRY(frame_check_output(&frame, "grad_input", &task.target, inputs, 2, false));
  return frame_run(&frame, run_select, &task);
}

// index_fill

/// The target and input are taken; `value` holds one element of the target's dtype.
static diopiError_t launch_fill(struct select_task *task, const char *name, int64_t dim, const void *value) {
  static const int64_t none[DIT_MAX_DIMS] = {0};
  struct frame *frame = task->frame;
  const struct dit_tensor_view *inputs[] = {&task->index};
  FRAME_TRY(frame_wrap_dim(frame, "dim", dim, task->target.ndim, &task->dim));
  FRAME_CHECK(frame, task->index.ndim <= 1, "'index' has %d dimensions; valid: 0 and 1", task->index.ndim);
  FRAME_TRY(frame_check_output(frame, name, &task->target, inputs, 1, false));
  if (task->input.handle) {
    inputs[0] = &task->input;
    FRAME_TRY(layout_check_sizes(frame, name, &task->target, task->input.ndim, task->input.sizes));
    FRAME_TRY(layout_check_dtype(frame, name, &task->target, "input", &task->input));
    FRAME_TRY(frame_check_output(frame, name, &task->target, inputs, 1, true));
  }
  layout_raise(&task->index);
  layout_raise(&task->target);
  if (task->input.handle) {
    layout_raise(&task->input);
  }
  task->other = task->target;
  task->other.data = (void *)value;
  task->number = value;
  task->other.strides = none;
  return frame_run(frame, run_select, task);
}

static diopiError_t fill_scalar(struct select_task *task, const char *name, int64_t dim, const diopiScalar_t *value) {
  struct dit_scalar scalar;
  _Alignas(16) char element[16];
  FRAME_TRY(frame_get_scalar(task->frame, "value", value, &scalar));
  FRAME_TRY(layout_get_value(task->frame, "value", scalar, task->target.dtype, element));
  return launch_fill(task, name, dim, element);
}

static diopiError_t fill_tensor(struct select_task *task, const char *name, int64_t dim,
                                diopiConstTensorHandle_t value) {
  struct dit_tensor_view view;
  struct dit_scalar scalar;
  _Alignas(16) char element[16];
  FRAME_TRY(frame_take(task->frame, "value", value, &view));
  FRAME_TRY(layout_read_scalar(task->frame, "value", &view, &scalar));
  FRAME_TRY(layout_get_value(task->frame, "value", scalar, task->target.dtype, element));
  return launch_fill(task, name, dim, element);
}

#define FILL_TASK(place) {.frame = place, .mode = INDEX_PUT, .wrap = true, .index_name = "index"}

diopiError_t diopiIndexFillScalar(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                                  int64_t dim, diopiConstTensorHandle_t index, const diopiScalar_t *value) {
  struct frame frame;
  struct select_task task = FILL_TASK(&frame);
  FRAME_BEGIN(&frame, ctx);
  FRAME_TAKE(&frame, out, &task.target);
  FRAME_TAKE(&frame, input, &task.input);
  FRAME_TAKE(&frame, index, &task.index);
  return fill_scalar(&task, "out", dim, value);
}

diopiError_t diopiIndexFillInpScalar(diopiContextHandle_t ctx, diopiTensorHandle_t input, int64_t dim,
                                     diopiConstTensorHandle_t index, const diopiScalar_t *value) {
  struct frame frame;
  struct select_task task = FILL_TASK(&frame);
  FRAME_BEGIN(&frame, ctx);
  FRAME_TAKE(&frame, input, &task.target);
  FRAME_TAKE(&frame, index, &task.index);
  return fill_scalar(&task, "input", dim, value);
}

diopiError_t diopiIndexFill(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                            int64_t dim, diopiConstTensorHandle_t index, diopiConstTensorHandle_t value) {
  struct frame frame;
  struct select_task task = FILL_TASK(&frame);
  FRAME_BEGIN(&frame, ctx);
  FRAME_TAKE(&frame, out, &task.target);
  FRAME_TAKE(&frame, input, &task.input);
  FRAME_TAKE(&frame, index, &task.index);
  return fill_tensor(&task, "out", dim, value);
}

diopiError_t diopiIndexFillInp(diopiContextHandle_t ctx, diopiTensorHandle_t input, int64_t dim,
                               diopiConstTensorHandle_t index, diopiConstTensorHandle_t value) {
  struct frame frame;
  struct select_task task = FILL_TASK(&frame);
  FRAME_BEGIN(&frame, ctx);
  FRAME_TAKE(&frame, input, &task.target);
  FRAME_TAKE(&frame, index, &task.index);
  return fill_tensor(&task, "input", dim, value);
}

/// scatter: self[index[i][j][k]][j][k] = src[i][j][k] for dim 0, and likewise for the others; the gradient of gather.
///
/// reduce: "" or NULL writes, "add" adds, "multiply" multiplies. index has as many dimensions as self and src, is
/// nowhere longer than src, and nowhere longer than self but along dim; int32 or int64 from 0 to size - 1. Each line
/// along dim is worked on by one thread in the order of index: of several writes the last one stays. Half types are
/// added and multiplied in float and rounded once; integers wrap; bool adds as or, multiplies as and. The forms with
/// out first copy input, which may be out itself. Writing has every dtype, arithmetic all but uint16..uint64 and
/// complex32. GatherBackward: zeros, then "add" of grad_output.
#include <string.h>

#include "gather.h"

diopiError_t scatter_prepare(struct scatter_task *task) {
  struct frame now = frame_get_inner(task->frame);
  if (!task->has_copied) {
    return diopiSuccess;
  }
  return task->copied.handle ? layout_copy(&now, &task->self, &task->copied) : layout_zero(&now, &task->self);
}

static diopiError_t parse_reduce(struct frame *frame, const char *reduce, enum scatter_mode *mode) {
  *mode = SCATTER_SET;
  if (!reduce || !reduce[0]) {
    return diopiSuccess;
  }
  if (strcmp(reduce, "add") == 0) {
    *mode = SCATTER_ADD;
  } else if (strcmp(reduce, "multiply") == 0) {
    *mode = SCATTER_MULTIPLY;
  } else {
    return frame_fail(frame, diopiErrorOccurred, "'reduce' is '%.32s'; valid: '', 'add', 'multiply'", reduce);
  }
  return diopiSuccess;
}

/// The task has self (and copied), src or value, index and mode; names are for messages.
static diopiError_t launch_scatter(struct scatter_task *task, const char *self, const char *src, int64_t dim) {
  struct frame *frame = task->frame;
  FRAME_TRY(frame_wrap_dim(frame, "dim", dim, task->self.ndim, &task->dim));
  layout_raise(&task->self);
  layout_raise(&task->index);
  FRAME_TRY(gather_check(frame, &task->self, self, &task->index, task->dim));
  if (task->src.handle) {
    layout_raise(&task->src);
    FRAME_TRY(layout_check_dtype(frame, src, &task->src, self, &task->self));
    FRAME_CHECK(frame, task->src.ndim == task->index.ndim || task->index.numel == 0,
                "'%s' has %d dimensions; 'index' has %d", src, task->src.ndim, task->index.ndim);
    for (int i = 0; i < task->index.ndim && task->index.numel > 0; i++) {
      FRAME_CHECK(frame, task->index.sizes[i] <= task->src.sizes[i],
                  "'index' has shape %s; it must be nowhere longer than '%s', %s",
                  layout_print(task->index.ndim, task->index.sizes), src,
                  layout_print(task->src.ndim, task->src.sizes));
    }
  }
  if (!scatter_has_dtype(task->mode, task->self.dtype)) {
    return frame_fail_dtype(frame, self, task->self.dtype);
  }
  const struct dit_tensor_view *inputs[] = {&task->src, &task->index};
  FRAME_TRY(frame_check_output(frame, self, &task->self, inputs, 2, false));
  return scatter_run(task);
}

static diopiError_t begin_scatter(struct scatter_task *task, const char *function, diopiContextHandle_t ctx,
                                  diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                                  diopiConstTensorHandle_t index, const char *reduce) {
  struct frame *frame = task->frame;
  FRAME_TRY(frame_begin(frame, function, ctx));
  FRAME_TRY(frame_take(frame, out == input ? "input" : "out", out, &task->self));
  FRAME_TAKE(frame, input, &task->copied);
  FRAME_TAKE(frame, index, &task->index);
  task->has_copied = out != input;
  FRAME_TRY(layout_check_sizes(frame, "out", &task->self, task->copied.ndim, task->copied.sizes));
  FRAME_TRY(layout_check_dtype(frame, "out", &task->self, "input", &task->copied));
  const struct dit_tensor_view *inputs[] = {&task->copied};
  FRAME_TRY(frame_check_output(frame, "out", &task->self, inputs, 1, true));
  return parse_reduce(frame, reduce, &task->mode);
}

diopiError_t diopiScatter(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                          int64_t dim, diopiConstTensorHandle_t src, diopiConstTensorHandle_t index,
                          const char *reduce) {
  struct frame frame;
  struct scatter_task task = {.frame = &frame};
  FRAME_TRY(begin_scatter(&task, __func__, ctx, out, input, index, reduce));
  FRAME_TAKE(&frame, src, &task.src);
  return launch_scatter(&task, "input", "src", dim);
}

diopiError_t diopiScatterInp(diopiContextHandle_t ctx, diopiTensorHandle_t input, int64_t dim,
                             diopiConstTensorHandle_t src, diopiConstTensorHandle_t index, const char *reduce) {
  struct frame frame;
  struct scatter_task task = {.frame = &frame};
  FRAME_TRY(begin_scatter(&task, __func__, ctx, input, input, index, reduce));
  FRAME_TAKE(&frame, src, &task.src);
  return launch_scatter(&task, "input", "src", dim);
}

static diopiError_t take_value(struct scatter_task *task, const diopiScalar_t *value) {
  struct dit_scalar scalar;
  FRAME_TRY(frame_get_scalar(task->frame, "value", value, &scalar));
  return layout_get_value(task->frame, "value", scalar, task->self.dtype, task->value);
}

diopiError_t diopiScatterScalar(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                                int64_t dim, const diopiScalar_t *value, diopiConstTensorHandle_t index,
                                const char *reduce) {
  struct frame frame;
  struct scatter_task task = {.frame = &frame};
  FRAME_TRY(begin_scatter(&task, __func__, ctx, out, input, index, reduce));
  FRAME_TRY(take_value(&task, value));
  return launch_scatter(&task, "input", "value", dim);
}

diopiError_t diopiScatterInpScalar(diopiContextHandle_t ctx, diopiTensorHandle_t input, int64_t dim,
                                   const diopiScalar_t *value, diopiConstTensorHandle_t index, const char *reduce) {
  struct frame frame;
  struct scatter_task task = {.frame = &frame};
  FRAME_TRY(begin_scatter(&task, __func__, ctx, input, input, index, reduce));
  FRAME_TRY(take_value(&task, value));
  return launch_scatter(&task, "input", "value", dim);
}

diopiError_t diopiGatherBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                 diopiConstTensorHandle_t grad_output, diopiConstTensorHandle_t input, int64_t dim,
                                 diopiConstTensorHandle_t index) {
  struct frame frame;
  struct scatter_task task = {.frame = &frame, .has_copied = true, .mode = SCATTER_ADD};
  struct dit_tensor_view x;
  FRAME_BEGIN(&frame, ctx);
  FRAME_TAKE(&frame, grad_input, &task.self);
  FRAME_TAKE(&frame, grad_output, &task.src);
  FRAME_TAKE(&frame, input, &x);
  FRAME_TAKE(&frame, index, &task.index);
  FRAME_TRY(layout_check_sizes(&frame, "grad_input", &task.self, x.ndim, x.sizes));
  FRAME_TRY(layout_check_sizes(&frame, "grad_output", &task.src, task.index.ndim, task.index.sizes));
  return launch_scatter(&task, "grad_input", "grad_output", dim);
}

/// Windows along one dimension, and their gradient; one_hot.
///
/// unfold: out[..., j, ..., k] = input[..., j * step + k, ...] with k the last dimension, size long, and
/// (n - size) / step + 1 windows j along dim. Every dtype. Backward: grad_input[i] = sum of grad_output[j, k] over
/// j * step + k = i, in the order of j; half types are summed in float and rounded once; all dtypes but uint16..uint64
/// and complex32. one_hot: out[..., c] = input[...] == c, int64; input is int64 from 0 to num_classes - 1 (-1: as
/// many as out's last dimension says).
#include "unfold.h"

#include <string.h>

#include "fail.h"

/// The part of `whole` that windows over `dim` show, as a view. A 0-d tensor counts as 1-d.
static diopiError_t find_windows(struct frame *frame, const struct dit_tensor_view *whole, int64_t dim, int64_t size,
                                 int64_t step, struct layout *windows, int *at) {
  FRAME_TRY(frame_wrap_dim(frame, "dim", dim, whole->ndim, at));
  const int64_t n = whole->ndim > 0 ? whole->sizes[*at] : 1, stride = whole->ndim > 0 ? whole->strides[*at] : 1;
  FRAME_CHECK_RANGE(frame, size >= 0 && size <= n, "'size' is %lld; valid for a dimension of size %lld: 0 to %lld",
                    (long long)size, (long long)n, (long long)n);
  FRAME_CHECK(frame, step > 0, "'step' is %lld; valid: 1 and more", (long long)step);
  FRAME_CHECK(frame, whole->ndim < DIT_MAX_DIMS, "the tensor has %d dimensions; valid: 0 to %d", whole->ndim,
              DIT_MAX_DIMS - 1);
  layout_init(windows, whole);
  if (whole->ndim > 0) {
    windows->sizes[*at] = (n - size) / step + 1;
    windows->strides[*at] = stride * step;
  }
  windows->sizes[whole->ndim] = size;
  windows->strides[whole->ndim] = stride;
  windows->view.ndim++;
  layout_finish(windows);
  return diopiSuccess;
}

diopiError_t diopiUnfold(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input, int64_t dim,
                         int64_t size, int64_t step) {
  struct frame frame;
  struct dit_tensor_view o, x;
  struct layout windows;
  int at;
  FRAME_BEGIN(&frame, ctx);
  FRAME_TAKE(&frame, out, &o);
  FRAME_TAKE(&frame, input, &x);
  FRAME_TRY(find_windows(&frame, &x, dim, size, step, &windows, &at));
  FRAME_TRY(layout_check_sizes(&frame, "out", &o, windows.view.ndim, windows.view.sizes));
  FRAME_TRY(layout_check_dtype(&frame, "out", &o, "input", &x));
  const struct dit_tensor_view *inputs[] = {&x};
  FRAME_TRY(frame_check_output(&frame, "out", &o, inputs, 1, false));
  return layout_copy(&frame, &o, &windows.view);
}

// Backward

diopiError_t diopiUnfoldBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                 diopiConstTensorHandle_t grad_output, diopiSize_t input_sizes, int64_t dim,
                                 int64_t size, int64_t step) {
  struct frame frame;
  struct dit_tensor_view o, g;
  struct layout windows, rest[2];
  struct unfold_task task;
  int at;
  FRAME_BEGIN(&frame, ctx);
  FRAME_TAKE(&frame, grad_input, &o);
  FRAME_TAKE(&frame, grad_output, &g);
  FRAME_TRY(layout_check_sizes(&frame, "grad_input", &o, (int)input_sizes.len, input_sizes.data));
  FRAME_TRY(find_windows(&frame, &o, dim, size, step, &windows, &at));
  FRAME_TRY(layout_check_sizes(&frame, "grad_output", &g, windows.view.ndim, windows.view.sizes));
  FRAME_TRY(layout_check_dtype(&frame, "grad_input", &o, "grad_output", &g));
  if (!unfold_has_dtype(o.dtype)) {
    return frame_fail_dtype(&frame, "grad_output", o.dtype);
  }
  const struct dit_tensor_view *inputs[] = {&g};
  FRAME_TRY(frame_check_output(&frame, "grad_input", &o, inputs, 1, false));
  if (o.numel == 0) {
    return diopiSuccess;
  }
  const int64_t width = (int64_t)dit_dtype_get_size(o.dtype);
  task.element_step = g.strides[g.ndim - 1] * width;
  layout_raise(&o);
  layout_init(&rest[0], &o);
  layout_init(&rest[1], &g);
  rest[1].view.ndim = o.ndim;
  if (g.ndim == 1) {  // of a 0-d tensor: one window
    rest[1].strides[0] = 0;
  }
  task.window_step = rest[1].strides[at] * width;
  layout_narrow(&rest[0], at, 0, 1, 1);
  for (int i = 0; i < o.ndim; i++) {
    rest[1].sizes[i] = rest[0].sizes[i];
  }
  layout_finish(&rest[1]);
  task.length = o.sizes[at];
  task.windows = (task.length - size) / step + 1;
  task.size = size;
  task.step = step;
  task.out_step = o.strides[at] * width;
  task.dtype = o.dtype;
  nest_init(&task.nest, 2, (const struct dit_tensor_view *const[]){&rest[0].view, &rest[1].view});
  return unfold_run_backward(&frame, &task);
}

// one_hot

diopiError_t diopiOneHot(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                         int64_t num_classes) {
  struct frame frame;
  struct hot_task task = {.frame = &frame};
  int64_t sizes[DIT_MAX_DIMS];
  const struct dit_tensor_view *inputs[] = {&task.input};
  FRAME_BEGIN(&frame, ctx);
  FRAME_TAKE(&frame, out, &task.out);
  FRAME_TAKE(&frame, input, &task.input);
  FRAME_CHECK(&frame, task.out.ndim == task.input.ndim + 1, "'out' has %d dimensions; it must have %d", task.out.ndim,
              task.input.ndim + 1);
  const int64_t last = task.out.sizes[task.input.ndim];
  FRAME_CHECK(&frame, num_classes == -1 || num_classes > 0, "'num_classes' is %lld; valid: -1, 1 and more",
              (long long)num_classes);
  if (task.input.ndim > 0) {
    memcpy(sizes, task.input.sizes, sizeof(int64_t) * (size_t)task.input.ndim);
  }
  sizes[task.input.ndim] = num_classes < 0 ? last : num_classes;
  FRAME_TRY(layout_check_sizes(&frame, "out", &task.out, task.out.ndim, sizes));
  if (task.out.dtype != DIT_DTYPE_I64) {
    return frame_fail_dtype(&frame, "out", task.out.dtype);
  }
  FRAME_TRY(frame_check_output(&frame, "out", &task.out, inputs, 1, false));
  return hot_run(&task);
}

/// tril and triu: the elements on one side of a diagonal of each matrix, zero on the other side.
///
/// tril: out[..., i, j] = j - i <= diagonal ? input : 0; triu: j - i >= diagonal. The last two dimensions are the
/// matrix; input has at least two. Every dtype; out may be input, whose kept side is not touched then.
#include "triangle.h"

#include "layout.h"

static diopiError_t run_triangle(const char *function, diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                 diopiConstTensorHandle_t input, int64_t diagonal, bool upper) {
  struct frame frame;
  struct dit_tensor_view o, x;
  struct layout rest[2];
  struct triangle_task task = {.upper = upper};
  FRAME_TRY(frame_begin(&frame, function, ctx));
  FRAME_TAKE(&frame, out, &o);
  FRAME_TAKE(&frame, input, &x);
  FRAME_CHECK(&frame, x.ndim >= 2, "'input' has %d dimensions; it must have at least 2", x.ndim);
  FRAME_TRY(layout_check_sizes(&frame, "out", &o, x.ndim, x.sizes));
  FRAME_TRY(layout_check_dtype(&frame, "out", &o, "input", &x));
  const struct dit_tensor_view *inputs[] = {&x};
  FRAME_TRY(frame_check_output(&frame, "out", &o, inputs, 1, true));
  if (o.numel == 0) {
    return diopiSuccess;
  }
  const int64_t width = (int64_t)dit_dtype_get_size(o.dtype), size = x.sizes[x.ndim - 2] + x.sizes[x.ndim - 1];
  const struct dit_tensor_view *views[2] = {&o, &x};
  for (int i = 0; i < 2; i++) {
    task.row_step[i] = views[i]->strides[x.ndim - 2] * width;
    task.step[i] = views[i]->strides[x.ndim - 1] * width;
    layout_init(&rest[i], views[i]);
    rest[i].view.ndim -= 2;
    layout_finish(&rest[i]);
  }
  nest_init_ordered(&task.rest, 2, (const struct dit_tensor_view *const[]){&rest[0].view, &rest[1].view});
  task.rows = x.sizes[x.ndim - 2];
  task.columns = x.sizes[x.ndim - 1];
  task.diagonal = diagonal > size ? size : diagonal < -size ? -size : diagonal;  // beyond that nothing changes
  task.width = (int)width;
  task.in_place = layout_is_same(&o, &x);
  return triangle_run(&frame, &task);
}

diopiError_t diopiTril(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                       int64_t diagonal) {
  return run_triangle(__func__, ctx, out, input, diagonal, false);
}

diopiError_t diopiTriu(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                       int64_t diagonal) {
  return run_triangle(__func__, ctx, out, input, diagonal, true);
}

diopiError_t diopiTriuInp(diopiContextHandle_t ctx, diopiTensorHandle_t input, int64_t diagonal) {
  return run_triangle(__func__, ctx, input, input, diagonal, true);
}

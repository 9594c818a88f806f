/// Running sums along one dimension.
///
/// out[i] = x[0] + ... + x[i]; the gradient runs the other way: grad_input[i] = g[i] + ... + g[last]. Accumulated in
/// double for floating types and in 64 bits for integers; `out` may have another dtype than the input. Complex numbers
/// are summed in their parts. Outputs may be exactly the input.
#include "scan.h"

#include "dense.h"

static diopiError_t launch(const char *function, diopiContextHandle_t ctx, diopiTensorHandle_t out, const char *o_name,
                           diopiConstTensorHandle_t in, const char *x_name, int64_t dim, bool reverse) {
  struct frame frame;
  struct dit_tensor_view o, x;
  struct shaped real_out, real_in;
  int d;
  FRAME_TRY(frame_begin(&frame, function, ctx));
  FRAME_TRY(frame_take(&frame, o_name, out, &o));
  FRAME_TRY(frame_take(&frame, x_name, in, &x));
  const bool pairs = frame_has_dtype(DTYPES_COMPLEX, x.dtype);
  if (!frame_has_dtype(DTYPES_PLAIN | DTYPES_COMPLEX, x.dtype)) {
    return frame_fail_dtype(&frame, x_name, x.dtype);
  }
  if (pairs ? o.dtype != x.dtype : !frame_has_dtype(DTYPES_PLAIN, o.dtype)) {
    return frame_fail_dtype(&frame, o_name, o.dtype);
  }
  FRAME_CHECK(&frame, frame_is_same_shape(&o, &x), "'%s' has another shape than '%s'", o_name, x_name);
  FRAME_TRY(frame_wrap_dim(&frame, "dim", dim, x.ndim, &d));
  FRAME_TRY(frame_check_output(&frame, o_name, &o, (const struct dit_tensor_view *[]){&x}, 1, true));
  if (x.numel == 0) {
    return diopiSuccess;
  }
  struct scan_task task = {&frame, &o, &x, line_shape_get(&x, d), 0, reverse, dense_get_work(o.dtype), NULL, NULL};
  if (pairs) {
    FRAME_CHECK(&frame, shaped_as_real(&real_out, &o) && shaped_as_real(&real_in, &x),
                "a complex '%s' may have at most %d dimensions", x_name, DIT_MAX_DIMS - 1);
    task.v_out = &real_out.view;
    task.v_in = &real_in.view;
    task.shape.inner *= 2;
    task.work = real_in.view.dtype;
  }
  return scan_run(&task);
}

diopiError_t diopiCumsum(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                         int64_t dim) {
  return launch(__func__, ctx, out, "out", input, "input", dim, false);
}

diopiError_t diopiCumsumBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                 diopiConstTensorHandle_t grad_output, int64_t dim) {
  return launch(__func__, ctx, grad_input, "grad_input", grad_output, "grad_output", dim, true);
}

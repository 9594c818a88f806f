/// Softmax and its logarithm over one dimension, and their gradients.
///
/// out[i] = exp(x[i] - max) / sum, or x[i] - max - log(sum); accumulated in float for half types. out has input's shape
/// and its dtype, or float32 for half inputs. With y = out and g the gradient of out, grad_input = (g - sum(g * y)) *
/// y, or g - exp(y) * sum(g) for the logarithm. Outputs may be exactly an input.
#include "engine/kernels.h"
#include "softmax_gradient.h"

static diopiError_t run_softmax(const char *function, diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                diopiConstTensorHandle_t input, int64_t dim, bool log) {
  struct frame frame;
  struct dit_tensor_view o, x;
  struct dit_error err = {.message = ""};
  int d;
  FRAME_TRY(frame_begin(&frame, function, ctx));
  FRAME_TAKE(&frame, out, &o);
  FRAME_TAKE(&frame, input, &x);
  if (!frame_has_dtype(DTYPES_FLOAT, x.dtype)) {
    return frame_fail_dtype(&frame, "input", x.dtype);
  }
  if (o.dtype != x.dtype && !(o.dtype == DIT_DTYPE_F32 && frame_has_dtype(DTYPES_HALF, x.dtype))) {
    return frame_fail_dtype(&frame, "out", o.dtype);
  }
  FRAME_CHECK(&frame, frame_is_same_shape(&o, &x), "'out' has another shape than 'input'");
  FRAME_TRY(frame_wrap_dim(&frame, "dim", dim, x.ndim, &d));
  const struct dit_tensor_view *inputs[] = {&x};
  FRAME_TRY(frame_check_output(&frame, "out", &o, inputs, 1, true));
  if (x.ndim == 0) {
    static const int64_t one = 1;
    o.sizes = x.sizes = o.strides = x.strides = &one;
    o.ndim = x.ndim = 1;
  }
  return frame_get_code(&frame, kernel_softmax(frame.stream, &o, &x, d, log, &err), &err);
}

diopiError_t diopiSoftmax(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                          int64_t dim) {
  return run_softmax(__func__, ctx, out, input, dim, false);
}

diopiError_t diopiLogSoftmax(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                             int64_t dim) {
  return run_softmax(__func__, ctx, out, input, dim, true);
}

static diopiError_t run_backward(const char *function, diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                 diopiConstTensorHandle_t grad_output, diopiConstTensorHandle_t output, int64_t dim,
                                 bool log) {
  struct frame frame;
  struct dit_tensor_view gi, go, y;
  int d;
  FRAME_TRY(frame_begin(&frame, function, ctx));
  FRAME_TAKE(&frame, grad_input, &gi);
  FRAME_TAKE(&frame, grad_output, &go);
  FRAME_TAKE(&frame, output, &y);
  const struct dit_tensor_view *views[] = {&gi, &go, &y};
  static const char *const names[] = {"grad_input", "grad_output", "output"};
  for (int i = 0; i < 3; i++) {
    if (!frame_has_dtype(DTYPES_FLOAT, views[i]->dtype)) {
      return frame_fail_dtype(&frame, names[i], views[i]->dtype);
    }
    FRAME_CHECK(&frame, frame_is_same_shape(views[i], &y), "'%s' has another shape than 'output'", names[i]);
  }
  FRAME_TRY(frame_wrap_dim(&frame, "dim", dim, y.ndim, &d));
  FRAME_TRY(frame_check_output(&frame, "grad_input", &gi, views + 1, 2, true));
  if (y.numel == 0) {
    return diopiSuccess;
  }
  return softmax_gradient(&frame, &gi, &go, &y, d, log);
}

diopiError_t diopiSoftmaxBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                  diopiConstTensorHandle_t grad_output, diopiConstTensorHandle_t output, int64_t dim) {
  return run_backward(__func__, ctx, grad_input, grad_output, output, dim, false);
}

diopiError_t diopiLogSoftmaxBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                     diopiConstTensorHandle_t grad_output, diopiConstTensorHandle_t output,
                                     int64_t dim) {
  return run_backward(__func__, ctx, grad_input, grad_output, output, dim, true);
}

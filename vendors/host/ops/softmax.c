/// Softmax and its logarithm over one dimension.
///
/// out[i] = exp(x[i] - max) / sum, or x[i] - max - log(sum); accumulated in float for half types. out has input's shape
/// and its dtype, or float32 for half inputs.
#include "engine/kernels.h"
#include "frame.h"

static diopiError_t run_softmax(const char *function, diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                diopiConstTensorHandle_t input, int64_t dim, bool log) {
  struct frame frame;
  struct dit_tensor_view o, x;
  struct dit_error err = {.message = ""};
  int d;
  FRAME_TRY(frame_begin(&frame, function, ctx));
  FRAME_TAKE(&frame, out, &o);
  FRAME_TAKE(&frame, input, &x);
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

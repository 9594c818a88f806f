/// The linear layer: out = input @ weight^T + bias.
///
/// input (*, K), weight (N, K), bias (N) or NULL, out (*, N); one dtype, floating or integer, half types accumulated in
/// float.
#include "linear_shape.h"

diopiError_t diopiLinear(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                         diopiConstTensorHandle_t weight, diopiConstTensorHandle_t bias) {
  struct frame frame;
  struct dit_tensor_view o, x, w, c;
  struct dit_error err = {.message = ""};
  struct product p;
  FRAME_BEGIN(&frame, ctx);
  FRAME_TAKE(&frame, out, &o);
  FRAME_TAKE(&frame, input, &x);
  FRAME_TAKE(&frame, weight, &w);
  FRAME_TAKE_OPTIONAL(&frame, bias, &c);
  FRAME_TRY(check_layer(&frame, "out", &o, &x, &w, DTYPES_REAL | DTYPES_COMPLEX));
  FRAME_CHECK(&frame, !c.handle || (c.ndim == 1 && c.sizes[0] == w.sizes[0] && c.dtype == x.dtype),
              "'bias' must have one dimension of size %lld and the dtype of 'input'", (long long)w.sizes[0]);
  const struct dit_tensor_view *inputs[] = {&x, &w, &c};
  FRAME_TRY(frame_check_output(&frame, "out", &o, inputs, 3, false));
  set_batch(&p, &x);
  product_set(&p, &p.out, &o, get_row(&o), o.ndim - 1);
  product_set(&p, &p.a, &x, get_row(&x), x.ndim - 1);
  product_set(&p, &p.b, &w, 1, 0);
  if (c.handle && c.numel > 0) {
    product_set(&p, &p.bias, &c, -1, 0);
    p.bias.sizes[0] = p.out.sizes[0];
    p.bias.strides[0] = 0;
  }
  return frame_get_code(&frame, product_run(frame.stream, &p, &err), &err);
}

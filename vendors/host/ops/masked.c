/// masked_fill: out = mask ? value : input.
///
/// mask is bool (or uint8: not zero) and broadcasts with input to the shape of out; input itself keeps its shape in the
/// in-place forms. value is a number or a 0-d tensor that input's dtype can hold, else an argument error. Every dtype;
/// out may be input.
#include "masked.h"

/// `value` is one element of out's dtype.
static diopiError_t launch_fill(struct frame *frame, const char *name, const struct dit_tensor_view *out,
                                const struct dit_tensor_view *input, const struct dit_tensor_view *mask,
                                const void *value) {
  struct dit_tensor_view x, m;
  int64_t input_strides[DIT_MAX_DIMS], mask_strides[DIT_MAX_DIMS];
  const struct dit_tensor_view *inputs[] = {input, mask};
  if (mask->dtype != DIT_DTYPE_BOOL && mask->dtype != DIT_DTYPE_U8) {
    return frame_fail(frame, diopiDtypeNotSupported, "'mask' is %s; valid: bool, uint8",
                      dit_dtype_get_name(mask->dtype));
  }
  FRAME_TRY(layout_check_dtype(frame, name, out, "input", input));
  FRAME_CHECK(frame,
              frame_expand(input, out->ndim, out->sizes, input_strides, &x) &&
                  frame_expand(mask, out->ndim, out->sizes, mask_strides, &m),
              "'input' has shape %s and 'mask' %s; both must broadcast to that of '%s', %s",
              layout_print(input->ndim, input->sizes), layout_print(mask->ndim, mask->sizes), name,
              layout_print(out->ndim, out->sizes));
  FRAME_TRY(frame_check_output(frame, name, out, inputs, 1, true));
  FRAME_TRY(frame_check_output(frame, name, out, inputs + 1, 1, true));
  return out->numel == 0 ? diopiSuccess : masked_fill(frame, out, &x, &m, value);
}

static diopiError_t fill_scalar(struct frame *frame, const char *name, diopiTensorHandle_t out,
                                diopiConstTensorHandle_t input, diopiConstTensorHandle_t mask,
                                const diopiScalar_t *value) {
  struct dit_tensor_view o, x, m;
  struct dit_scalar scalar;
  _Alignas(16) char element[16];
  FRAME_TRY(frame_take(frame, name, out, &o));
  FRAME_TAKE(frame, input, &x);
  FRAME_TAKE(frame, mask, &m);
  FRAME_TRY(frame_get_scalar(frame, "value", value, &scalar));
  FRAME_TRY(layout_get_value(frame, "value", scalar, x.dtype, element));
  return launch_fill(frame, name, &o, &x, &m, element);
}

static diopiError_t fill_tensor(struct frame *frame, const char *name, diopiTensorHandle_t out,
                                diopiConstTensorHandle_t input, diopiConstTensorHandle_t mask,
                                diopiConstTensorHandle_t value) {
  struct dit_tensor_view o, x, m, v;
  struct dit_scalar scalar;
  _Alignas(16) char element[16];
  FRAME_TRY(frame_take(frame, name, out, &o));
  FRAME_TAKE(frame, input, &x);
  FRAME_TAKE(frame, mask, &m);
  FRAME_TAKE(frame, value, &v);
  FRAME_TRY(layout_read_scalar(frame, "value", &v, &scalar));
  FRAME_TRY(layout_get_value(frame, "value", scalar, x.dtype, element));
  return launch_fill(frame, name, &o, &x, &m, element);
}

diopiError_t diopiMaskedFill(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                             diopiConstTensorHandle_t mask, diopiConstTensorHandle_t value) {
  struct frame frame;
  FRAME_BEGIN(&frame, ctx);
  return fill_tensor(&frame, "out", out, input, mask, value);
}

diopiError_t diopiMaskedFillInp(diopiContextHandle_t ctx, diopiTensorHandle_t input, diopiConstTensorHandle_t mask,
                                diopiConstTensorHandle_t value) {
  struct frame frame;
  FRAME_BEGIN(&frame, ctx);
  return fill_tensor(&frame, "input", input, input, mask, value);
}

diopiError_t diopiMaskedFillScalar(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                                   diopiConstTensorHandle_t mask, const diopiScalar_t *value) {
  struct frame frame;
  FRAME_BEGIN(&frame, ctx);
  return fill_scalar(&frame, "out", out, input, mask, value);
}

diopiError_t diopiMaskedFillInpScalar(diopiContextHandle_t ctx, diopiTensorHandle_t input,
                                      diopiConstTensorHandle_t mask, const diopiScalar_t *value) {
  struct frame frame;
  FRAME_BEGIN(&frame, ctx);
  return fill_scalar(&frame, "input", input, input, mask, value);
}

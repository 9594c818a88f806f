/// Scaled masked softmax over the last dimension, and its gradient.
///
/// output = softmax(s), s = scale * input where the mask is 0, -10000 where it is not (a row that is masked everywhere
/// comes out even). mask broadcasts to input, bool or any real dtype; with fixed_triu_mask the mask is j > i of the
/// last two dimensions and `mask` may be NULL. grad_input = scale * output * (grad_output - sum(grad_output * output)),
/// 0 where masked. Floating dtypes; half types are computed in float. The result may be the first input itself.
#include "masked_softmax.h"

/// Checks that both directions have; `names` are those of out, x and y.
static diopiError_t start(struct masked_softmax *call, const char *const *names) {
  struct frame *frame = call->frame;
  const struct dit_tensor_view *x = &call->x, *mask = &call->mask;
  FRAME_CHECK(frame, x->ndim >= 1 && (!call->triangle || x->ndim >= 2), "'%s' has %d dimensions; valid: at least %d",
              names[1], (int)x->ndim, 1 + call->triangle);
  FRAME_CHECK(frame, frame_is_same_shape(&call->out, x) && call->out.dtype == x->dtype,
              "'%s' has another shape or dtype than '%s'", names[0], names[1]);
  FRAME_CHECK(frame, !call->backward || (frame_is_same_shape(&call->y, x) && call->y.dtype == x->dtype),
              "'%s' has another shape or dtype than '%s'", names[2], names[1]);
  FRAME_CHECK(frame, call->triangle || mask->handle, "'mask' is NULL; only fixed_triu_mask needs none");
  if (!frame_has_dtype(DTYPES_FLOAT, x->dtype)) {
    return frame_fail_dtype(frame, names[1], x->dtype);
  }
  if (call->triangle) {
    call->mask = (struct dit_tensor_view){0};
  } else {
    int64_t strides[DIT_MAX_DIMS], own[DIT_MAX_DIMS];
    struct dit_tensor_view expanded;
    FRAME_CHECK(frame, frame_expand(mask, x->ndim, x->sizes, strides, &expanded), "'mask' does not broadcast to '%s'",
                names[1]);
    if (!frame_has_dtype(DTYPES_PLAIN, mask->dtype)) {
      return frame_fail_dtype(frame, "mask", mask->dtype);
    }
    dit_shape_set_contiguous(mask->ndim, mask->sizes, own);
    for (int dim = 0; dim < x->ndim; dim++) {
      const int at = dim - x->ndim + mask->ndim;
      call->mask_strides[dim] = at < 0 || mask->sizes[at] == 1 ? 0 : own[at];
    }
  }
  const struct dit_tensor_view *inputs[] = {&call->mask, &call->y, x};
  FRAME_TRY(frame_check_output(frame, names[0], &call->out, inputs, 2, false));
  FRAME_TRY(frame_check_output(frame, names[0], &call->out, inputs + 2, 1, true));
  return x->numel == 0 ? diopiSuccess : masked_softmax_run(call);
}

diopiError_t diopiScaledMaskedSoftmax(diopiContextHandle_t ctx, diopiTensorHandle_t output,
                                      diopiConstTensorHandle_t input, diopiConstTensorHandle_t mask, double scale,
                                      bool fixed_triu_mask) {
  static const char *const names[] = {"output", "input"};
  struct frame frame;
  struct masked_softmax call = {.frame = &frame, .scale = scale, .triangle = fixed_triu_mask};
  FRAME_BEGIN(&frame, ctx);
  FRAME_TAKE(&frame, output, &call.out);
  FRAME_TAKE(&frame, input, &call.x);
  FRAME_TAKE_OPTIONAL(&frame, mask, &call.mask);
  return start(&call, names);
}

diopiError_t diopiScaledMaskedSoftmaxBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                              diopiConstTensorHandle_t grad_output, diopiConstTensorHandle_t output,
                                              diopiConstTensorHandle_t mask, double scale, bool fixed_triu_mask) {
  static const char *const names[] = {"grad_input", "grad_output", "output"};
  struct frame frame;
  struct masked_softmax call = {.frame = &frame, .scale = scale, .triangle = fixed_triu_mask, .backward = true};
  FRAME_BEGIN(&frame, ctx);
  FRAME_TAKE(&frame, grad_input, &call.out);
  FRAME_TAKE(&frame, grad_output, &call.x);
  FRAME_TAKE(&frame, output, &call.y);
  FRAME_TAKE_OPTIONAL(&frame, mask, &call.mask);
  return start(&call, names);
}

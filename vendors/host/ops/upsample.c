/// Resizing of images in one to three dimensions: nearest, linear (by the number of dimensions: linear, bilinear,
/// trilinear) and bicubic, and their gradients.
///
/// input (N, C, spatial...), out (N, C, size...). A result is a sum over 1, 2 or 4 inputs per dimension, whose places
/// and weights come from tables, computed as PyTorch does: in float for all but float64; without align_corners pixel
/// centres are half a pixel in. Each row of the result is first a sum of rows, then spread along the row; gradients go
/// the same way back. Channels-last tensors are worked on as they are, with the channels as one step. Floating dtypes;
/// half types are computed in float. Outputs overlap nothing.
#include "upsample.h"

#include <string.h>

#include "window.h"

/// Shapes: both tensors are (N, C, spatial...), and `size` are the large one's spatial sizes.
static diopiError_t start(struct resize_call *call, const char *small, const char *large, const char *list,
                          diopiSize_t size) {
  struct frame *frame = call->frame;
  int64_t batch, channels, in[3], out[3], wanted[3];
  const int ndim = call->small.ndim - 2;
  FRAME_CHECK(frame, ndim >= 1 && ndim <= 3, "'%s' has %d dimensions; valid: 3 to 5", small, (int)call->small.ndim);
  FRAME_CHECK(frame, call->mode != RESIZE_CUBIC || ndim == 2, "mode \"bicubic\" takes 4 dimensions; '%s' has %d", small,
              (int)call->small.ndim);
  call->ndim = ndim;
  FRAME_TRY(window_split(frame, small, &call->small, ndim, &batch, &channels, in));
  FRAME_TRY(window_read(frame, list, size, ndim, 1, 1, NULL, wanted));
  FRAME_TRY(window_check(frame, large, &call->large, ndim, true, batch, channels, wanted));
  FRAME_TRY(window_split(frame, large, &call->large, ndim, &batch, &channels, out));
  for (int i = 0; i < 3; i++) {
    FRAME_CHECK(frame, in[i] > 0 && in[i] <= INT32_MAX, "'%s' has %lld elements in a spatial dimension; valid: 1 to %d",
                small, (long long)in[i], INT32_MAX);
    call->in[i] = in[i];
    call->out[i] = out[i];
  }
  FRAME_CHECK(frame, call->small.dtype == call->large.dtype, "'%s' is %s and '%s' %s; they must have one dtype", small,
              dit_dtype_get_name(call->small.dtype), large, dit_dtype_get_name(call->large.dtype));
  if (!frame_has_dtype(DTYPES_FLOAT, call->small.dtype)) {
    return frame_fail_dtype(frame, small, call->small.dtype);
  }
  const struct dit_tensor_view *result = call->backward ? &call->small : &call->large;
  const struct dit_tensor_view *inputs[] = {call->backward ? &call->large : &call->small};
  FRAME_TRY(frame_check_output(frame, call->backward ? small : large, result, inputs, 1, false));
  call->planes = batch * channels;
  call->wide = call->small.dtype == DIT_DTYPE_F64;
  return call->planes == 0 ? diopiSuccess : resize_run(call);
}

static diopiError_t read_mode(struct resize_call *call, const char *mode) {
  static const char *const names[] = {"linear", "bilinear", "trilinear", "bicubic"};
  for (int i = 0; mode && i < 4; i++) {
    if (strcmp(mode, names[i]) == 0) {
      call->mode = i == 3 ? RESIZE_CUBIC : RESIZE_LINEAR;
      return diopiSuccess;
    }
  }
  return frame_fail(call->frame, diopiErrorOccurred,
                    "'mode' is %s; valid: \"linear\", \"bilinear\", \"trilinear\", \"bicubic\"", mode ? mode : "NULL");
}

/// in_size of a backward call must be the gradient's own shape.
static diopiError_t check_in_size(struct resize_call *call, diopiSize_t in_size) {
  const struct dit_tensor_view *small = &call->small;
  FRAME_CHECK(call->frame, in_size.len == small->ndim, "'in_size' has %lld entries; 'grad_input' has %d dimensions",
              (long long)in_size.len, (int)small->ndim);
  for (int i = 0; i < small->ndim; i++) {
    FRAME_CHECK(call->frame, in_size.data[i] == small->sizes[i], "'in_size' has the entry %lld; 'grad_input' has %lld",
                (long long)in_size.data[i], (long long)small->sizes[i]);
  }
  return diopiSuccess;
}

diopiError_t diopiUpsampleNearest(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                                  diopiSize_t size) {
  struct frame frame;
  struct resize_call call = {.frame = &frame};
  FRAME_BEGIN(&frame, ctx);
  FRAME_TAKE(&frame, out, &call.large);
  FRAME_TAKE(&frame, input, &call.small);
  return start(&call, "input", "out", "size", size);
}

diopiError_t diopiUpsampleNearestBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                          diopiConstTensorHandle_t grad_output, diopiSize_t out_size,
                                          diopiSize_t in_size) {
  struct frame frame;
  struct resize_call call = {.frame = &frame, .backward = true};
  FRAME_BEGIN(&frame, ctx);
  FRAME_TAKE(&frame, grad_input, &call.small);
  FRAME_TAKE(&frame, grad_output, &call.large);
  FRAME_TRY(check_in_size(&call, in_size));
  return start(&call, "grad_input", "grad_output", "out_size", out_size);
}

diopiError_t diopiUpsampleLinear(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                                 diopiSize_t size, bool align_corners, const char *mode) {
  struct frame frame;
  struct resize_call call = {.frame = &frame, .align = align_corners};
  FRAME_BEGIN(&frame, ctx);
  FRAME_TAKE(&frame, out, &call.large);
  FRAME_TAKE(&frame, input, &call.small);
  FRAME_TRY(read_mode(&call, mode));
  return start(&call, "input", "out", "size", size);
}

diopiError_t diopiUpsampleLinearBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                         diopiConstTensorHandle_t grad_output, diopiSize_t out_size,
                                         diopiSize_t in_size, bool align_corners, const char *mode) {
  struct frame frame;
  struct resize_call call = {.frame = &frame, .align = align_corners, .backward = true};
  FRAME_BEGIN(&frame, ctx);
  FRAME_TAKE(&frame, grad_input, &call.small);
  FRAME_TAKE(&frame, grad_output, &call.large);
  FRAME_TRY(read_mode(&call, mode));
  FRAME_TRY(check_in_size(&call, in_size));
  return start(&call, "grad_input", "grad_output", "out_size", out_size);
}

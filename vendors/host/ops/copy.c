/// Copies and conversions between dtypes.
///
/// CopyInp: dest = src, broadcast to dest's shape and converted to its dtype as PyTorch casts. CastDtype: out = input
/// of the same shape in out's dtype. Contiguous: *out becomes a tensor of the context in the wanted memory format.
#include "dit/diopi.h"
#include "elementwise.h"
#include "engine/kernels.h"

static diopiError_t run_copy(struct frame *frame, const char *name, const struct dit_tensor_view *out,
                             const struct dit_tensor_view *in) {
  struct dit_error err;
  err.message[0] = 0;
  FRAME_TRY(frame_check_output(frame, name, out, &in, 1, true));
  return frame_get_code(frame, kernel_copy(frame->stream, out, in, &err), &err);
}

diopiError_t diopiCopyInp(diopiContextHandle_t ctx, diopiConstTensorHandle_t src, diopiTensorHandle_t dest) {
  struct frame frame;
  struct dit_tensor_view from, to, expanded;
  int64_t strides[DIT_MAX_DIMS];
  FRAME_BEGIN(&frame, ctx);
  FRAME_TAKE(&frame, src, &from);
  FRAME_TAKE(&frame, dest, &to);
  if (frame_is_same_shape(&to, &from)) {
    return run_copy(&frame, "dest", &to, &from);
  }
  FRAME_CHECK(&frame, frame_expand(&from, to.ndim, to.sizes, strides, &expanded),
              "'src' of %d dimensions does not broadcast to the shape of 'dest', which has %d", (int)from.ndim,
              (int)to.ndim);
  const struct dit_tensor_view *inputs[] = {&from};
  FRAME_TRY(frame_check_output(&frame, "dest", &to, inputs, 1, true));
  struct dit_error err = {.message = ""};
  return frame_get_code(&frame, kernel_copy(frame.stream, &to, &expanded, &err), &err);
}

diopiError_t diopiCastDtype(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input) {
  struct frame frame;
  struct dit_tensor_view o, x;
  FRAME_BEGIN(&frame, ctx);
  FRAME_TAKE(&frame, out, &o);
  FRAME_TAKE(&frame, input, &x);
  FRAME_CHECK(&frame, frame_is_same_shape(&o, &x), "'out' has another shape than 'input'");
  return run_copy(&frame, "out", &o, &x);
}

/// Strides of `sizes` in a memory format; false when the format does not fit the number of dimensions.
static bool set_strides(int ndim, const int64_t *sizes, diopiMemoryFormat_t format, int64_t *strides) {
  const int wanted = format == ChannelsLast ? 4 : format == ChannelsLast3d ? 5 : 3;
  if (format == Contiguous) {
    dit_shape_set_contiguous(ndim, sizes, strides);
    return true;
  }
  if (ndim != wanted) {
    return false;
  }
  int64_t step = 1;
  strides[1] = 1;
  step = sizes[1] > 0 ? sizes[1] : 1;
  for (int dim = ndim - 1; dim >= 2; dim--) {
    strides[dim] = step;
    step *= sizes[dim] > 0 ? sizes[dim] : 1;
  }
  strides[0] = step;
  return true;
}

diopiError_t diopiContiguous(diopiContextHandle_t ctx, diopiTensorHandle_t *out, diopiConstTensorHandle_t input,
                             diopiMemoryFormat_t memoryFormat) {
  struct frame frame;
  struct dit_tensor_view o, x;
  int64_t strides[DIT_MAX_DIMS];
  FRAME_BEGIN(&frame, ctx);
  FRAME_CHECK(&frame, out != NULL, "'out' is NULL; it must be the place for a tensor");
  FRAME_TAKE(&frame, input, &x);
  FRAME_CHECK(&frame, memoryFormat >= Contiguous && memoryFormat <= ChannelsLast1d && memoryFormat != Preserve,
              "'memoryFormat' is %d; valid: 0 (contiguous), 1, 2, 4 (channels last)", (int)memoryFormat);
  FRAME_CHECK(&frame, set_strides(x.ndim, x.sizes, memoryFormat, strides),
              "'memoryFormat' is %d, which does not fit 'input' of %d dimensions", (int)memoryFormat, (int)x.ndim);
  diopiTensorHandle_t made = NULL;
  const diopiSize_t size = {x.sizes, x.ndim}, stride = {strides, x.ndim};
  FRAME_TRY(diopiRequireTensor(ctx, &made, &size, &stride, dit_diopi_get_dtype(x.dtype), diopi_device));
  FRAME_TRY(frame_take(&frame, "out", made, &o));
  FRAME_TRY(run_copy(&frame, "out", &o, &x));
  *out = made;
  return diopiSuccess;
}

/// The hooks of devices with memory formats of their own. The host has none: every tensor lies in the one format that
/// its strides tell, whose number is 0.
///
/// A cast to format 0 gives a row-major copy of the tensor, any other number is an error. Nothing is kept about
/// storages, so there is nothing to forget. Every dtype.
#include "engine/kernels.h"
#include "frame.h"

#define FORMAT_STRIDED 0

diopiError_t diopiNativeMemoryFormatCast(diopiContextHandle_t ctx, diopiTensorHandle_t *out, diopiTensorHandle_t in,
                                         int64_t format) {
  struct frame frame;
  struct dit_tensor_view o, x;
  struct dit_error err = {.message = ""};
  FRAME_BEGIN(&frame, ctx);
  FRAME_CHECK(&frame, out, "'out' is NULL; it must be a place for the result's handle");
  FRAME_TAKE(&frame, in, &x);
  FRAME_CHECK(&frame, format == FORMAT_STRIDED, "'format' is %lld; this device has format %d alone", (long long)format,
              FORMAT_STRIDED);
  const diopiSize_t size = {x.sizes, x.ndim};
  FRAME_CHECK(&frame,
              diopiRequireTensor(ctx, out, &size, NULL, dit_diopi_get_dtype(x.dtype), diopi_device) == diopiSuccess,
              "no memory for the result");
  FRAME_TRY(frame_take(&frame, "out", *out, &o));
  return frame_get_code(&frame, x.numel > 0 ? kernel_copy(frame.stream, &o, &x, &err) : DIT_OK, &err);
}

diopiError_t diopiGetNativeMemoryFormat(diopiContextHandle_t ctx, diopiConstTensorHandle_t input, int64_t *format) {
  struct frame frame;
  struct dit_tensor_view x;
  FRAME_BEGIN(&frame, ctx);
  FRAME_TAKE(&frame, input, &x);
  FRAME_CHECK(&frame, format, "'format' is NULL; it must be a place for the number");
  *format = FORMAT_STRIDED;
  return diopiSuccess;
}

diopiError_t diopiTensorDestructionHook(diopiContextHandle_t ctx, void *ptr) {
  struct frame frame;
  (void)ptr;
  FRAME_BEGIN(&frame, ctx);
  return diopiSuccess;
}

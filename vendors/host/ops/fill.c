/// Tensors of one number: fill, zeros, ones. Every element of input = value.
#include "engine/kernels.h"
#include "frame.h"

static diopiError_t run_fill(const char *function, diopiContextHandle_t ctx, const char *name,
                             diopiTensorHandle_t tensor, const diopiScalar_t *value, const diopiSize_t *size) {
  struct frame frame;
  struct dit_tensor_view o;
  struct dit_scalar scalar;
  struct dit_error err;
  err.message[0] = 0;
  FRAME_TRY(frame_begin(&frame, function, ctx));
  FRAME_TRY(frame_take(&frame, name, tensor, &o));
  FRAME_TRY(frame_get_scalar(&frame, "value", value, &scalar));
  if (size) {
    bool same = size->len == o.ndim && (size->len == 0 || size->data);
    for (int dim = 0; same && dim < o.ndim; dim++) {
      same = size->data[dim] == o.sizes[dim];
    }
    FRAME_CHECK(&frame, same, "'out' does not have the shape that 'size' asks for");
  }
  FRAME_TRY(frame_check_output(&frame, name, &o, NULL, 0, true));
  return frame_get_code(&frame, kernel_fill(frame.stream, &o, scalar, &err), &err);
}

static const diopiScalar_t zero = {.stype = diopi_dtype_int64, .ival = 0};
static const diopiScalar_t one = {.stype = diopi_dtype_int64, .ival = 1};

diopiError_t diopiFill(diopiContextHandle_t ctx, diopiTensorHandle_t input, const diopiScalar_t *value) {
  return run_fill(__func__, ctx, "input", input, value, NULL);
}
diopiError_t diopiZeroInp(diopiContextHandle_t ctx, diopiTensorHandle_t self) {
  return run_fill(__func__, ctx, "self", self, &zero, NULL);
}
diopiError_t diopiZeros(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiSize_t size) {
  return run_fill(__func__, ctx, "out", out, &zero, &size);
}
diopiError_t diopiOnes(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiSize_t size) {
  return run_fill(__func__, ctx, "out", out, &one, &size);
}

/// fill_ and zero_: self[i] = value, converted to self's dtype; an expanded self is allowed, as in PyTorch (filling is
/// idempotent).
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "invoke.h"
#include "table.h"

static enum dit_status run_fill(struct dit_call *call, struct dit_scalar value) {
  struct dit_tensor_view *self = op_get_tensor(call, 0);
  if (!self || !op_is_device(self) || !op_is_moved(self->dtype) || self->ndim > DIT_MAX_DIMS) {
    return DIT_ERR_UNSUPPORTED;
  }
  DIT_RETURN_IF_NOT_OK(op_fill(call, self, value));
  return op_return(call, 0, self);
}

/// Integers that do not fit are an error in PyTorch ("value cannot be converted to type ... without overflow"): left to
/// it.
static bool fits(int dtype, const struct dit_scalar *value) {
  static const int64_t limit[] = {
      [DIT_DTYPE_U8] = 255, [DIT_DTYPE_I8] = 127, [DIT_DTYPE_I16] = 32767, [DIT_DTYPE_I32] = 2147483647};
  if (op_is_complex(dtype)) {
    const double re = value->kind == DIT_SCALAR_COMPLEX ? value->v.c.re : 0;
    const double im = value->kind == DIT_SCALAR_COMPLEX ? value->v.c.im : 0;
    return dtype == DIT_DTYPE_C128 || (fabs(re) < 3e38 && fabs(im) < 3e38);
  }
  if (value->kind == DIT_SCALAR_COMPLEX || !op_is_plain(dtype)) {
    return value->kind <= DIT_SCALAR_INT && value->v.i >= 0 && value->v.i <= UINT16_MAX && dtype != DIT_DTYPE_C32;
  }
  if (op_is_floating(dtype)) {
    return dtype == DIT_DTYPE_F64 || value->kind != DIT_SCALAR_DOUBLE || dtype == DIT_DTYPE_BF16 ||
           value->v.d - value->v.d != 0 || (value->v.d < 65504.0 && value->v.d > -65504.0) || dtype == DIT_DTYPE_F32;
  }
  if (dtype == DIT_DTYPE_BOOL) {
    return true;
  }
  if (value->kind == DIT_SCALAR_DOUBLE) {
    return value->v.d > -100.0 && value->v.d < 100.0 && (dtype != DIT_DTYPE_U8 || value->v.d >= 0);
  }
  return dtype == DIT_DTYPE_I64 ||
         (value->v.i <= limit[dtype] && value->v.i >= (dtype == DIT_DTYPE_U8 ? 0 : -limit[dtype]));
}

enum dit_status op_fill_scalar(struct dit_call *call) {
  struct dit_scalar value;
  struct dit_tensor_view *self = op_get_tensor(call, 0);
  DIT_RETURN_IF_NOT_OK(op_read_scalar(&call->args[1], &value));
  if (!self || !op_is_moved(self->dtype) || !fits(self->dtype, &value)) {
    return DIT_ERR_UNSUPPORTED;
  }
  return run_fill(call, value);
}

enum dit_status op_zero(struct dit_call *call) {
  const struct dit_tensor_view *self = op_get_tensor(call, 0);
  if (OP_HAS(call, diopiZeroInp) && self && op_is_device(self) && op_is_moved(self->dtype) &&
      self->flags & DIT_TENSOR_DENSE) {
    struct diopiContext context;
    struct diopiTensor handle;
    op_context_init(&context, call);
    DIT_RETURN_IF_NOT_OK(OP_DIOPI(call, &context, diopiZeroInp, op_handle(call, &handle, self)));
    return op_return(call, 0, self);
  }
  return run_fill(call, (struct dit_scalar){DIT_SCALAR_INT, {0}});
}

enum dit_status op_fill_tensor(struct dit_call *call) {
  struct dit_tensor_view *self = op_get_tensor(call, 0), *value = op_get_tensor(call, 1), expanded;
  struct op_layout layout;
  int64_t strides[DIT_MAX_DIMS];
  if (!self || !value || value->ndim != 0 || !op_is_device(self) || !op_is_device(value) ||
      self->storage == value->storage || !op_is_moved(self->dtype) || !op_is_moved(value->dtype) ||
      (op_is_complex(value->dtype) && !op_is_complex(self->dtype)) || self->ndim > DIT_MAX_DIMS) {
    return DIT_ERR_UNSUPPORTED;
  }
  layout.ndim = self->ndim;
  op_copy_dims(layout.sizes, self->sizes, self->ndim);
  op_expand(value, &layout, strides, &expanded);
  DIT_RETURN_IF_NOT_OK(op_copy(call, self, &expanded));
  return op_return(call, 0, self);
}

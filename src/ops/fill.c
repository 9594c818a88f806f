/// fill_ and zero_: self[i] = value, converted to self's dtype; an expanded self is allowed, as in PyTorch (filling is
/// idempotent).
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

/// A complex number into a real dtype, and numbers of dtypes that only move, are PyTorch's affair.
static bool can_store(int dtype, const struct dit_scalar *value) {
  if (op_is_complex(dtype)) {
    return true;
  }
  if (value->kind == DIT_SCALAR_COMPLEX || !op_is_plain(dtype)) {
    return value->kind <= DIT_SCALAR_INT && value->v.i >= 0 && value->v.i <= UINT16_MAX && dtype != DIT_DTYPE_C32;
  }
  return true;
}

enum dit_status op_fill_scalar(struct dit_call *call) {
  struct dit_scalar value;
  struct dit_tensor_view *self = op_get_tensor(call, 0);
  DIT_RETURN_IF_NOT_OK(op_read_scalar(&call->args[1], &value));
  if (!self || !op_is_moved(self->dtype) || !can_store(self->dtype, &value)) {
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

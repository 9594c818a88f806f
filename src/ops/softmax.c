/// _softmax and _log_softmax over one dimension. The result is row-major whatever the input's strides; a half input may
/// give a float result.
#include <stddef.h>

#include "infer.h"
#include "table.h"

typedef diopiError_t softmax_function(diopiContextHandle_t, diopiTensorHandle_t, diopiConstTensorHandle_t, int64_t);

enum dit_status op_softmax(struct dit_call *call) {
  const struct dit_tensor_view *self = op_get_tensor(call, 0);
  struct dit_tensor_view *given = call->op->target == OP_OUT ? op_get_tensor(call, 3) : NULL, out;
  softmax_function *function = OP_ROW_FUNCTION(call, softmax_function *);
  struct diopiContext context;
  struct diopiTensor out_handle, self_handle;
  if (!function || op_check_input(self) != DIT_OK || !op_is_device(self) || !op_is_floating(self->dtype) ||
      (call->op->target == OP_OUT && !given)) {
    return DIT_ERR_UNSUPPORTED;
  }
  const bool widen = call->args[2].v.i != 0;
  if (widen && !op_is_half(self->dtype)) {
    return DIT_ERR_UNSUPPORTED;
  }
  int64_t dim = call->args[1].v.i, wrap = self->ndim > 0 ? self->ndim : 1;
  if (dim < -wrap || dim >= wrap) {
    return DIT_ERR_UNSUPPORTED;
  }
  DIT_RETURN_IF_NOT_OK(
      op_prepare_contiguous(call, given, &self, 1, self->ndim, self->sizes, widen ? DIT_DTYPE_F32 : self->dtype, &out));
  op_context_init(&context, call);
  DIT_RETURN_IF_NOT_OK(OP_DIOPI_ROW(call, &context, function, op_handle(call, &out_handle, &out),
                                    op_handle(call, &self_handle, self), dim));
  return op_return(call, 0, &out);
}

/// _softmax and _log_softmax over one dimension, and their backwards. The result is row-major whatever the input's
/// strides; a half input may give a float result. The backwards take gradient and output of one floating dtype (a half
/// input with a float gradient is left to the CPU).
#include <stddef.h>

#include "invoke.h"
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
  const int64_t dim = call->args[1].v.i;
  if (!op_is_dim(self, dim)) {
    return DIT_ERR_UNSUPPORTED;
  }
  DIT_RETURN_IF_NOT_OK(
      op_prepare_contiguous(call, given, &self, 1, self->ndim, self->sizes, widen ? DIT_DTYPE_F32 : self->dtype, &out));
  op_context_init(&context, call);
  DIT_RETURN_IF_NOT_OK(OP_DIOPI_ROW(call, &context, function, op_handle(call, &out_handle, &out),
                                    op_handle(call, &self_handle, self), dim));
  return op_return(call, 0, &out);
}

enum dit_status op_softmax_backward(struct dit_call *call) {
  const struct dit_tensor_view *grad = op_get_tensor(call, 0), *output = op_get_tensor(call, 1);
  struct dit_tensor_view *given = call->op->target == OP_OUT ? op_get_given(call, 0) : NULL, out;
  const struct dit_tensor_view *inputs[2] = {grad, output}, *outs[1] = {&out};
  if (op_check_input(grad) != DIT_OK || op_check_input(output) != DIT_OK || !op_is_device(grad) ||
      !op_is_device(output) || !op_can_invoke(call, call->op->function) || !op_is_floating(grad->dtype) ||
      grad->dtype != output->dtype || call->args[3].v.i != grad->dtype || !op_is_dim(grad, call->args[2].v.i) ||
      !op_same_sizes(grad, output->ndim, output->sizes) || (call->op->target == OP_OUT && !given)) {
    return DIT_ERR_UNSUPPORTED;
  }
  DIT_RETURN_IF_NOT_OK(op_prepare_contiguous(call, given, inputs, 2, grad->ndim, grad->sizes, grad->dtype, &out));
  DIT_RETURN_IF_NOT_OK(op_invoke(call, call->op->function, outs, 0));
  return op_return(call, 0, &out);
}

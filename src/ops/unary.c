/// relu and gelu: out[i] = f(self[i]), same dtype, strides as TensorIterator says for one input.
///
/// relu(x) = max(x, 0) with NaN kept, any plain dtype but bool. gelu: floating dtypes; "none" is x * Phi(x), "tanh" its
/// approximation. These two have a kernel for vendors whose library lacks diopiRelu and diopiGelu; the other unary
/// operators are in elementwise.c.
#include <stddef.h>
#include <string.h>

#include "invoke.h"
#include "table.h"

static enum dit_status run_unary(struct dit_call *call, enum dit_unary_kind kind, enum op_target target,
                                 struct dit_tensor_view *given) {
  struct dit_tensor_view made, *out = target == OP_NEW ? &made : given;
  const struct dit_tensor_view *self = op_get_tensor(call, 0);
  if (!OP_HAS_KERNEL(call, unary) || op_check_input(self) != DIT_OK || !op_is_device(self) || !out ||
      self->dtype == DIT_DTYPE_BOOL || (kind != DIT_UNARY_RELU && !op_is_floating(self->dtype)) ||
      (target != OP_NEW && out->dtype != self->dtype)) {
    return DIT_ERR_UNSUPPORTED;
  }
  if (target == OP_NEW && self->flags & DIT_TENSOR_CONTIGUOUS) {
    DIT_RETURN_IF_NOT_OK(call->services->new_tensor(call, self->ndim, self->sizes, NULL, self->dtype, out));
  } else {
    struct op_layout layout;
    bool same_shape;
    DIT_RETURN_IF_NOT_OK(op_check_given(call, target, &self, 1, out));
    DIT_RETURN_IF_NOT_OK(op_broadcast(&self, 1, &layout, &same_shape, call->err));
    DIT_RETURN_IF_NOT_OK(op_prepare(call, target, &self, 1, self->dtype, &layout, same_shape, out));
  }
  DIT_RETURN_IF_NOT_OK(call->kernels->unary(call->stream, kind, out, self, call->err));
  return op_return(call, 0, out);
}

enum dit_status op_relu(struct dit_call *call) {
  if (op_can_invoke(call, call->op->function)) {
    return op_same(call);
  }
  return call->op->target == OP_NEW ? run_unary(call, DIT_UNARY_RELU, OP_NEW, NULL)
                                    : run_unary(call, DIT_UNARY_RELU, OP_INPLACE, op_get_tensor(call, 0));
}

enum dit_status op_gelu(struct dit_call *call) {
  const struct dit_value *approximate = &call->args[1];
  const enum op_target target = (enum op_target)call->op->target;
  if (approximate->tag != DIT_VALUE_STRING) {
    return DIT_ERR_UNSUPPORTED;
  }
  const bool tanh = strcmp(approximate->v.string, "tanh") == 0;
  if (!tanh && strcmp(approximate->v.string, "none") != 0) {
    return DIT_ERR_UNSUPPORTED;
  }
  if (op_can_invoke(call, call->op->function)) {
    return op_same(call);
  }
  return run_unary(call, tanh ? DIT_UNARY_GELU_TANH : DIT_UNARY_GELU, target,
                   target == OP_OUT ? op_get_tensor(call, 2) : op_get_tensor(call, 0));
}

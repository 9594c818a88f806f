/// Complex numbers from two real ones, and their conjugates.
///
/// complex(real, imag), polar(abs, angle): float32 pairs give complex64, float64 pairs complex128; both broadcast, with
/// TensorIterator's strides. conj_physical writes the conjugate of self (op_same); conj itself is a view.
#include "dit/promotion.h"
#include "invoke.h"
#include "table.h"

enum dit_status op_complex(struct dit_call *call) {
  const struct dit_tensor_view *inputs[2] = {op_get_tensor(call, 0), op_get_tensor(call, 1)};
  const enum op_target target = (enum op_target)call->op->target;
  struct dit_tensor_view made, *out = target == OP_NEW ? &made : op_get_given(call, 0);
  struct op_layout layout;
  bool same_shape;
  if (!inputs[0] || !inputs[1] || !out || !op_can_invoke(call, call->op->function)) {
    return DIT_ERR_UNSUPPORTED;
  }
  const int dtype = inputs[0]->dtype, result = dit_dtype_get_complex(dtype);
  if ((dtype != DIT_DTYPE_F32 && dtype != DIT_DTYPE_F64) || inputs[1]->dtype != dtype || !op_is_device(inputs[0]) ||
      !op_is_device(inputs[1]) ||
      (target == OP_OUT &&
       (out->dtype != result || inputs[0]->storage == out->storage || inputs[1]->storage == out->storage))) {
    return DIT_ERR_UNSUPPORTED;
  }
  DIT_RETURN_IF_NOT_OK(op_check_given(call, target, inputs, 2, out));
  DIT_RETURN_IF_NOT_OK(op_broadcast(inputs, 2, &layout, &same_shape, call->err));
  DIT_RETURN_IF_NOT_OK(op_prepare_as(call, target, inputs, 2, dtype, result, &layout, same_shape, out));
  const struct dit_tensor_view *outs[1] = {out};
  DIT_RETURN_IF_NOT_OK(op_invoke(call, call->op->function, outs, 0));
  return op_return(call, 0, out);
}

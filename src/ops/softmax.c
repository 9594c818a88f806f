/// _softmax and _log_softmax over one dimension. The result is row-major whatever the input's strides; a half input may
/// give a float result.
#include <stddef.h>

#include "infer.h"
#include "table.h"

static enum dit_status run_softmax(struct dit_call *call, bool log, enum op_target target) {
  const struct dit_tensor_view *self = op_get_tensor(call, 0);
  struct dit_tensor_view *given = target == OP_OUT ? op_get_tensor(call, 3) : NULL, out;
  if (!OP_HAS_KERNEL(call, softmax) || op_check_input(self) != DIT_OK || !op_is_device(self) ||
      !op_is_floating(self->dtype) || (target == OP_OUT && !given)) {
    return DIT_ERR_UNSUPPORTED;
  }
  int64_t dim = call->args[1].v.i, wrap = self->ndim > 0 ? self->ndim : 1;
  bool widen = call->args[2].v.i != 0;
  dim += dim < 0 ? wrap : 0;
  if (dim < 0 || dim >= wrap || (widen && !op_is_half(self->dtype))) {
    return DIT_ERR_UNSUPPORTED;
  }
  DIT_RETURN_IF_NOT_OK(
      op_prepare_contiguous(call, given, &self, 1, self->ndim, self->sizes, widen ? DIT_DTYPE_F32 : self->dtype, &out));
  struct dit_tensor_view in = *self, to = out;
  static const int64_t unit = 1;
  if (self->ndim == 0) {
    in.sizes = in.strides = to.sizes = to.strides = &unit;
    in.ndim = to.ndim = 1;
  }
  DIT_RETURN_IF_NOT_OK(call->kernels->softmax(call->stream, &to, &in, (int)dim, log, call->err));
  return op_return(call, 0, &out);
}

enum dit_status op_softmax(struct dit_call *call) {
  return run_softmax(call, false, OP_NEW);
}
enum dit_status op_softmax_out(struct dit_call *call) {
  return run_softmax(call, false, OP_OUT);
}
enum dit_status op_log_softmax(struct dit_call *call) {
  return run_softmax(call, true, OP_NEW);
}
enum dit_status op_log_softmax_out(struct dit_call *call) {
  return run_softmax(call, true, OP_OUT);
}

/// native_dropout: mask[i] ~ Bernoulli(1 - p), out = input * mask / (1 - p); without training a copy and a mask of
/// ones.
///
/// Random numbers belong to elements by their row-major number, so the result does not depend on strides or threads.
/// Strides are preserved as PyTorch does.
#include <stddef.h>

#include "infer.h"
#include "table.h"

/// empty_like with preserved strides.
static enum dit_status make_like(struct dit_call *call, const struct dit_tensor_view *self, int dtype,
                                 struct dit_tensor_view *out) {
  int64_t strides[DIT_MAX_DIMS];
  if (self->flags & DIT_TENSOR_DENSE) {
    return call->services->new_tensor(call, self->ndim, self->sizes, self->strides, dtype, out);
  }
  op_infer_dense(self->ndim, self->sizes, self->strides, strides);
  return call->services->new_tensor(call, self->ndim, self->sizes, strides, dtype, out);
}

/// The trained result is a product: TensorIterator's strides over input and mask.
static enum dit_status make_product(struct dit_call *call, const struct dit_tensor_view *self,
                                    const struct dit_tensor_view *mask, struct dit_tensor_view *out) {
  const struct dit_tensor_view *inputs[2] = {self, mask};
  struct op_layout layout;
  bool same_shape;
  DIT_RETURN_IF_NOT_OK(op_broadcast(inputs, 2, &layout, &same_shape, call->err));
  return op_prepare(call, OP_NEW, inputs, 2, self->dtype, &layout, same_shape, out);
}

static enum dit_status launch(struct dit_call *call, const struct dit_tensor_view *self, double p, bool train,
                              const struct dit_tensor_view *out, const struct dit_tensor_view *mask) {
  struct op_generator generator = {.handle = {0, 0}};
  struct diopiContext context;
  struct diopiTensor rooms[3];
  if (train) {
    DIT_RETURN_IF_NOT_OK(op_generator_init(&generator, call, NULL, (uint64_t)self->numel));
  }
  op_context_init(&context, call);
  DIT_RETURN_IF_NOT_OK(OP_DIOPI(call, &context, diopiDropout, op_handle(call, &rooms[0], out),
                                op_handle(call, &rooms[1], mask), op_handle(call, &rooms[2], self), p, train,
                                &generator.handle));
  return train ? op_generator_finish(&generator, call) : DIT_OK;
}

enum dit_status op_native_dropout(struct dit_call *call) {
  const struct dit_tensor_view *self = op_get_tensor(call, 0);
  const double p = call->args[1].tag == DIT_VALUE_DOUBLE ? call->args[1].v.d : (double)call->args[1].v.i;
  const bool train = call->args[2].tag == DIT_VALUE_NONE || call->args[2].v.i != 0;
  struct dit_tensor_view out, mask;
  if (!OP_HAS(call, diopiDropout) || op_check_input(self) != DIT_OK || !op_is_device(self) ||
      !op_is_floating(self->dtype) || self->numel == 0 || !(p >= 0 && p <= 1)) {
    return DIT_ERR_UNSUPPORTED;
  }
  DIT_RETURN_IF_NOT_OK(make_like(call, self, DIT_DTYPE_BOOL, &mask));
  DIT_RETURN_IF_NOT_OK(train ? make_product(call, self, &mask, &out) : make_like(call, self, self->dtype, &out));
  DIT_RETURN_IF_NOT_OK(launch(call, self, p, train, &out, &mask));
  call->rets[1].tag = DIT_VALUE_TENSOR;
  call->rets[1].v.tensor = mask;
  return op_return(call, 0, &out);
}

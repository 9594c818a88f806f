/// unique: the distinct elements of a tensor, or slices along a dimension.
///
/// _unique(self, sorted, return_inverse), _unique2(self, sorted, return_inverse, return_counts) and unique_dim(self,
/// dim, sorted, return_inverse, return_counts). inverse has self's shape (the length of `dim`) and says which value
/// each element has; counts how often each occurs; what is not wanted is an empty tensor. The library makes values and
/// counts, whose number depends on the data; both are sorted, as PyTorch's are on every device.
#include "invoke.h"
#include "network.h"
#include "table.h"

/// PyTorch works with `dim` in front and moves it back: the row-major values in the strides that this gives.
static enum dit_status restride(struct dit_call *call, int64_t dim, struct dit_tensor_view *values) {
  int64_t strides[DIT_MAX_DIMS], next = 1;
  struct dit_tensor_view out;
  if (dim == 0 || values->ndim < 2 || values->numel == 0) {
    return DIT_OK;
  }
  for (int i = values->ndim - 1; i >= 0; i--) {
    if (i != dim) {
      strides[i] = next;
      next *= values->sizes[i];
    }
  }
  strides[dim] = next;
  DIT_RETURN_IF_NOT_OK(call->services->new_tensor(call, values->ndim, values->sizes, strides, values->dtype, &out));
  DIT_RETURN_IF_NOT_OK(op_copy(call, &out, values));
  *values = out;
  return DIT_OK;
}

static enum dit_status finish(struct dit_call *call, struct diopiContext *context, diopiError_t code,
                              diopiTensorHandle_t values, diopiTensorHandle_t counts, int64_t dim,
                              const struct dit_tensor_view *inverse) {
  struct dit_tensor_view made, empty;
  const int64_t none = 0;
  const bool has_counts = code == diopiSuccess && counts && dit_diopi_context_owns(context, counts);
  if (has_counts && call->nrets > 2) {
    (void)op_return(call, 2, &counts->view);
  }
  DIT_RETURN_IF_NOT_OK(net_finish_made(call, context, DIT_DIOPI_diopiUnique, code, values, &made));
  DIT_RETURN_IF_NOT_OK(call->services->new_tensor(call, 1, &none, NULL, DIT_DTYPE_I64, &empty));
  if (call->nrets > 2 && !has_counts) {
    (void)op_return(call, 2, &empty);
  }
  (void)op_return(call, 1, inverse ? inverse : &empty);
  DIT_RETURN_IF_NOT_OK(restride(call, dim, &made));
  return op_return(call, 0, &made);
}

/// The arguments after `dim`, where there is one, from `first` on.
static enum dit_status run(struct dit_call *call, const int64_t *dim, int first) {
  struct dit_tensor_view *self = net_get(call, 0), inverse;
  struct diopiContext context;
  struct diopiTensor rooms[2];
  const bool wants_inverse = call->args[first + 1].v.i != 0;
  const bool wants_counts = first + 2 < call->nargs && call->args[first + 2].v.i != 0;
  NET_NEED(OP_HAS(call, diopiUnique) && self && self->numel > 0);
  if (wants_inverse) {
    DIT_RETURN_IF_NOT_OK(dim ? net_new(call, 1, self->sizes + *dim, 0, DIT_DTYPE_I64, &inverse)
                             : net_new(call, self->ndim, self->sizes, 0, DIT_DTYPE_I64, &inverse));
  }
  op_context_init(&context, call);
  if (DIT_UNLIKELY(call->observer)) {
    op_observe_before(call, DIT_DIOPI_diopiUnique);
  }
  diopiTensorHandle_t values = NULL, counts = NULL;
  const diopiError_t code =
      call->diopi->functions.diopiUnique(&context, &values, op_handle(call, &rooms[0], self), dim, true, wants_counts,
                                         op_handle(call, &rooms[1], wants_inverse ? &inverse : NULL), &counts);
  return finish(call, &context, code, values, wants_counts ? counts : NULL, dim ? *dim : 0,
                wants_inverse ? &inverse : NULL);
}

enum dit_status op_unique(struct dit_call *call) {
  return run(call, NULL, 1);
}

enum dit_status op_unique_dim(struct dit_call *call) {
  const struct dit_tensor_view *self = op_get_tensor(call, 0);
  int64_t dim = call->args[1].v.i;
  NET_NEED(self && self->ndim > 0 && net_wrap_dim(&dim, self->ndim));
  return run(call, &dim, 2);
}

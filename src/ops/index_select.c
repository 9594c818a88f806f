/// Indexing by one index tensor along one dimension, by a mask, and embedding.
///
/// embedding           out[i..., :] = weight[indices[i...], :]
/// index_select        out[.., i, ..] = self[.., index[i], ..]
/// gather              out[i][j] = self[index[i][j]][j] along dim 0, and so on
/// scatter, _add       self[index[i][j]][j] = src[i][j], or a number; with a reduction: +=, *=
/// index_fill          self[.., index[i], ..] = value
/// masked_fill         self where not mask, value where mask
/// masked_select       the elements of self where mask, in row-major order
/// nonzero             the positions of elements that are not 0, one per row
///
/// Results are row-major, but for index_fill out of place, which keeps self's strides. In-place forms write self. Bad
/// index values are the library's to refuse, before it writes.
#include "network.h"
#include "table.h"

enum dit_status op_embedding(struct dit_call *call) {
  struct dit_tensor_view *weight = net_get(call, 0), *indices = net_get(call, 1), out;
  int64_t sizes[DIT_MAX_DIMS];
  struct diopiContext context;
  struct diopiTensor rooms[3];
  NET_NEED(OP_HAS(call, diopiEmbedding) && weight && weight->ndim == 2 && net_is_index(indices) &&
           indices->ndim < DIT_MAX_DIMS);
  op_copy_dims(sizes, indices->sizes, indices->ndim);
  sizes[indices->ndim] = weight->sizes[1];
  DIT_RETURN_IF_NOT_OK(net_new(call, indices->ndim + 1, sizes, 0, weight->dtype, &out));
  op_context_init(&context, call);
  DIT_RETURN_IF_NOT_OK(OP_DIOPI(call, &context, diopiEmbedding, op_handle(call, &rooms[0], &out),
                                op_handle(call, &rooms[1], weight), op_handle(call, &rooms[2], indices),
                                call->args[2].v.i, call->args[3].v.i != 0, call->args[4].v.i != 0));
  return op_return(call, 0, &out);
}

enum dit_status op_embedding_backward(struct dit_call *call) {
  struct dit_tensor_view *grad = net_get(call, 0), *indices = net_get(call, 1), out;
  struct diopiContext context;
  struct diopiTensor rooms[3];
  NET_NEED(OP_HAS(call, diopiEmbeddingBackward) && grad && op_is_floating(grad->dtype) && net_is_index(indices) &&
           grad->ndim == indices->ndim + 1 && op_same_sizes(indices, grad->ndim - 1, grad->sizes));
  const int64_t sizes[2] = {call->args[2].v.i, grad->sizes[grad->ndim - 1]};
  NET_NEED(sizes[0] >= 0);
  DIT_RETURN_IF_NOT_OK(net_new(call, 2, sizes, 0, grad->dtype, &out));
  op_context_init(&context, call);
  DIT_RETURN_IF_NOT_OK(OP_DIOPI(call, &context, diopiEmbeddingBackward, op_handle(call, &rooms[0], &out),
                                op_handle(call, &rooms[1], grad), op_handle(call, &rooms[2], indices), sizes[0],
                                call->args[3].v.i, call->args[4].v.i != 0, false));
  return op_return(call, 0, &out);
}

enum dit_status op_embedding_renorm(struct dit_call *call) {
  struct dit_tensor_view *self = net_get(call, 0), *indices = net_get(call, 1);
  struct diopiContext context;
  struct diopiTensor rooms[2];
  NET_NEED(OP_HAS(call, diopiEmbeddingRenorm_) && self && self->ndim == 2 && op_is_floating(self->dtype) &&
           net_is_index(indices) && net_is_apart(self, indices));
  op_context_init(&context, call);
  DIT_RETURN_IF_NOT_OK(OP_DIOPI(call, &context, diopiEmbeddingRenorm_, op_handle(call, &rooms[0], self),
                                op_handle(call, &rooms[1], indices), net_get_double(call, 2), net_get_double(call, 3)));
  return op_return(call, 0, self);
}

enum dit_status op_index_select(struct dit_call *call) {
  struct dit_tensor_view *self = net_get(call, 0), *index = net_get(call, 2), *given, out;
  int64_t dim = call->args[1].v.i, sizes[DIT_MAX_DIMS];
  struct diopiContext context;
  struct diopiTensor rooms[3];
  NET_NEED(OP_HAS(call, diopiIndexSelect) && self && net_is_index(index) && index->ndim <= 1 && self->ndim > 0 &&
           net_wrap_dim(&dim, self->ndim) && net_get_given(call, 3, &given));
  op_copy_dims(sizes, self->sizes, self->ndim);
  sizes[dim] = index->numel;
  const struct dit_tensor_view *const inputs[2] = {self, index};
  DIT_RETURN_IF_NOT_OK(op_prepare_contiguous(call, given, inputs, 2, self->ndim, sizes, self->dtype, &out));
  op_context_init(&context, call);
  DIT_RETURN_IF_NOT_OK(OP_DIOPI(call, &context, diopiIndexSelect, op_handle(call, &rooms[0], &out),
                                op_handle(call, &rooms[1], self), dim, op_handle(call, &rooms[2], index)));
  return op_return(call, 0, &out);
}

/// index fits self along all dimensions but `dim` (and src along all).
static bool fits(const struct dit_tensor_view *index, const struct dit_tensor_view *self, int64_t dim) {
  if (index->ndim != self->ndim || self->ndim == 0) {
    return false;
  }
  for (int i = 0; i < self->ndim; i++) {
    if (i != dim && index->sizes[i] > self->sizes[i]) {
      return false;
    }
  }
  return true;
}

enum dit_status op_gather(struct dit_call *call) {
  struct dit_tensor_view *self = net_get(call, 0), *index = net_get(call, 2), *given, out;
  int64_t dim = call->args[1].v.i;
  struct diopiContext context;
  struct diopiTensor rooms[3];
  NET_NEED(OP_HAS(call, diopiGather) && self && index && index->dtype == DIT_DTYPE_I64 && index->numel > 0 &&
           net_wrap_dim(&dim, self->ndim) && fits(index, self, dim) && net_get_given(call, 4, &given));
  const struct dit_tensor_view *const inputs[2] = {self, index};
  DIT_RETURN_IF_NOT_OK(op_prepare_contiguous(call, given, inputs, 2, index->ndim, index->sizes, self->dtype, &out));
  op_context_init(&context, call);
  DIT_RETURN_IF_NOT_OK(OP_DIOPI(call, &context, diopiGather, op_handle(call, &rooms[0], &out),
                                op_handle(call, &rooms[1], self), dim, op_handle(call, &rooms[2], index)));
  return op_return(call, 0, &out);
}

/// What is written: self itself, or a new row-major tensor (with `keep`: of self's strides).
static enum dit_status prepare_copy(struct dit_call *call, struct dit_tensor_view *self, bool keep,
                                    const struct dit_tensor_view *const *inputs, int count,
                                    struct dit_tensor_view *out) {
  if (call->op->target == OP_NEW) {
    return keep ? net_new_like(call, self, self->dtype, out)
                : net_new(call, self->ndim, self->sizes, 0, self->dtype, out);
  }
  NET_NEED(self->flags & DIT_TENSOR_DENSE || dit_tensor_get_internal_overlap(self) != DIT_OVERLAP_YES);
  for (int i = 0; i < count; i++) {
    NET_NEED(net_is_apart(self, inputs[i]));
  }
  *out = *self;
  return DIT_OK;
}

/// The name of the reduction as DIOPI spells it; false for one that it does not have.
static bool read_reduce(const struct dit_call *call, int index, const char **out) {
  *out = "";
  if (index < 0) {
    *out = "add";  // scatter_add
    return true;
  }
  if (index >= call->nargs || call->args[index].tag != DIT_VALUE_STRING) {
    return index >= call->nargs;
  }
  *out = call->args[index].v.string;
  return strcmp(*out, "add") == 0 || strcmp(*out, "multiply") == 0;
}

static enum dit_status scatter(struct dit_call *call, int reduce_index) {
  struct dit_tensor_view *self = net_get(call, 0), *index = net_get(call, 2), *src = net_get(call, 3), out;
  int64_t dim = call->args[1].v.i;
  const char *reduce;
  struct diopiContext context;
  struct diopiTensor rooms[4];
  NET_NEED(OP_HAS(call, diopiScatter) && OP_HAS(call, diopiScatterInp) && self && index && src &&
           index->dtype == DIT_DTYPE_I64 && index->numel > 0 && src->dtype == self->dtype &&
           net_wrap_dim(&dim, self->ndim) && fits(index, self, dim) && fits(index, src, -1) &&
           read_reduce(call, reduce_index, &reduce));
  const struct dit_tensor_view *const inputs[2] = {index, src};
  DIT_RETURN_IF_NOT_OK(prepare_copy(call, self, false, inputs, 2, &out));
  op_context_init(&context, call);
  diopiTensorHandle_t o = op_handle(call, &rooms[0], &out), s = op_handle(call, &rooms[1], src),
                      i = op_handle(call, &rooms[2], index);
  DIT_RETURN_IF_NOT_OK(call->op->target == OP_NEW ? OP_DIOPI(call, &context, diopiScatter, o,
                                                             op_handle(call, &rooms[3], self), dim, s, i, reduce)
                                                  : OP_DIOPI(call, &context, diopiScatterInp, o, dim, s, i, reduce));
  return op_return(call, 0, &out);
}

enum dit_status op_scatter(struct dit_call *call) {
  return scatter(call, 4);
}
enum dit_status op_scatter_add(struct dit_call *call) {
  return scatter(call, -1);
}

enum dit_status op_scatter_value(struct dit_call *call) {
  struct dit_tensor_view *self = net_get(call, 0), *index = net_get(call, 2), out;
  int64_t dim = call->args[1].v.i;
  struct dit_scalar value;
  const char *reduce;
  struct diopiContext context;
  struct diopiTensor rooms[3];
  diopiScalar_t room;
  NET_NEED(OP_HAS(call, diopiScatterScalar) && OP_HAS(call, diopiScatterInpScalar) && self && index &&
           index->dtype == DIT_DTYPE_I64 && index->numel > 0 && net_wrap_dim(&dim, self->ndim) &&
           fits(index, self, dim) && op_read_scalar(&call->args[3], &value) == DIT_OK && net_fits(self->dtype, value) &&
           read_reduce(call, 4, &reduce));
  const struct dit_tensor_view *const inputs[1] = {index};
  DIT_RETURN_IF_NOT_OK(prepare_copy(call, self, false, inputs, 1, &out));
  op_context_init(&context, call);
  diopiTensorHandle_t o = op_handle(call, &rooms[0], &out), i = op_handle(call, &rooms[1], index);
  const diopiScalar_t *v = op_scalar(&room, value);
  DIT_RETURN_IF_NOT_OK(
      call->op->target == OP_NEW
          ? OP_DIOPI(call, &context, diopiScatterScalar, o, op_handle(call, &rooms[2], self), dim, v, i, reduce)
          : OP_DIOPI(call, &context, diopiScatterInpScalar, o, dim, v, i, reduce));
  return op_return(call, 0, &out);
}

/// A value to fill with: a number, or a 0-d tensor on the device.
struct filler {
  struct dit_tensor_view *tensor;
  diopiScalar_t room;
  const diopiScalar_t *scalar;
};

/// PyTorch refuses values that the dtype cannot hold in kind; the CPU words that.
static bool read_filler(struct dit_call *call, int index, const struct dit_tensor_view *self, struct filler *filler) {
  struct dit_scalar value;
  filler->tensor = net_get(call, index);
  filler->scalar = NULL;
  if (call->args[index].tag == DIT_VALUE_TENSOR) {
    return filler->tensor && filler->tensor->ndim == 0 && filler->tensor->dtype == self->dtype &&
           net_is_apart(filler->tensor, self);
  }
  if (op_read_scalar(&call->args[index], &value) != DIT_OK || !net_fits(self->dtype, value)) {
    return false;
  }
  filler->scalar = op_scalar(&filler->room, value);
  return true;
}

enum dit_status op_index_fill(struct dit_call *call) {
  struct dit_tensor_view *self = net_get(call, 0), *index = net_get(call, 2), out;
  int64_t dim = call->args[1].v.i;
  struct filler filler;
  struct diopiContext context;
  struct diopiTensor rooms[4];
  NET_NEED(OP_HAS(call, diopiIndexFill) && OP_HAS(call, diopiIndexFillScalar) && OP_HAS(call, diopiIndexFillInp) &&
           OP_HAS(call, diopiIndexFillInpScalar) && self && index && index->dtype == DIT_DTYPE_I64 &&
           index->ndim <= 1 && self->ndim > 0 && net_wrap_dim(&dim, self->ndim) && read_filler(call, 3, self, &filler));
  const struct dit_tensor_view *const inputs[1] = {index};
  DIT_RETURN_IF_NOT_OK(prepare_copy(call, self, true, inputs, 1, &out));
  op_context_init(&context, call);
  diopiTensorHandle_t o = op_handle(call, &rooms[0], &out), i = op_handle(call, &rooms[1], index),
                      x = op_handle(call, &rooms[2], self), v = op_handle(call, &rooms[3], filler.tensor);
  const bool fresh = call->op->target == OP_NEW;
  DIT_RETURN_IF_NOT_OK(v       ? fresh ? OP_DIOPI(call, &context, diopiIndexFill, o, x, dim, i, v)
                                       : OP_DIOPI(call, &context, diopiIndexFillInp, o, dim, i, v)
                             : fresh ? OP_DIOPI(call, &context, diopiIndexFillScalar, o, x, dim, i, filler.scalar)
                               : OP_DIOPI(call, &context, diopiIndexFillInpScalar, o, dim, i, filler.scalar));
  return op_return(call, 0, &out);
}

/// The mask broadcasts to self; where self would have to grow, PyTorch composes.
enum dit_status op_masked_fill(struct dit_call *call) {
  struct dit_tensor_view *self = net_get(call, 0), *mask = net_get(call, 1), out;
  struct op_layout layout;
  struct filler filler;
  struct diopiContext context;
  struct diopiTensor rooms[4];
  bool same_shape;
  NET_NEED(OP_HAS(call, diopiMaskedFill) && OP_HAS(call, diopiMaskedFillScalar) && OP_HAS(call, diopiMaskedFillInp) &&
           OP_HAS(call, diopiMaskedFillInpScalar) && self && mask && mask->dtype == DIT_DTYPE_BOOL &&
           read_filler(call, 2, self, &filler));
  const struct dit_tensor_view *inputs[2] = {self, mask};
  NET_NEED(op_broadcast(inputs, 2, &layout, &same_shape, NULL) == DIT_OK &&
           op_same_sizes(self, layout.ndim, layout.sizes));
  DIT_RETURN_IF_NOT_OK(prepare_copy(call, self, false, inputs + 1, 1, &out));
  op_context_init(&context, call);
  diopiTensorHandle_t o = op_handle(call, &rooms[0], &out), m = op_handle(call, &rooms[1], mask),
                      x = op_handle(call, &rooms[2], self), v = op_handle(call, &rooms[3], filler.tensor);
  const bool fresh = call->op->target == OP_NEW;
  DIT_RETURN_IF_NOT_OK(v       ? fresh ? OP_DIOPI(call, &context, diopiMaskedFill, o, x, m, v)
                                       : OP_DIOPI(call, &context, diopiMaskedFillInp, o, m, v)
                             : fresh ? OP_DIOPI(call, &context, diopiMaskedFillScalar, o, x, m, filler.scalar)
                               : OP_DIOPI(call, &context, diopiMaskedFillInpScalar, o, m, filler.scalar));
  return op_return(call, 0, &out);
}

enum dit_status op_masked_select(struct dit_call *call) {
  struct dit_tensor_view *self = net_get(call, 0), *mask = net_get(call, 1), out;
  struct diopiContext context;
  struct diopiTensor rooms[2];
  struct op_layout layout;
  bool same_shape;
  NET_NEED(OP_HAS(call, diopiMaskedSelect) && self && mask && mask->dtype == DIT_DTYPE_BOOL);
  const struct dit_tensor_view *inputs[2] = {self, mask};
  NET_NEED(op_broadcast(inputs, 2, &layout, &same_shape, NULL) == DIT_OK);
  op_context_init(&context, call);
  if (DIT_UNLIKELY(call->observer)) {
    op_observe_before(call, DIT_DIOPI_diopiMaskedSelect);
  }
  diopiTensorHandle_t made = NULL;
  const diopiError_t code = call->diopi->functions.diopiMaskedSelect(&context, &made, op_handle(call, &rooms[0], self),
                                                                     op_handle(call, &rooms[1], mask));
  DIT_RETURN_IF_NOT_OK(net_finish_made(call, &context, DIT_DIOPI_diopiMaskedSelect, code, made, &out));
  return op_return(call, 0, &out);
}

/// PyTorch's result is (n, ndim) with the strides of a transposed (ndim, n) tensor.
enum dit_status op_nonzero(struct dit_call *call) {
  struct dit_tensor_view *self = net_get(call, 0), made_view, out;
  struct diopiContext context;
  struct diopiTensor rooms[1];
  NET_NEED(OP_HAS(call, diopiNonzero) && OP_HAS_KERNEL(call, copy) && self);
  op_context_init(&context, call);
  if (DIT_UNLIKELY(call->observer)) {
    op_observe_before(call, DIT_DIOPI_diopiNonzero);
  }
  diopiTensorHandle_t made = NULL;
  const diopiError_t code = call->diopi->functions.diopiNonzero(&context, &made, op_handle(call, &rooms[0], self));
  DIT_RETURN_IF_NOT_OK(net_finish_made(call, &context, DIT_DIOPI_diopiNonzero, code, made, &made_view));
  if (made_view.ndim != 2) {
    return op_return(call, 0, &made_view);
  }
  const int64_t strides[2] = {1, made_view.sizes[0]};
  DIT_RETURN_IF_NOT_OK(call->services->new_tensor(call, 2, made_view.sizes, strides, DIT_DTYPE_I64, &out));
  DIT_RETURN_IF_NOT_OK(call->kernels->copy(call->stream, &out, &made_view, call->err));
  return op_return(call, 0, &out);
}

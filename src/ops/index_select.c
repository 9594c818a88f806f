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
/// Elements of every dtype move; only scatter_add and scatter with a reduction compute, in the plain and complex
/// dtypes. 0-d tensors count as 1-d. Results are row-major, but for index_fill out of place, which keeps self's
/// strides. In-place forms write self. Bad index values are the library's to refuse, before it writes; PyTorch's CPU
/// kernel words the error.
#include "invoke.h"
#include "network.h"
#include "table.h"

enum dit_status op_embedding(struct dit_call *call) {
  struct dit_tensor_view *weight = net_get_moved(call, 0), *indices = net_get(call, 1), out;
  int64_t sizes[DIT_MAX_DIMS];
  struct diopiContext context;
  struct diopiTensor rooms[3];
  NET_NEED(OP_HAS(call, diopiEmbedding) && weight && weight->ndim == 2 && net_is_index(indices) &&
           indices->ndim < DIT_MAX_DIMS);
  op_copy_dims(sizes, indices->sizes, indices->ndim);
  sizes[indices->ndim] = weight->sizes[1];
  DIT_RETURN_IF_NOT_OK(net_new(call, indices->ndim + 1, sizes, 0, weight->dtype, &out));
  op_context_init(&context, call);
  DIT_RETURN_IF_NOT_OK(
      net_check_range(call, OP_DIOPI(call, &context, diopiEmbedding, op_handle(call, &rooms[0], &out),
                                     op_handle(call, &rooms[1], weight), op_handle(call, &rooms[2], indices),
                                     call->args[2].v.i, call->args[3].v.i != 0, call->args[4].v.i != 0)));
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
  struct dit_tensor_view *self = net_get_moved(call, 0), *index = net_get(call, 2), *given, out;
  int64_t dim = call->args[1].v.i, sizes[DIT_MAX_DIMS];
  struct net_lifted lifts[2];
  struct diopiContext context;
  struct diopiTensor rooms[3];
  NET_NEED(OP_HAS(call, diopiIndexSelect) && self && net_is_index(index) && index->ndim <= 1 &&
           (self->ndim > 0 || index->numel == 1) && net_wrap_dim(&dim, self->ndim) &&
           net_get_given_moved(call, 3, &given));
  op_copy_dims(sizes, self->sizes, self->ndim);
  sizes[dim] = index->numel;
  const struct dit_tensor_view *const inputs[2] = {self, index};
  DIT_RETURN_IF_NOT_OK(op_prepare_contiguous(call, given, inputs, 2, self->ndim, sizes, self->dtype, &out));
  op_context_init(&context, call);
  DIT_RETURN_IF_NOT_OK(net_check_range(
      call, OP_DIOPI(call, &context, diopiIndexSelect, op_handle(call, &rooms[0], net_lift(&out, &lifts[0])),
                     op_handle(call, &rooms[1], net_lift(self, &lifts[1])), dim, op_handle(call, &rooms[2], index))));
  return op_return(call, 0, &out);
}

/// index fits self along all dimensions but `dim` (and src along all); 0-d counts as 1-d.
static bool fits(const struct dit_tensor_view *index, const struct dit_tensor_view *self, int64_t dim) {
  static const int64_t one = 1;
  const int ndim = self->ndim > 0 ? self->ndim : 1;
  const int64_t *sizes = self->ndim > 0 ? self->sizes : &one, *index_sizes = index->ndim > 0 ? index->sizes : &one;
  if (ndim != (index->ndim > 0 ? index->ndim : 1)) {
    return false;
  }
  for (int i = 0; i < ndim; i++) {
    if (i != dim && index_sizes[i] > sizes[i]) {
      return false;
    }
  }
  return true;
}

enum dit_status op_gather(struct dit_call *call) {
  struct dit_tensor_view *self = net_get_moved(call, 0), *index = net_get(call, 2), *given, out;
  int64_t dim = call->args[1].v.i;
  struct net_lifted lifts[3];
  struct diopiContext context;
  struct diopiTensor rooms[3];
  NET_NEED(OP_HAS(call, diopiGather) && self && index && net_wrap_dim(&dim, self->ndim) &&
           (index->numel == 0 || (net_is_index(index) && fits(index, self, dim))) &&
           net_get_given_moved(call, 4, &given));
  const struct dit_tensor_view *const inputs[2] = {self, index};
  DIT_RETURN_IF_NOT_OK(op_prepare_contiguous(call, given, inputs, 2, index->ndim, index->sizes, self->dtype, &out));
  if (index->numel == 0) {
    return op_return(call, 0, &out);
  }
  op_context_init(&context, call);
  DIT_RETURN_IF_NOT_OK(
      net_check_range(call, OP_DIOPI(call, &context, diopiGather, op_handle(call, &rooms[0], net_lift(&out, &lifts[0])),
                                     op_handle(call, &rooms[1], net_lift(self, &lifts[1])), dim,
                                     op_handle(call, &rooms[2], net_lift(index, &lifts[2])))));
  return op_return(call, 0, &out);
}

/// What is written: self itself, an out= tensor, or a new row-major tensor (with `keep`: of self's strides).
static enum dit_status prepare_copy(struct dit_call *call, struct dit_tensor_view *self, bool keep,
                                    const struct dit_tensor_view *const *inputs, int count,
                                    struct dit_tensor_view *out) {
  if (call->op->target == OP_NEW) {
    return keep ? net_new_like(call, self, self->dtype, out)
                : net_new(call, self->ndim, self->sizes, 0, self->dtype, out);
  }
  for (int i = 0; i < count; i++) {
    NET_NEED(net_is_apart(self, inputs[i]));
  }
  if (call->op->target == OP_OUT) {
    struct dit_tensor_view *given = net_get_moved(call, call->nargs - 1);
    const struct dit_tensor_view *const source[1] = {self};
    NET_NEED(given);
    for (int i = 0; i < count; i++) {
      NET_NEED(net_is_apart(given, inputs[i]));
    }
    return op_prepare_contiguous(call, given, source, 1, self->ndim, self->sizes, self->dtype, out);
  }
  NET_NEED(net_is_writable(self));
  *out = *self;
  return DIT_OK;
}

/// The name of the reduction as DIOPI spells it; false for one that it does not have, or does not compute in `dtype`.
static bool read_reduce(const struct dit_call *call, int index, int dtype, const char **out) {
  const int end = call->nargs - (call->op->target == OP_OUT);
  *out = index < 0 ? "add" : "";  // scatter_add, scatter
  if (index >= 0 && index < end) {
    *out = call->args[index].tag == DIT_VALUE_STRING ? call->args[index].v.string : "?";
  }
  return **out == '\0' || (op_is_element(dtype) && (strcmp(*out, "add") == 0 || strcmp(*out, "multiply") == 0));
}

/// A scatter without indices leaves self as it is.
static enum dit_status copy_self(struct dit_call *call, const struct dit_tensor_view *self,
                                 const struct dit_tensor_view *out) {
  if (call->op->target != OP_INPLACE) {
    DIT_RETURN_IF_NOT_OK(op_copy(call, out, self));
  }
  return op_return(call, 0, out);
}

static enum dit_status scatter(struct dit_call *call, int reduce_index) {
  struct dit_tensor_view *self = net_get_moved(call, 0), *index = net_get(call, 2), *src = net_get_moved(call, 3), out;
  int64_t dim = call->args[1].v.i;
  const char *reduce;
  struct net_lifted lifts[4];
  struct diopiContext context;
  struct diopiTensor rooms[4];
  NET_NEED(OP_HAS(call, diopiScatter) && OP_HAS(call, diopiScatterInp) && self && index && src &&
           src->dtype == self->dtype && net_wrap_dim(&dim, self->ndim) &&
           (index->numel == 0 || (net_is_index(index) && fits(index, self, dim) && fits(index, src, -1))) &&
           read_reduce(call, reduce_index, self->dtype, &reduce));
  const struct dit_tensor_view *const inputs[2] = {index, src};
  DIT_RETURN_IF_NOT_OK(prepare_copy(call, self, false, inputs, 2, &out));
  if (index->numel == 0) {
    return copy_self(call, self, &out);
  }
  op_context_init(&context, call);
  diopiTensorHandle_t o = op_handle(call, &rooms[0], net_lift(&out, &lifts[0])),
                      s = op_handle(call, &rooms[1], net_lift(src, &lifts[1])),
                      i = op_handle(call, &rooms[2], net_lift(index, &lifts[2])),
                      x = op_handle(call, &rooms[3], net_lift(self, &lifts[3]));
  DIT_RETURN_IF_NOT_OK(net_check_range(call, call->op->target != OP_INPLACE
                                                 ? OP_DIOPI(call, &context, diopiScatter, o, x, dim, s, i, reduce)
                                                 : OP_DIOPI(call, &context, diopiScatterInp, o, dim, s, i, reduce)));
  return op_return(call, 0, &out);
}

enum dit_status op_scatter(struct dit_call *call) {
  return scatter(call, 4);
}
enum dit_status op_scatter_add(struct dit_call *call) {
  return scatter(call, -1);
}

enum dit_status op_scatter_value(struct dit_call *call) {
  struct dit_tensor_view *self = net_get_moved(call, 0), *index = net_get(call, 2), out;
  int64_t dim = call->args[1].v.i;
  struct dit_scalar value;
  const char *reduce;
  struct net_lifted lifts[3];
  struct diopiContext context;
  struct diopiTensor rooms[3];
  diopiScalar_t room;
  NET_NEED(OP_HAS(call, diopiScatterScalar) && OP_HAS(call, diopiScatterInpScalar) && self && index &&
           net_wrap_dim(&dim, self->ndim) && (index->numel == 0 || (net_is_index(index) && fits(index, self, dim))) &&
           op_read_scalar(&call->args[3], &value) == DIT_OK && value.kind != DIT_SCALAR_COMPLEX &&
           net_fits(self->dtype, value) && read_reduce(call, 4, self->dtype, &reduce));
  const struct dit_tensor_view *const inputs[1] = {index};
  DIT_RETURN_IF_NOT_OK(prepare_copy(call, self, false, inputs, 1, &out));
  if (index->numel == 0) {
    return copy_self(call, self, &out);
  }
  op_context_init(&context, call);
  diopiTensorHandle_t o = op_handle(call, &rooms[0], net_lift(&out, &lifts[0])),
                      i = op_handle(call, &rooms[1], net_lift(index, &lifts[1])),
                      x = op_handle(call, &rooms[2], net_lift(self, &lifts[2]));
  const diopiScalar_t *v = op_scalar(&room, value);
  DIT_RETURN_IF_NOT_OK(net_check_range(
      call, call->op->target != OP_INPLACE ? OP_DIOPI(call, &context, diopiScatterScalar, o, x, dim, v, i, reduce)
                                           : OP_DIOPI(call, &context, diopiScatterInpScalar, o, dim, v, i, reduce)));
  return op_return(call, 0, &out);
}

/// A value to fill with: a number, or a 0-d tensor on the device (also for a complex number, which DIOPI's scalars do
/// not hold).
struct filler {
  struct dit_tensor_view *tensor, made;
  diopiScalar_t room;
  const diopiScalar_t *scalar;
};

/// PyTorch refuses values that the dtype cannot hold in kind; the CPU words that.
static bool read_filler(struct dit_call *call, int index, const struct dit_tensor_view *self, struct filler *filler) {
  struct dit_scalar value;
  filler->tensor = net_get_moved(call, index);
  filler->scalar = NULL;
  if (call->args[index].tag == DIT_VALUE_TENSOR) {
    return filler->tensor && filler->tensor->ndim == 0 && filler->tensor->dtype == self->dtype &&
           net_is_apart(filler->tensor, self);
  }
  if (op_read_scalar(&call->args[index], &value) != DIT_OK) {
    return false;
  }
  if (self->dtype == DIT_DTYPE_BOOL && value.kind == DIT_SCALAR_INT) {
    value.v.i = value.v.i != 0;
  }
  if (!net_fits(self->dtype, value)) {
    return false;
  }
  if (value.kind == DIT_SCALAR_COMPLEX) {
    filler->tensor = &filler->made;
    return call->services->new_tensor(call, 0, NULL, NULL, self->dtype, &filler->made) == DIT_OK &&
           op_fill(call, &filler->made, value) == DIT_OK;
  }
  filler->scalar = op_scalar(&filler->room, value);
  return true;
}

enum dit_status op_index_fill(struct dit_call *call) {
  struct dit_tensor_view *self = net_get_moved(call, 0), *index = net_get(call, 2), out;
  int64_t dim = call->args[1].v.i;
  struct filler filler;
  struct net_lifted lifts[2];
  struct diopiContext context;
  struct diopiTensor rooms[4];
  NET_NEED(OP_HAS(call, diopiIndexFill) && OP_HAS(call, diopiIndexFillScalar) && OP_HAS(call, diopiIndexFillInp) &&
           OP_HAS(call, diopiIndexFillInpScalar) && self && index && index->dtype == DIT_DTYPE_I64 &&
           index->ndim <= 1 && net_wrap_dim(&dim, self->ndim) && read_filler(call, 3, self, &filler));
  const struct dit_tensor_view *const inputs[1] = {index};
  DIT_RETURN_IF_NOT_OK(prepare_copy(call, self, true, inputs, 1, &out));
  op_context_init(&context, call);
  diopiTensorHandle_t o = op_handle(call, &rooms[0], net_lift(&out, &lifts[0])), i = op_handle(call, &rooms[1], index),
                      x = op_handle(call, &rooms[2], net_lift(self, &lifts[1])),
                      v = op_handle(call, &rooms[3], filler.tensor);
  const bool fresh = call->op->target == OP_NEW;
  DIT_RETURN_IF_NOT_OK(
      net_check_range(call, v       ? fresh ? OP_DIOPI(call, &context, diopiIndexFill, o, x, dim, i, v)
                                            : OP_DIOPI(call, &context, diopiIndexFillInp, o, dim, i, v)
                                  : fresh ? OP_DIOPI(call, &context, diopiIndexFillScalar, o, x, dim, i, filler.scalar)
                                    : OP_DIOPI(call, &context, diopiIndexFillInpScalar, o, dim, i, filler.scalar)));
  return op_return(call, 0, &out);
}

/// The mask broadcasts to self; where self would have to grow, PyTorch composes.
enum dit_status op_masked_fill(struct dit_call *call) {
  struct dit_tensor_view *self = net_get_moved(call, 0), *mask = net_get(call, 1), out;
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

/// A result that the library made, returned as it is or copied into an out= tensor; `transposed`: a new one gets the
/// strides of a transposed matrix.
static enum dit_status return_made(struct dit_call *call, const struct dit_tensor_view *made, bool transposed,
                                   struct dit_tensor_view *given, const struct dit_tensor_view *const *inputs,
                                   int count) {
  struct dit_tensor_view out;
  if (!given && !(transposed && made->ndim == 2)) {
    return op_return(call, 0, made);
  }
  const int64_t strides[2] = {1, made->ndim == 2 ? made->sizes[0] : 1};
  if (given) {
    // PyTorch gives a tensor that it resizes the same strides, which cannot be asked for here
    NET_NEED(!transposed || made->ndim != 2 || op_same_sizes(given, 2, made->sizes));
    DIT_RETURN_IF_NOT_OK(op_prepare_contiguous(call, given, inputs, count, made->ndim, made->sizes, made->dtype, &out));
  } else {
    DIT_RETURN_IF_NOT_OK(call->services->new_tensor(call, 2, made->sizes, strides, made->dtype, &out));
  }
  if (made->numel > 0) {
    DIT_RETURN_IF_NOT_OK(op_copy(call, &out, made));
  }
  return op_return(call, 0, &out);
}

enum dit_status op_masked_select(struct dit_call *call) {
  struct dit_tensor_view *self = net_get_moved(call, 0), *mask = net_get(call, 1), *given, made_view;
  struct diopiContext context;
  struct diopiTensor rooms[2];
  struct op_layout layout;
  bool same_shape;
  NET_NEED(OP_HAS(call, diopiMaskedSelect) && self && mask && mask->dtype == DIT_DTYPE_BOOL &&
           net_get_given_moved(call, 2, &given) && (!given || given->dtype == self->dtype));
  const struct dit_tensor_view *inputs[2] = {self, mask};
  NET_NEED(op_broadcast(inputs, 2, &layout, &same_shape, NULL) == DIT_OK);
  op_context_init(&context, call);
  if (DIT_UNLIKELY(call->observer)) {
    op_observe_before(call, DIT_DIOPI_diopiMaskedSelect);
  }
  diopiTensorHandle_t made = NULL;
  const diopiError_t code = call->diopi->functions.diopiMaskedSelect(&context, &made, op_handle(call, &rooms[0], self),
                                                                     op_handle(call, &rooms[1], mask));
  DIT_RETURN_IF_NOT_OK(net_finish_made(call, &context, DIT_DIOPI_diopiMaskedSelect, code, made, &made_view));
  return return_made(call, &made_view, false, given, inputs, 2);
}

/// PyTorch's result is (n, ndim) with the strides of a transposed (ndim, n) tensor.
enum dit_status op_nonzero(struct dit_call *call) {
  struct dit_tensor_view *self = net_get_moved(call, 0), *given, made_view;
  struct diopiContext context;
  struct diopiTensor rooms[1];
  NET_NEED(OP_HAS(call, diopiNonzero) && self && net_get_given(call, 1, &given) &&
           (!given || given->dtype == DIT_DTYPE_I64));
  const struct dit_tensor_view *const inputs[1] = {self};
  op_context_init(&context, call);
  if (DIT_UNLIKELY(call->observer)) {
    op_observe_before(call, DIT_DIOPI_diopiNonzero);
  }
  diopiTensorHandle_t made = NULL;
  const diopiError_t code = call->diopi->functions.diopiNonzero(&context, &made, op_handle(call, &rooms[0], self));
  DIT_RETURN_IF_NOT_OK(net_finish_made(call, &context, DIT_DIOPI_diopiNonzero, code, made, &made_view));
  return return_made(call, &made_view, true, given, inputs, 1);
}

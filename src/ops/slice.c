/// Parts of a tensor: copies of views, tensors with a part put in, and the gradients of select and slice.
///
///   select_copy, slice_copy, transpose_copy, permute_copy, expand_copy, unfold_copy     the view, row-major
///   select_backward, slice_backward       zeros of the given sizes with grad at its place, row-major
///   select_scatter, slice_scatter         self with src at its place; dense like self
///
/// Elements of every dtype move. What is out of range, or src of another shape or dtype, is left to PyTorch's own
/// composition, which words the error.
#include "network.h"
#include "table.h"

/// The bounds of a slice along a dimension of `size`, as Python has them; false: not a slice.
struct bounds {
  int64_t start, end, step, count;
};
static bool read_bounds(const struct dit_call *call, int first, int64_t size, struct bounds *out) {
  const struct dit_value *start = &call->args[first], *end = start + 1, *step = start + 2;
  out->start = start->tag == DIT_VALUE_NONE ? 0 : start->v.i;
  out->end = end->tag == DIT_VALUE_NONE ? size : end->v.i;
  out->step = step->v.i;
  if (out->step <= 0) {
    return false;
  }
  out->start += out->start < 0 ? size : 0;
  out->end += out->end < 0 ? size : 0;
  out->start = out->start < 0 ? 0 : out->start > size ? size : out->start;
  out->end = out->end < out->start ? out->start : out->end > size ? size : out->end;
  out->count = (out->end - out->start) / out->step + ((out->end - out->start) % out->step != 0);
  return true;
}

static bool read_index(const struct dit_call *call, int argument, int64_t size, int64_t *index) {
  *index = call->args[argument].v.i;
  return *index >= -size && *index < size;
}

/// `part` is `sizes` with `count` at `dim`, or without `dim` where count is negative.
static bool is_part(const struct dit_tensor_view *part, int ndim, const int64_t *sizes, int64_t dim, int64_t count) {
  int64_t expected[DIT_MAX_DIMS];
  int next = 0;
  for (int i = 0; i < ndim; i++) {
    if (i != dim || count >= 0) {
      expected[next++] = i == dim ? count : sizes[i];
    }
  }
  return part->ndim == next && op_same_sizes(part, next, expected);
}

/// Ends an operator of one output and one input: f(context, out, in, ...).
#define MOVE(call, function, in, ...)                                                         \
  do {                                                                                        \
    struct diopiContext context;                                                              \
    struct diopiTensor rooms[2];                                                              \
    op_context_init(&context, call);                                                          \
    DIT_RETURN_IF_NOT_OK(OP_DIOPI(call, &context, function, op_handle(call, &rooms[0], &out), \
                                  op_handle(call, &rooms[1], in), __VA_ARGS__));              \
    return op_return(call, 0, &out);                                                          \
  } while (0)

enum dit_status op_select_copy(struct dit_call *call) {
  struct dit_tensor_view *self = net_get_moved(call, 0), out;
  int64_t dim = call->args[1].v.i, index, sizes[DIT_MAX_DIMS];
  NET_NEED(OP_HAS(call, diopiSelect) && self && self->ndim > 0 && net_wrap_dim(&dim, self->ndim) &&
           read_index(call, 2, self->sizes[dim], &index));
  for (int i = 0, next = 0; i < self->ndim; i++) {
    if (i != dim) {
      sizes[next++] = self->sizes[i];
    }
  }
  DIT_RETURN_IF_NOT_OK(net_new(call, self->ndim - 1, sizes, 0, self->dtype, &out));
  MOVE(call, diopiSelect, self, dim, index);
}

enum dit_status op_slice_copy(struct dit_call *call) {
  struct dit_tensor_view *self = net_get_moved(call, 0), out;
  int64_t dim = call->args[1].v.i, sizes[DIT_MAX_DIMS];
  struct bounds bounds;
  NET_NEED(OP_HAS(call, diopiSlice) && self && self->ndim > 0 && net_wrap_dim(&dim, self->ndim) &&
           read_bounds(call, 2, self->sizes[dim], &bounds));
  op_copy_dims(sizes, self->sizes, self->ndim);
  sizes[dim] = bounds.count;
  DIT_RETURN_IF_NOT_OK(net_new(call, self->ndim, sizes, 0, self->dtype, &out));
  MOVE(call, diopiSlice, self, dim, bounds.start, bounds.end, bounds.step);
}

enum dit_status op_transpose_copy(struct dit_call *call) {
  struct dit_tensor_view *self = net_get_moved(call, 0), out;
  int64_t dims[2] = {call->args[1].v.i, call->args[2].v.i}, sizes[DIT_MAX_DIMS];
  NET_NEED(OP_HAS(call, diopiTranspose) && self && self->ndim > 0 && net_wrap_dim(&dims[0], self->ndim) &&
           net_wrap_dim(&dims[1], self->ndim));
  op_copy_dims(sizes, self->sizes, self->ndim);
  sizes[dims[0]] = self->sizes[dims[1]];
  sizes[dims[1]] = self->sizes[dims[0]];
  DIT_RETURN_IF_NOT_OK(net_new(call, self->ndim, sizes, 0, self->dtype, &out));
  MOVE(call, diopiTranspose, self, dims[0], dims[1]);
}

enum dit_status op_permute_copy(struct dit_call *call) {
  struct dit_tensor_view *self = net_get_moved(call, 0), out;
  const diopiSize_t dims = net_get_sizes(call, 1);
  int64_t sizes[DIT_MAX_DIMS], order[DIT_MAX_DIMS];
  uint64_t seen = 0;
  NET_NEED(OP_HAS(call, diopiPermute) && self && self->ndim > 0 && dims.len == self->ndim);
  for (int i = 0; i < self->ndim; i++) {
    order[i] = dims.data[i];
    NET_NEED(net_wrap_dim(&order[i], self->ndim) && !(seen >> order[i] & 1));
    seen |= UINT64_C(1) << order[i];
    sizes[i] = self->sizes[order[i]];
  }
  const diopiSize_t wrapped = {order, self->ndim};
  DIT_RETURN_IF_NOT_OK(net_new(call, self->ndim, sizes, 0, self->dtype, &out));
  MOVE(call, diopiPermute, self, wrapped);
}

enum dit_status op_expand_copy(struct dit_call *call) {
  struct dit_tensor_view *self = net_get_moved(call, 0), out;
  const diopiSize_t wanted = net_get_sizes(call, 1);
  int64_t sizes[DIT_MAX_DIMS];
  struct diopiContext context;
  struct diopiTensor rooms[2];
  NET_NEED(OP_HAS(call, diopiExpand) && self && wanted.len >= self->ndim && wanted.len <= DIT_MAX_DIMS);
  for (int64_t i = 0; i < wanted.len; i++) {
    const int64_t from = i - (wanted.len - self->ndim), own = from < 0 ? 1 : self->sizes[from];
    sizes[i] = wanted.data[i] == -1 && from >= 0 ? own : wanted.data[i];
    NET_NEED(sizes[i] >= 0 && (own == sizes[i] || own == 1));
  }
  DIT_RETURN_IF_NOT_OK(net_new(call, (int)wanted.len, sizes, 0, self->dtype, &out));
  op_context_init(&context, call);
  DIT_RETURN_IF_NOT_OK(
      OP_DIOPI(call, &context, diopiExpand, op_handle(call, &rooms[0], &out), op_handle(call, &rooms[1], self)));
  return op_return(call, 0, &out);
}

enum dit_status op_unfold_copy(struct dit_call *call) {
  struct dit_tensor_view *self = net_get_moved(call, 0), out;
  int64_t dim = call->args[1].v.i, sizes[DIT_MAX_DIMS];
  const int64_t size = call->args[2].v.i, step = call->args[3].v.i;
  NET_NEED(OP_HAS(call, diopiUnfold) && self && self->ndim > 0 && self->ndim < DIT_MAX_DIMS &&
           net_wrap_dim(&dim, self->ndim) && step > 0 && size >= 0 && size <= self->sizes[dim]);
  op_copy_dims(sizes, self->sizes, self->ndim);
  sizes[dim] = (self->sizes[dim] - size) / step + 1;
  sizes[self->ndim] = size;
  DIT_RETURN_IF_NOT_OK(net_new(call, self->ndim + 1, sizes, 0, self->dtype, &out));
  MOVE(call, diopiUnfold, self, dim, size, step);
}

enum dit_status op_select_backward(struct dit_call *call) {
  struct dit_tensor_view *grad = net_get_moved(call, 0), out;
  const diopiSize_t sizes = net_get_sizes(call, 1);
  int64_t dim = call->args[2].v.i, index;
  NET_NEED(OP_HAS(call, diopiSelectBackward) && grad && sizes.len > 0 && sizes.len <= DIT_MAX_DIMS &&
           net_wrap_dim(&dim, (int)sizes.len) && read_index(call, 3, sizes.data[dim], &index) &&
           is_part(grad, (int)sizes.len, sizes.data, dim, -1));
  DIT_RETURN_IF_NOT_OK(net_new(call, (int)sizes.len, sizes.data, 0, grad->dtype, &out));
  MOVE(call, diopiSelectBackward, grad, sizes, dim, index);
}

enum dit_status op_slice_backward(struct dit_call *call) {
  struct dit_tensor_view *grad = net_get_moved(call, 0), out;
  const diopiSize_t sizes = net_get_sizes(call, 1);
  int64_t dim = call->args[2].v.i;
  struct bounds bounds;
  NET_NEED(OP_HAS(call, diopiSliceBackward) && grad && sizes.len > 0 && sizes.len <= DIT_MAX_DIMS &&
           net_wrap_dim(&dim, (int)sizes.len) && read_bounds(call, 3, sizes.data[dim], &bounds) &&
           is_part(grad, (int)sizes.len, sizes.data, dim, bounds.count));
  DIT_RETURN_IF_NOT_OK(net_new(call, (int)sizes.len, sizes.data, 0, grad->dtype, &out));
  MOVE(call, diopiSliceBackward, grad, sizes, dim, bounds.start, bounds.end, bounds.step);
}

/// self and src of select_scatter and slice_scatter. PyTorch keeps all strides of self, gaps included: those of dense
/// rows are kept here.
static bool read_scatter(struct dit_call *call, struct dit_tensor_view **self, struct dit_tensor_view **src,
                         int64_t *dim) {
  *self = net_get_moved(call, 0);
  *src = net_get_moved(call, 1);
  *dim = call->args[2].v.i;
  return *self && *src && (*self)->ndim > 0 && ((*self)->flags & DIT_TENSOR_CONTIGUOUS) &&
         (*src)->dtype == (*self)->dtype && net_wrap_dim(dim, (*self)->ndim);
}

enum dit_status op_select_scatter(struct dit_call *call) {
  struct dit_tensor_view *self, *src, out;
  struct diopiTensor room;
  int64_t dim, index;
  NET_NEED(OP_HAS(call, diopiSelectScatter) && read_scatter(call, &self, &src, &dim) &&
           read_index(call, 3, self->sizes[dim], &index) && is_part(src, self->ndim, self->sizes, dim, -1));
  DIT_RETURN_IF_NOT_OK(net_new(call, self->ndim, self->sizes, 0, self->dtype, &out));
  MOVE(call, diopiSelectScatter, self, op_handle(call, &room, src), dim, index);
}

enum dit_status op_slice_scatter(struct dit_call *call) {
  struct dit_tensor_view *self, *src, out;
  struct diopiTensor room;
  int64_t dim;
  struct bounds bounds;
  NET_NEED(OP_HAS(call, diopiSliceScatter) && read_scatter(call, &self, &src, &dim) &&
           read_bounds(call, 3, self->sizes[dim], &bounds) && is_part(src, self->ndim, self->sizes, dim, bounds.count));
  DIT_RETURN_IF_NOT_OK(net_new(call, self->ndim, self->sizes, 0, self->dtype, &out));
  MOVE(call, diopiSliceScatter, self, op_handle(call, &room, src), dim, bounds.start, bounds.end, bounds.step);
}

/// Writing at the places that one index or a mask names: index_add, index_copy, masked_scatter.
///
/// index_add        self[.., index[i], ..] += alpha * source[.., i, ..]
/// index_copy       self[.., index[i], ..]  = source[.., i, ..]
/// masked_scatter   self where not mask, the next element of source where mask, in row-major order
///
/// The first two are a scatter (with the reduction "add") whose index is the given one, expanded along the other
/// dimensions. 0-d tensors count as 1-d. Results are row-major; in-place forms write self. index_add has the plain
/// dtypes but bool and the complex ones, the others every dtype.
#include "invoke.h"
#include "network.h"
#include "table.h"

struct write {
  const struct dit_tensor_view *self, *index, *source;
  int64_t dim;
  struct net_lifted lifts[3];
  struct dit_tensor_view expanded;  ///< index over the sizes of source
  int64_t strides[DIT_MAX_DIMS];
};

/// (self, dim, index, source): source has self's sizes but for dim, where it has those of index.
static bool read(struct dit_call *call, struct write *write) {
  struct dit_tensor_view *self = net_get_moved(call, 0), *index = net_get(call, 2), *source = net_get_moved(call, 3);
  write->dim = call->args[1].v.i;
  if (!self || !net_is_index(index) || index->ndim > 1 || !source || source->dtype != self->dtype ||
      !net_wrap_dim(&write->dim, self->ndim)) {
    return false;
  }
  write->self = net_lift(self, &write->lifts[0]);
  write->index = net_lift(index, &write->lifts[1]);
  write->source = net_lift(source, &write->lifts[2]);
  if (write->source->ndim != write->self->ndim) {
    return false;
  }
  for (int i = 0; i < write->self->ndim; i++) {
    if (write->source->sizes[i] != (i == write->dim ? write->index->sizes[0] : write->self->sizes[i])) {
      return false;
    }
    write->strides[i] = i == write->dim ? write->index->strides[0] : 0;
  }
  write->expanded = *write->index;
  write->expanded.ndim = write->source->ndim;
  write->expanded.sizes = write->source->sizes;
  write->expanded.strides = write->strides;
  write->expanded.numel = write->source->numel;
  write->expanded.flags &= (uint8_t) ~(DIT_TENSOR_CONTIGUOUS | DIT_TENSOR_DENSE);
  return true;
}

/// The written tensor: self, an out= tensor, or a new one.
static enum dit_status prepare(struct dit_call *call, const struct write *write, struct dit_tensor_view *out) {
  struct dit_tensor_view *self = op_get_tensor(call, 0), *given;
  const struct dit_tensor_view *const inputs[3] = {self, write->index, write->source};
  NET_NEED(net_get_given_moved(call, call->nargs - 1, &given));
  if (call->op->target != OP_INPLACE) {
    return op_prepare_contiguous(call, given, inputs, 3, self->ndim, self->sizes, self->dtype, out);
  }
  NET_NEED(net_is_writable(self) && net_is_apart(self, write->index) && net_is_apart(self, write->source));
  *out = *self;
  return DIT_OK;
}

static enum dit_status run(struct dit_call *call, struct write *write, const char *reduce) {
  struct dit_tensor_view out;
  struct net_lifted lift;
  struct diopiContext context;
  struct diopiTensor rooms[4];
  NET_NEED(OP_HAS(call, diopiScatter) && OP_HAS(call, diopiScatterInp));
  DIT_RETURN_IF_NOT_OK(prepare(call, write, &out));
  const bool in_place = call->op->target == OP_INPLACE;
  if (write->source->numel == 0) {
    DIT_RETURN_IF_NOT_OK(in_place || out.numel == 0 ? DIT_OK : op_copy(call, &out, op_get_tensor(call, 0)));
    return op_return(call, 0, &out);
  }
  op_context_init(&context, call);
  diopiTensorHandle_t o = op_handle(call, &rooms[0], net_lift(&out, &lift)),
                      x = op_handle(call, &rooms[1], write->self), s = op_handle(call, &rooms[2], write->source),
                      i = op_handle(call, &rooms[3], &write->expanded);
  DIT_RETURN_IF_NOT_OK(
      net_check_range(call, in_place ? OP_DIOPI(call, &context, diopiScatterInp, o, write->dim, s, i, reduce)
                                     : OP_DIOPI(call, &context, diopiScatter, o, x, write->dim, s, i, reduce)));
  return op_return(call, 0, &out);
}

enum dit_status op_index_copy(struct dit_call *call) {
  struct write write;
  NET_NEED(read(call, &write));
  return run(call, &write, "");
}

/// source times alpha, where alpha is not 1.
static enum dit_status scale(struct dit_call *call, struct write *write, struct dit_scalar alpha,
                             struct dit_tensor_view *room) {
  struct diopiContext context;
  struct diopiTensor rooms[2];
  diopiScalar_t number;
  if (alpha.kind == DIT_SCALAR_DOUBLE ? alpha.v.d == 1 : alpha.v.i == 1) {
    return DIT_OK;
  }
  NET_NEED(alpha.kind != DIT_SCALAR_COMPLEX &&
           (alpha.kind != DIT_SCALAR_DOUBLE || op_is_floating(write->source->dtype)));
  DIT_RETURN_IF_NOT_OK(net_new(call, write->source->ndim, write->source->sizes, 0, write->source->dtype, room));
  op_context_init(&context, call);
  DIT_RETURN_IF_NOT_OK(OP_DIOPI(call, &context, diopiMulScalar, op_handle(call, &rooms[0], room),
                                op_handle(call, &rooms[1], write->source), op_scalar(&number, alpha)));
  write->source = room;
  return DIT_OK;
}

enum dit_status op_index_add(struct dit_call *call) {
  struct write write;
  struct dit_tensor_view scaled;
  struct dit_scalar alpha;
  NET_NEED(read(call, &write) && op_is_element(write.self->dtype) && write.self->dtype != DIT_DTYPE_BOOL &&
           op_read_scalar(&call->args[4], &alpha) == DIT_OK);
  DIT_RETURN_IF_NOT_OK(scale(call, &write, alpha, &scaled));
  return run(call, &write, "add");
}

/// masked_scatter_(self, mask, source); masked_scatter makes a copy and comes here.
enum dit_status op_masked_scatter(struct dit_call *call) {
  struct dit_tensor_view *self = net_get_moved(call, 0), *mask = net_get(call, 1), *source = net_get_moved(call, 2);
  struct op_layout layout;
  struct diopiContext context;
  struct diopiTensor rooms[3];
  bool same_shape;
  NET_NEED(OP_HAS(call, diopiMaskedScatter) && self && mask && source && mask->dtype == DIT_DTYPE_BOOL &&
           source->dtype == self->dtype && net_is_writable(self) && net_is_apart(self, mask) &&
           net_is_apart(self, source) && self->numel > 0);
  const struct dit_tensor_view *inputs[2] = {self, mask};
  NET_NEED(op_broadcast(inputs, 2, &layout, &same_shape, NULL) == DIT_OK &&
           op_same_sizes(self, layout.ndim, layout.sizes));
  op_context_init(&context, call);
  diopiTensorHandle_t x = op_handle(call, &rooms[0], self);
  DIT_RETURN_IF_NOT_OK(OP_DIOPI(call, &context, diopiMaskedScatter, x, x, op_handle(call, &rooms[1], mask),
                                op_handle(call, &rooms[2], source)));
  return op_return(call, 0, self);
}

/// Operators that move elements: stack, constant_pad_nd, roll, flip, repeat, tril and triu.
///
/// Results are row-major unless said otherwise: padding and rolling keep the memory format, flip the strides; tril_ and
/// triu_ write self.
#include "network.h"
#include "table.h"

enum { MAX_LIST = 64 };

enum dit_status op_stack(struct dit_call *call) {
  const struct dit_value *list = &call->args[0];
  struct dit_tensor_view out;
  int64_t dim = call->args[1].v.i, sizes[DIT_MAX_DIMS];
  struct diopiContext context;
  struct diopiTensor out_room, rooms[MAX_LIST];
  diopiConstTensorHandle_t handles[MAX_LIST];
  NET_NEED(OP_HAS(call, diopiStack) && list->tag == DIT_VALUE_TENSORS && list->v.tensors.size > 0 &&
           list->v.tensors.size <= MAX_LIST);
  const int64_t count = list->v.tensors.size;
  const struct dit_tensor_view *tensors = list->v.tensors.data;
  NET_NEED(tensors[0].handle && tensors[0].ndim < DIT_MAX_DIMS && op_is_moved(tensors[0].dtype) &&
           net_wrap_dim(&dim, tensors[0].ndim + 1));
  for (int64_t i = 0; i < count; i++) {
    NET_NEED(tensors[i].handle && op_is_device(&tensors[i]) && tensors[i].dtype == tensors[0].dtype &&
             op_same_sizes(&tensors[i], tensors[0].ndim, tensors[0].sizes));
    // PyTorch stacks by a cat, which may keep a memory format: only what is row-major in the end is taken here
    NET_NEED(tensors[i].flags & DIT_TENSOR_CONTIGUOUS ||
             (dim < tensors[i].ndim && op_suggest_format(&tensors[i]) == 0));
    handles[i] = op_handle(call, &rooms[i], &tensors[i]);
  }
  for (int i = 0; i <= tensors[0].ndim; i++) {
    sizes[i] = i == dim ? count : tensors[0].sizes[i < dim ? i : i - 1];
  }
  DIT_RETURN_IF_NOT_OK(net_new(call, tensors[0].ndim + 1, sizes, 0, tensors[0].dtype, &out));
  op_context_init(&context, call);
  DIT_RETURN_IF_NOT_OK(OP_DIOPI(call, &context, diopiStack, op_handle(call, &out_room, &out), handles, count, dim));
  return op_return(call, 0, &out);
}

/// constant_pad_nd(self, pad, value): pairs of pads from the last dimension on; negative ones cut.
enum dit_status op_constant_pad(struct dit_call *call) {
  struct dit_tensor_view *self = net_get_moved(call, 0), out;
  const diopiSize_t pad = net_get_sizes(call, 1);
  int64_t sizes[DIT_MAX_DIMS];
  struct dit_scalar value;
  struct diopiContext context;
  struct diopiTensor rooms[2];
  NET_NEED(OP_HAS(call, diopiPad) && self && pad.len % 2 == 0 && pad.len / 2 <= self->ndim && pad.len > 0 &&
           op_read_scalar(&call->args[2], &value) == DIT_OK && net_fits(self->dtype, value) &&
           (value.kind == DIT_SCALAR_DOUBLE || (value.v.i < INT64_C(1) << 53 && value.v.i > -(INT64_C(1) << 53))));
  op_copy_dims(sizes, self->sizes, self->ndim);
  bool grows = false;
  for (int64_t i = 0; i < pad.len / 2; i++) {
    int64_t *size = &sizes[self->ndim - 1 - i];
    *size += pad.data[2 * i] + pad.data[2 * i + 1];
    grows = grows || pad.data[2 * i] > 0 || pad.data[2 * i + 1] > 0;
    NET_NEED(*size > 0 && -pad.data[2 * i] <= self->sizes[self->ndim - 1 - i] &&
             -pad.data[2 * i + 1] <= self->sizes[self->ndim - 1 - i]);
  }
  NET_NEED(grows);  // else PyTorch clones what is left, with its strides
  const double number = value.kind == DIT_SCALAR_DOUBLE ? value.v.d : (double)value.v.i;
  DIT_RETURN_IF_NOT_OK(net_new(call, self->ndim, sizes, op_suggest_format(self), self->dtype, &out));
  op_context_init(&context, call);
  DIT_RETURN_IF_NOT_OK(OP_DIOPI(call, &context, diopiPad, op_handle(call, &rooms[0], &out),
                                op_handle(call, &rooms[1], self), pad, "constant", &number));
  return op_return(call, 0, &out);
}

enum dit_status op_roll(struct dit_call *call) {
  struct dit_tensor_view *self = net_get_moved(call, 0), out;
  const diopiSize_t shifts = net_get_sizes(call, 1), dims = net_get_sizes(call, 2);
  struct diopiContext context;
  struct diopiTensor rooms[2];
  NET_NEED(OP_HAS(call, diopiRoll) && self && self->ndim > 0 && shifts.len > 0 &&
           (dims.len == shifts.len || (dims.len == 0 && shifts.len == 1)));
  if (self->numel == 0) {
    DIT_RETURN_IF_NOT_OK(net_new_like(call, self, self->dtype, &out));
    return op_return(call, 0, &out);
  }
  const int format = dims.len > 0 ? op_suggest_format(self) : 0;
  for (int64_t i = 0; i < dims.len; i++) {
    int64_t dim = dims.data[i];
    // PyTorch joins two slices, of which an empty one would end the memory format
    NET_NEED(net_wrap_dim(&dim, self->ndim) && (format == 0 || shifts.data[i] % self->sizes[dim] != 0));
  }
  DIT_RETURN_IF_NOT_OK(net_new(call, self->ndim, self->sizes, format, self->dtype, &out));
  op_context_init(&context, call);
  DIT_RETURN_IF_NOT_OK(OP_DIOPI(call, &context, diopiRoll, op_handle(call, &rooms[0], &out),
                                op_handle(call, &rooms[1], self), shifts, dims));
  return op_return(call, 0, &out);
}

enum dit_status op_flip(struct dit_call *call) {
  struct dit_tensor_view *self = net_get_moved(call, 0), out;
  const diopiSize_t dims = net_get_sizes(call, 1);
  uint64_t seen = 0;
  struct diopiContext context;
  struct diopiTensor rooms[2];
  NET_NEED(OP_HAS(call, diopiFlip) && self);
  for (int64_t i = 0; i < dims.len; i++) {
    int64_t dim = dims.data[i];
    NET_NEED(net_wrap_dim(&dim, self->ndim) && !(seen >> dim & 1));
    seen |= UINT64_C(1) << dim;
  }
  DIT_RETURN_IF_NOT_OK(net_new_like(call, self, self->dtype, &out));
  op_context_init(&context, call);
  DIT_RETURN_IF_NOT_OK(
      OP_DIOPI(call, &context, diopiFlip, op_handle(call, &rooms[0], &out), op_handle(call, &rooms[1], self), dims));
  return op_return(call, 0, &out);
}

enum dit_status op_repeat(struct dit_call *call) {
  struct dit_tensor_view *self = net_get_moved(call, 0), out;
  const diopiSize_t repeats = net_get_sizes(call, 1);
  int64_t sizes[DIT_MAX_DIMS];
  struct diopiContext context;
  struct diopiTensor rooms[2];
  NET_NEED(OP_HAS(call, diopiRepeat) && self && repeats.len >= self->ndim && repeats.len <= DIT_MAX_DIMS);
  for (int64_t i = 0; i < repeats.len; i++) {
    const int64_t from = i - (repeats.len - self->ndim);
    NET_NEED(repeats.data[i] >= 0 &&
             !__builtin_mul_overflow(repeats.data[i], from < 0 ? 1 : self->sizes[from], &sizes[i]));
  }
  DIT_RETURN_IF_NOT_OK(net_new(call, (int)repeats.len, sizes, 0, self->dtype, &out));
  op_context_init(&context, call);
  DIT_RETURN_IF_NOT_OK(OP_DIOPI(call, &context, diopiRepeat, op_handle(call, &rooms[0], &out),
                                op_handle(call, &rooms[1], self), repeats));
  return op_return(call, 0, &out);
}

typedef diopiError_t triangle_function(diopiContextHandle_t, diopiTensorHandle_t, diopiConstTensorHandle_t, int64_t);

/// tril, triu(self, diagonal) and their out= forms.
enum dit_status op_triangle(struct dit_call *call) {
  struct dit_tensor_view *self = net_get_moved(call, 0), *given, out;
  triangle_function *function = OP_ROW_FUNCTION(call, triangle_function *);
  struct diopiContext context;
  struct diopiTensor rooms[2];
  NET_NEED(function && self && self->ndim >= 2 && self->numel > 0 && net_get_given_moved(call, 2, &given));
  const struct dit_tensor_view *const inputs[1] = {self};
  DIT_RETURN_IF_NOT_OK(op_prepare_contiguous(call, given, inputs, 1, self->ndim, self->sizes, self->dtype, &out));
  op_context_init(&context, call);
  DIT_RETURN_IF_NOT_OK(OP_DIOPI_ROW(call, &context, function, op_handle(call, &rooms[0], &out),
                                    op_handle(call, &rooms[1], self), call->args[1].v.i));
  return op_return(call, 0, &out);
}

/// tril_, triu_: the latter through its in-place form where the library has it.
enum dit_status op_triangle_inplace(struct dit_call *call) {
  struct dit_tensor_view *self = net_get_moved(call, 0);
  struct diopiContext context;
  struct diopiTensor room;
  NET_NEED(self && self->ndim >= 2 && self->numel > 0 && net_is_writable(self));
  op_context_init(&context, call);
  diopiTensorHandle_t x = op_handle(call, &room, self);
  const int64_t diagonal = call->args[1].v.i;
  DIT_RETURN_IF_NOT_OK(call->op->function == DIT_DIOPI_diopiTril ? OP_DIOPI(call, &context, diopiTril, x, x, diagonal)
                       : OP_HAS(call, diopiTriuInp)              ? OP_DIOPI(call, &context, diopiTriuInp, x, diagonal)
                                                                 : OP_DIOPI(call, &context, diopiTriu, x, x, diagonal));
  return op_return(call, 0, self);
}

/// Operators that the standard has no function for, composed of functions it has.
///
/// native_dropout_backward   grad * (mask * scale)
/// trace                     the sum over the diagonal, a 1-d view of self
/// addmv                     beta * self + alpha * (mat @ vec): addmm with matrices of one column
/// vdot                      the dot product, of complex vectors with self conjugated
/// logical_xor               not self != not other
/// bitwise_xor               self != other for bool, (self | other) - (self & other) for integers; in one piece where
///                           the vendor has a kernel
///
/// Each is a few calls of the library on the stream; scratch tensors come from the framework. Where one of the
/// functions is missing, or refuses, nothing was written yet but scratch, and the CPU's kernel runs.
#include "invoke.h"
#include "network.h"
#include "table.h"

/// A result per element of two tensors, with TensorIterator's strides.
static enum dit_status prepare_pair(struct dit_call *call, const struct dit_tensor_view *const *inputs, int common,
                                    int result, struct dit_tensor_view *out) {
  const enum op_target target = (enum op_target)call->op->target;
  struct op_layout layout;
  bool same_shape;
  DIT_RETURN_IF_NOT_OK(op_check_given(call, target, inputs, 2, out));
  DIT_RETURN_IF_NOT_OK(op_broadcast(inputs, 2, &layout, &same_shape, call->err));
  if (target == OP_INPLACE) {
    DIT_RETURN_IF_NOT_OK(op_check_inplace(out, &layout, call->err));
  }
  return op_prepare_as(call, target, inputs, 2, common, result, &layout, same_shape, out);
}

enum dit_status op_dropout_backward(struct dit_call *call) {
  struct dit_tensor_view *grad = net_get(call, 0), *mask = net_get(call, 1), scaled, out;
  struct diopiContext context;
  struct diopiTensor rooms[4];
  diopiScalar_t scale;
  NET_NEED(OP_HAS(call, diopiMul) && OP_HAS(call, diopiMulScalar) && grad && mask && op_is_floating(grad->dtype) &&
           mask->dtype == DIT_DTYPE_BOOL && op_same_sizes(mask, grad->ndim, grad->sizes));
  const struct dit_tensor_view *inputs[2] = {grad, mask};
  DIT_RETURN_IF_NOT_OK(prepare_pair(call, inputs, grad->dtype, grad->dtype, &out));
  DIT_RETURN_IF_NOT_OK(net_new_like(call, mask, grad->dtype, &scaled));
  op_scalar(&scale, (struct dit_scalar){DIT_SCALAR_DOUBLE, {.d = net_get_double(call, 2)}});
  op_context_init(&context, call);
  diopiTensorHandle_t s = op_handle(call, &rooms[0], &scaled);
  DIT_RETURN_IF_NOT_OK(OP_DIOPI(call, &context, diopiMulScalar, s, op_handle(call, &rooms[1], mask), &scale));
  DIT_RETURN_IF_NOT_OK(
      OP_DIOPI(call, &context, diopiMul, op_handle(call, &rooms[2], &out), op_handle(call, &rooms[3], grad), s));
  return op_return(call, 0, &out);
}

enum dit_status op_trace(struct dit_call *call) {
  struct dit_tensor_view *self = net_get(call, 0), diagonal, out;
  struct diopiContext context;
  struct diopiTensor rooms[2];
  const diopiSize_t all = {NULL, 0};
  NET_NEED(OP_HAS(call, diopiSum) && self && self->ndim == 2 && self->numel > 0 && self->dtype != DIT_DTYPE_BOOL);
  const int64_t size = self->sizes[0] < self->sizes[1] ? self->sizes[0] : self->sizes[1];
  const int64_t stride = self->strides[0] + self->strides[1];
  diagonal = *self;
  diagonal.ndim = 1;
  diagonal.sizes = &size;
  diagonal.strides = &stride;
  diagonal.numel = size;
  diagonal.flags &= (uint8_t) ~(DIT_TENSOR_CONTIGUOUS | DIT_TENSOR_DENSE);
  DIT_RETURN_IF_NOT_OK(net_new(call, 0, NULL, 0, op_is_floating(self->dtype) ? self->dtype : DIT_DTYPE_I64, &out));
  op_context_init(&context, call);
  DIT_RETURN_IF_NOT_OK(
      OP_DIOPI(call, &context, diopiSum, op_handle(call, &rooms[0], &out), op_handle(call, &rooms[1], &diagonal), all));
  return op_return(call, 0, &out);
}

/// A vector as a matrix of one column; `room` has sizes, then strides.
static void make_column(const struct dit_tensor_view *view, int64_t room[4], struct dit_tensor_view *out) {
  *out = *view;
  out->ndim = 2;
  out->sizes = room;
  out->strides = room + 2;
  room[0] = view->ndim == 1 ? view->sizes[0] : 1;
  room[2] = view->ndim == 1 ? view->strides[0] : 1;
  room[1] = room[3] = 1;
}

enum dit_status op_addmv(struct dit_call *call) {
  struct dit_tensor_view *self = net_get(call, 0), *mat = net_get(call, 1), *vec = net_get(call, 2), *given, out;
  struct dit_tensor_view columns[3];
  struct dit_scalar beta, alpha;
  int64_t room[3][4];
  struct diopiContext context;
  struct diopiTensor rooms[4];
  diopiScalar_t numbers[2];
  NET_NEED(OP_HAS(call, diopiAddmm) && self && mat && vec && mat->ndim == 2 && vec->ndim == 1 && self->ndim <= 1 &&
           mat->sizes[1] == vec->sizes[0] && mat->numel > 0 && self->dtype == mat->dtype && vec->dtype == mat->dtype &&
           mat->dtype != DIT_DTYPE_BOOL && op_read_scalar(&call->args[3], &beta) == DIT_OK &&
           op_read_scalar(&call->args[4], &alpha) == DIT_OK && net_get_given(call, 5, &given));
  NET_NEED(self->ndim == 0 || self->sizes[0] == 1 || self->sizes[0] == mat->sizes[0]);
  NET_NEED(op_is_floating(mat->dtype) || (beta.kind == DIT_SCALAR_INT && alpha.kind == DIT_SCALAR_INT));
  const struct dit_tensor_view *const inputs[3] = {self, mat, vec};
  if (call->op->target == OP_INPLACE) {
    NET_NEED(op_same_sizes(self, 1, mat->sizes) && net_is_writable(self) && net_is_apart(self, mat) &&
             net_is_apart(self, vec));
    out = *self;
  } else {
    DIT_RETURN_IF_NOT_OK(op_prepare_contiguous(call, given, inputs, 3, 1, mat->sizes, mat->dtype, &out));
  }
  make_column(&out, room[0], &columns[0]);
  make_column(self, room[1], &columns[1]);
  make_column(vec, room[2], &columns[2]);
  op_context_init(&context, call);
  diopiTensorHandle_t o = op_handle(call, &rooms[0], &columns[0]);
  diopiTensorHandle_t x = call->op->target == OP_INPLACE ? o : op_handle(call, &rooms[1], &columns[1]);
  DIT_RETURN_IF_NOT_OK(OP_DIOPI(call, &context, diopiAddmm, o, x, op_handle(call, &rooms[2], mat),
                                op_handle(call, &rooms[3], &columns[2]), op_scalar(&numbers[0], beta),
                                op_scalar(&numbers[1], alpha)));
  return op_return(call, 0, &out);
}

enum dit_status op_vdot(struct dit_call *call) {
  struct dit_tensor_view *self = net_get_moved(call, 0), conjugate;
  struct diopiContext context;
  struct diopiTensor rooms[2];
  NET_NEED(self);
  if (op_is_complex(self->dtype)) {
    DIT_RETURN_IF_NOT_OK(net_new(call, self->ndim, self->sizes, 0, self->dtype, &conjugate));
    op_context_init(&context, call);
    DIT_RETURN_IF_NOT_OK(
        OP_DIOPI(call, &context, diopiConj, op_handle(call, &rooms[0], &conjugate), op_handle(call, &rooms[1], self)));
    call->args[0].v.tensor = conjugate;
  }
  return op_matmul(call);
}

enum dit_status op_logical_xor(struct dit_call *call) {
  struct dit_tensor_view *inputs[2] = {net_get_moved(call, 0), net_get_moved(call, 1)}, made[2], fresh;
  struct dit_tensor_view *out = call->op->target == OP_NEW ? &fresh : op_get_given(call, 0);
  struct diopiContext context;
  struct diopiTensor rooms[5];
  NET_NEED(OP_HAS(call, diopiLogicalNot) && OP_HAS(call, diopiNe) && inputs[0] && inputs[1] && out &&
           op_is_element(inputs[0]->dtype) && op_is_element(inputs[1]->dtype));
  NET_NEED(out == &fresh ||
           (out->dtype == DIT_DTYPE_BOOL && net_is_apart(out, inputs[0]) && net_is_apart(out, inputs[1])));
  const struct dit_tensor_view *views[2] = {inputs[0], inputs[1]};
  DIT_RETURN_IF_NOT_OK(prepare_pair(call, views, DIT_DTYPE_BOOL, DIT_DTYPE_BOOL, out));
  op_context_init(&context, call);
  for (int i = 0; i < 2; i++) {
    DIT_RETURN_IF_NOT_OK(net_new_like(call, inputs[i], DIT_DTYPE_BOOL, &made[i]));
    DIT_RETURN_IF_NOT_OK(OP_DIOPI(call, &context, diopiLogicalNot, op_handle(call, &rooms[i], &made[i]),
                                  op_handle(call, &rooms[2 + i], inputs[i])));
  }
  DIT_RETURN_IF_NOT_OK(OP_DIOPI(call, &context, diopiNe, op_handle(call, &rooms[4], out), &rooms[0], &rooms[1]));
  return op_return(call, 0, out);
}

enum dit_status op_bitwise_xor(struct dit_call *call) {
  struct dit_tensor_view *a = net_get(call, 0), *b = net_get(call, 1), made, both, either;
  struct dit_tensor_view *out = call->op->target == OP_NEW   ? &made
                                : call->op->target == OP_OUT ? op_get_given(call, 0)
                                                             : a;
  struct diopiContext context;
  struct diopiTensor rooms[5];
  diopiScalar_t one = {.stype = diopi_dtype_int64, .ival = 1};
  NET_NEED(a && b && out && a->dtype == b->dtype && !op_is_floating(a->dtype) && OP_HAS(call, diopiNe) &&
           OP_HAS(call, diopiBitwiseAnd) && OP_HAS(call, diopiBitwiseOr) && OP_HAS(call, diopiSub) &&
           (out == &made || out->dtype == a->dtype));
  const struct dit_tensor_view *views[2] = {a, b};
  DIT_RETURN_IF_NOT_OK(prepare_pair(call, views, a->dtype, a->dtype, out));
  if (OP_HAS_KERNEL(call, bitwise_xor) && op_same_sizes(a, out->ndim, out->sizes) &&
      op_same_sizes(b, out->ndim, out->sizes)) {
    const enum dit_status status = call->kernels->bitwise_xor(call->stream, out, a, b, call->err);
    if (status != DIT_ERR_UNSUPPORTED) {
      return status == DIT_OK ? op_return(call, 0, out) : status;
    }
  }
  op_context_init(&context, call);
  diopiTensorHandle_t o = op_handle(call, &rooms[0], out), x = op_handle(call, &rooms[1], a),
                      y = op_handle(call, &rooms[2], b);
  if (a->dtype == DIT_DTYPE_BOOL) {
    DIT_RETURN_IF_NOT_OK(OP_DIOPI(call, &context, diopiNe, o, x, y));
    return op_return(call, 0, out);
  }
  DIT_RETURN_IF_NOT_OK(net_new(call, out->ndim, out->sizes, 0, out->dtype, &both));
  DIT_RETURN_IF_NOT_OK(net_new(call, out->ndim, out->sizes, 0, out->dtype, &either));
  diopiTensorHandle_t all = op_handle(call, &rooms[3], &both), any = op_handle(call, &rooms[4], &either);
  DIT_RETURN_IF_NOT_OK(OP_DIOPI(call, &context, diopiBitwiseAnd, all, x, y));
  DIT_RETURN_IF_NOT_OK(OP_DIOPI(call, &context, diopiBitwiseOr, any, x, y));
  DIT_RETURN_IF_NOT_OK(OP_DIOPI(call, &context, diopiSub, o, any, all, &one));
  return op_return(call, 0, out);
}

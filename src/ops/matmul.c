/// mm, addmm, bmm, baddbmm: out = beta * self + alpha * (mat1 @ mat2), one dtype for all, row-major results.
///
/// Shapes: mm (M,K)x(K,N), bmm (B,M,K)x(B,K,N), addmm's self broadcasts to (M,N). Wrong shapes and mixed dtypes are
/// left to PyTorch's own messages. A half result is rounded once. Integer alpha and beta are exact up to 2^53. The work
/// is done by diopiMm, diopiBmm, diopiAddmm and diopiBaddbmm where the vendor has them, else by its kernel. In place:
/// baddbmm_ through its own form, addmm_ by a copy. mv and dot are diopiMatmul.
#include <stddef.h>

#include "invoke.h"
#include "table.h"

static bool is_matrix(const struct dit_tensor_view *view, int ndim, int dtype) {
  return view && view->ndim == ndim && view->dtype == dtype && op_is_device(view) && op_is_plain(dtype) &&
         dtype != DIT_DTYPE_BOOL;
}

/// A 2-d view as a batch of one; `room` holds sizes and strides.
static void add_batch(const struct dit_tensor_view *view, int64_t room[6], struct dit_tensor_view *out) {
  *out = *view;
  if (view->ndim == 3) {
    return;
  }
  room[0] = 1;
  room[3] = view->sizes[0] * view->sizes[1];
  for (int i = 0; i < 2; i++) {
    room[1 + i] = view->sizes[i];
    room[4 + i] = view->strides[i];
  }
  out->ndim = 3;
  out->sizes = room;
  out->strides = room + 3;
}

static enum dit_status launch(struct dit_call *call, const struct dit_tensor_view *out, const struct dit_tensor_view *a,
                              const struct dit_tensor_view *b, const struct dit_tensor_view *bias, double alpha,
                              double beta) {
  int64_t room[4][6];
  struct dit_tensor_view views[4];
  add_batch(out, room[0], &views[0]);
  add_batch(a, room[1], &views[1]);
  add_batch(b, room[2], &views[2]);
  if (bias) {
    add_batch(bias, room[3], &views[3]);
  }
  return call->kernels->gemm(call->stream, &views[0], &views[1], &views[2], bias ? &views[3] : NULL, alpha, beta,
                             call->err);
}

static enum dit_status run_product(struct dit_call *call, int ndim, enum op_target target) {
  const struct dit_tensor_view *a = op_get_tensor(call, 0), *b = op_get_tensor(call, 1);
  struct dit_tensor_view *given = target == OP_OUT ? op_get_tensor(call, 2) : NULL, out;
  const int function = ndim == 2 ? DIT_DIOPI_diopiMm : DIT_DIOPI_diopiBmm;
  const bool library = op_can_invoke(call, function);
  if ((!library && !OP_HAS_KERNEL(call, gemm)) || !a || !is_matrix(a, ndim, a->dtype) ||
      !is_matrix(b, ndim, a->dtype) || (target == OP_OUT && !given) || a->sizes[ndim - 1] != b->sizes[ndim - 2] ||
      (ndim == 3 && a->sizes[0] != b->sizes[0])) {
    return DIT_ERR_UNSUPPORTED;
  }
  const struct dit_tensor_view *inputs[2] = {a, b};
  int64_t sizes[3] = {a->sizes[0], ndim == 3 ? a->sizes[1] : b->sizes[1], b->sizes[ndim - 1]};
  DIT_RETURN_IF_NOT_OK(op_prepare_contiguous(call, given, inputs, 2, ndim, sizes, a->dtype, &out));
  if (library) {
    const struct dit_tensor_view *outs[1] = {&out};
    DIT_RETURN_IF_NOT_OK(op_invoke(call, function, outs, 0));
  } else {
    DIT_RETURN_IF_NOT_OK(launch(call, &out, a, b, NULL, 1, 0));
  }
  return op_return(call, 0, &out);
}

enum dit_status op_mm(struct dit_call *call) {
  return run_product(call, 2, (enum op_target)call->op->target);
}
enum dit_status op_bmm(struct dit_call *call) {
  return run_product(call, 3, (enum op_target)call->op->target);
}

/// alpha or beta as a double; false where the conversion would not be exact or PyTorch would refuse.
static bool get_factor(const struct dit_value *value, int dtype, double *out) {
  struct dit_scalar scalar;
  if (op_read_scalar(value, &scalar) != DIT_OK || scalar.kind == DIT_SCALAR_COMPLEX) {
    return false;
  }
  if (scalar.kind == DIT_SCALAR_DOUBLE) {
    *out = scalar.v.d;
    return op_is_floating(dtype);
  }
  *out = (double)scalar.v.i;
  return scalar.v.i < (INT64_C(1) << 53) && scalar.v.i > -(INT64_C(1) << 53);
}

/// Can `self` be broadcast to the result?
static bool broadcasts_to(const struct dit_tensor_view *self, int ndim, const int64_t *sizes) {
  if (self->ndim > ndim) {
    return false;
  }
  for (int i = 1; i <= self->ndim; i++) {
    if (self->sizes[self->ndim - i] != 1 && self->sizes[self->ndim - i] != sizes[ndim - i]) {
      return false;
    }
  }
  return true;
}

/// addmm (2 dimensions) and baddbmm (3).
static enum dit_status run_sum_product(struct dit_call *call, int ndim, int function, enum op_target target) {
  const struct dit_tensor_view *self = op_get_tensor(call, 0), *a = op_get_tensor(call, 1), *b = op_get_tensor(call, 2);
  struct dit_tensor_view *given = target == OP_OUT ? op_get_tensor(call, 5) : NULL, out, bias;
  struct op_layout layout;
  int64_t strides[DIT_MAX_DIMS];
  double alpha, beta;
  const bool library = op_can_invoke(call, function);
  if ((!library && !OP_HAS_KERNEL(call, gemm)) || !self || !a || !is_matrix(a, ndim, a->dtype) ||
      !is_matrix(b, ndim, a->dtype) || (target == OP_OUT && !given) || a->sizes[ndim - 1] != b->sizes[ndim - 2] ||
      (ndim == 3 && a->sizes[0] != b->sizes[0]) || self->dtype != a->dtype || !op_is_device(self) ||
      !get_factor(&call->args[3], a->dtype, &beta) || !get_factor(&call->args[4], a->dtype, &alpha)) {
    return DIT_ERR_UNSUPPORTED;
  }
  layout.ndim = ndim;
  op_copy_dims(layout.sizes, a->sizes, ndim);
  layout.sizes[ndim - 1] = b->sizes[ndim - 1];
  const bool in_place = target == OP_INPLACE || target == OP_INP;
  if (!broadcasts_to(self, ndim, layout.sizes) ||
      (in_place && (!op_same_sizes(self, ndim, layout.sizes) || self->storage == a->storage ||
                    self->storage == b->storage || dit_tensor_get_internal_overlap(self) == DIT_OVERLAP_YES))) {
    return DIT_ERR_UNSUPPORTED;
  }
  if (target == OP_INP) {
    DIT_RETURN_IF_NOT_OK(op_invoke_inplace(call, DIT_DIOPI_diopiBaddbmmInp, self));
    return op_return(call, 0, self);
  }
  const struct dit_tensor_view *inputs[3] = {a, b, self}, *outs[1] = {&out};
  DIT_RETURN_IF_NOT_OK(op_prepare_contiguous(call, given, inputs, 3, ndim, layout.sizes, a->dtype, &out));
  if (library) {
    DIT_RETURN_IF_NOT_OK(op_invoke(call, function, outs, 0));
  } else {
    op_expand(self, &layout, strides, &bias);
    DIT_RETURN_IF_NOT_OK(launch(call, &out, a, b, &bias, alpha, beta));
  }
  if (target == OP_INPLACE) {
    DIT_RETURN_IF_NOT_OK(op_copy(call, self, &out));
    return op_return(call, 0, self);
  }
  return op_return(call, 0, &out);
}

enum dit_status op_addmm(struct dit_call *call) {
  return run_sum_product(call, 2, DIT_DIOPI_diopiAddmm, (enum op_target)call->op->target);
}
enum dit_status op_baddbmm(struct dit_call *call) {
  return run_sum_product(call, 3, DIT_DIOPI_diopiBaddbmm, (enum op_target)call->op->target);
}

/// mv: (M,K) x (K), dot: (K) x (K).
enum dit_status op_matmul(struct dit_call *call) {
  const struct dit_tensor_view *a = op_get_tensor(call, 0), *b = op_get_tensor(call, 1);
  struct dit_tensor_view *given = call->op->target == OP_OUT ? op_get_given(call, 0) : NULL, out;
  if (!a || !b || !op_can_invoke(call, call->op->function) || a->ndim < 1 || a->ndim > 2 ||
      !is_matrix(a, a->ndim, a->dtype) || !is_matrix(b, 1, a->dtype) || a->sizes[a->ndim - 1] != b->sizes[0] ||
      (call->op->target == OP_OUT && !given)) {
    return DIT_ERR_UNSUPPORTED;
  }
  const struct dit_tensor_view *inputs[2] = {a, b}, *outs[1] = {&out};
  DIT_RETURN_IF_NOT_OK(op_prepare_contiguous(call, given, inputs, 2, a->ndim - 1, a->sizes, a->dtype, &out));
  DIT_RETURN_IF_NOT_OK(op_invoke(call, call->op->function, outs, 0));
  return op_return(call, 0, &out);
}

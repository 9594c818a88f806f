/// mm, addmm, bmm, baddbmm: out = beta * self + alpha * (mat1 @ mat2), one dtype for all, row-major results.
///
/// Shapes: mm (M,K)x(K,N), bmm (B,M,K)x(B,K,N), addmm's self broadcasts to (M,N). Wrong shapes and mixed dtypes are
/// left to PyTorch's own messages. A half result is rounded once. Integer alpha and beta are exact up to 2^53. The work
/// is done by diopiMm, diopiBmm, diopiAddmm and diopiBaddbmm. In place: baddbmm_ through its own form, addmm_ by a
/// copy. mv and dot are diopiMatmul.
#include <stddef.h>

#include "invoke.h"
#include "table.h"

static bool is_matrix(const struct dit_tensor_view *view, int ndim, int dtype) {
  return view && view->ndim == ndim && view->dtype == dtype && op_is_device(view) && op_is_element(dtype) &&
         dtype != DIT_DTYPE_BOOL;
}

static enum dit_status run_product(struct dit_call *call, int ndim, enum op_target target) {
  const struct dit_tensor_view *a = op_get_tensor(call, 0), *b = op_get_tensor(call, 1);
  struct dit_tensor_view *given = target == OP_OUT ? op_get_tensor(call, 2) : NULL, out;
  const int function = ndim == 2 ? DIT_DIOPI_diopiMm : DIT_DIOPI_diopiBmm;
  if (!op_can_invoke(call, function) || !a || !is_matrix(a, ndim, a->dtype) || !is_matrix(b, ndim, a->dtype) ||
      (target == OP_OUT && !given) || a->sizes[ndim - 1] != b->sizes[ndim - 2] ||
      (ndim == 3 && a->sizes[0] != b->sizes[0])) {
    return DIT_ERR_UNSUPPORTED;
  }
  const struct dit_tensor_view *inputs[2] = {a, b}, *outs[1] = {&out};
  int64_t sizes[3] = {a->sizes[0], ndim == 3 ? a->sizes[1] : b->sizes[1], b->sizes[ndim - 1]};
  DIT_RETURN_IF_NOT_OK(op_prepare_contiguous(call, given, inputs, 2, ndim, sizes, a->dtype, &out));
  DIT_RETURN_IF_NOT_OK(op_invoke(call, function, outs, 0));
  return op_return(call, 0, &out);
}

enum dit_status op_mm(struct dit_call *call) {
  return run_product(call, 2, (enum op_target)call->op->target);
}
enum dit_status op_bmm(struct dit_call *call) {
  return run_product(call, 3, (enum op_target)call->op->target);
}

/// May `value` be alpha or beta? false where its conversion to double would not be exact or PyTorch would refuse.
static bool is_factor(const struct dit_value *value, int dtype) {
  struct dit_scalar scalar;
  if (op_read_scalar(value, &scalar) != DIT_OK || scalar.kind == DIT_SCALAR_COMPLEX) {
    return false;
  }
  if (scalar.kind == DIT_SCALAR_DOUBLE) {
    return op_is_floating(dtype) || op_is_complex(dtype);
  }
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
static enum dit_status run_sum_product(struct dit_call *call, int ndim) {
  const int function = call->op->function;
  const enum op_target target = (enum op_target)call->op->target;
  const struct dit_tensor_view *self = op_get_tensor(call, 0), *a = op_get_tensor(call, 1), *b = op_get_tensor(call, 2);
  struct dit_tensor_view *given = target == OP_OUT ? op_get_tensor(call, 5) : NULL, out;
  int64_t sizes[3];
  if (!op_can_invoke(call, function) || !self || !a || !is_matrix(a, ndim, a->dtype) || !is_matrix(b, ndim, a->dtype) ||
      (target == OP_OUT && !given) || a->sizes[ndim - 1] != b->sizes[ndim - 2] ||
      (ndim == 3 && a->sizes[0] != b->sizes[0]) || self->dtype != a->dtype || !op_is_device(self) ||
      !is_factor(&call->args[3], a->dtype) || !is_factor(&call->args[4], a->dtype)) {
    return DIT_ERR_UNSUPPORTED;
  }
  op_copy_dims(sizes, a->sizes, ndim);
  sizes[ndim - 1] = b->sizes[ndim - 1];
  const bool in_place = target == OP_INPLACE;
  if (!broadcasts_to(self, ndim, sizes) ||
      (in_place && (!op_same_sizes(self, ndim, sizes) || self->storage == a->storage || self->storage == b->storage ||
                    dit_tensor_get_internal_overlap(self) == DIT_OVERLAP_YES))) {
    return DIT_ERR_UNSUPPORTED;
  }
  if (op_get_plain_form(function)) {
    DIT_RETURN_IF_NOT_OK(op_invoke_inplace(call, function, self));
    return op_return(call, 0, self);
  }
  const struct dit_tensor_view *inputs[3] = {a, b, self}, *outs[1] = {&out};
  DIT_RETURN_IF_NOT_OK(op_prepare_contiguous(call, given, inputs, 3, ndim, sizes, a->dtype, &out));
  DIT_RETURN_IF_NOT_OK(op_invoke(call, function, outs, 0));
  if (target == OP_INPLACE) {
    DIT_RETURN_IF_NOT_OK(op_copy(call, self, &out));
    return op_return(call, 0, self);
  }
  return op_return(call, 0, &out);
}

enum dit_status op_addmm(struct dit_call *call) {
  return run_sum_product(call, 2);
}
enum dit_status op_baddbmm(struct dit_call *call) {
  return run_sum_product(call, 3);
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

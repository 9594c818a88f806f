/// Operators along one dimension that keep the shape: cumsum, sort, topk.
///
/// cumsum of integers and bool is int64 unless `dtype` or a given result says otherwise; in place it keeps self's
/// dtype. sort gives values with self's strides where self is dense, topk row-major ones; indices are int64.
#include <stddef.h>

#include "invoke.h"
#include "table.h"

static const struct dit_tensor_view *get_device_tensor(struct dit_call *call, int index) {
  const struct dit_tensor_view *view = op_get_tensor(call, index);
  return op_check_input(view) == DIT_OK && op_is_device(view) ? view : NULL;
}

enum dit_status op_cumsum(struct dit_call *call) {
  const struct dit_tensor_view *self = op_get_tensor(call, 0);
  const enum op_target target = (enum op_target)call->op->target;
  struct dit_tensor_view *given = target == OP_OUT ? op_get_given(call, 0) : NULL, out;
  const struct dit_tensor_view *outs[1] = {&out};
  const struct dit_value *asked = &call->args[2];
  if (op_check_element(self) != DIT_OK || !op_is_device(self) || !op_can_invoke(call, call->op->function) ||
      (target == OP_OUT && !given) || !op_is_dim(self, call->args[1].v.i)) {
    return DIT_ERR_UNSUPPORTED;
  }
  int dtype = op_is_floating(self->dtype) || op_is_complex(self->dtype) ? self->dtype : DIT_DTYPE_I64;
  if (asked->tag == DIT_VALUE_INT) {
    dtype = (int)asked->v.i;
  } else if (target != OP_NEW) {
    dtype = given ? given->dtype : self->dtype;
  }
  if (!op_is_element(dtype) || dtype == DIT_DTYPE_BOOL || (op_is_complex(self->dtype) && dtype != self->dtype) ||
      (target == OP_INPLACE && (dtype != self->dtype || !(self->flags & DIT_TENSOR_DENSE)))) {
    return DIT_ERR_UNSUPPORTED;
  }
  DIT_RETURN_IF_NOT_OK(op_prepare_contiguous(call, given, &self, 1, self->ndim, self->sizes, dtype, &out));
  DIT_RETURN_IF_NOT_OK(op_invoke(call, call->op->function, outs, 0));
  if (target == OP_INPLACE) {
    DIT_RETURN_IF_NOT_OK(op_copy(call, self, &out));
    return op_return(call, 0, self);
  }
  return op_return(call, 0, &out);
}

/// Values and indices of one shape, new or given.
static enum dit_status prepare_pair(struct dit_call *call, const struct dit_tensor_view *self, const int64_t *sizes,
                                    const int64_t *strides, struct dit_tensor_view *values,
                                    struct dit_tensor_view *indices) {
  if (call->op->target == OP_NEW) {
    DIT_RETURN_IF_NOT_OK(call->services->new_tensor(call, self->ndim, sizes, strides, self->dtype, values));
    return call->services->new_tensor(call, self->ndim, sizes, strides, DIT_DTYPE_I64, indices);
  }
  struct dit_tensor_view *first = op_get_given(call, 0), *second = op_get_given(call, 1);
  if (!first || !second || first->storage == second->storage || first->dtype != self->dtype ||
      second->dtype != DIT_DTYPE_I64 || strides) {
    return DIT_ERR_UNSUPPORTED;
  }
  DIT_RETURN_IF_NOT_OK(op_prepare_contiguous(call, first, &self, 1, self->ndim, sizes, self->dtype, values));
  return op_prepare_contiguous(call, second, &self, 1, self->ndim, sizes, DIT_DTYPE_I64, indices);
}

/// sort(self, dim, descending); the stable form's `stable` comes before `dim`.
static enum dit_status run_sort(struct dit_call *call) {
  const struct dit_tensor_view *self = get_device_tensor(call, 0);
  struct dit_tensor_view values, indices;
  int64_t strides[DIT_MAX_DIMS];
  if (!self || !op_can_invoke(call, call->op->function) || call->args[1].tag != DIT_VALUE_INT ||
      !op_is_dim(self, call->args[1].v.i)) {
    return DIT_ERR_UNSUPPORTED;
  }
  const bool contiguous = self->flags & DIT_TENSOR_CONTIGUOUS;
  if (self->flags & DIT_TENSOR_DENSE) {
    op_copy_dims(strides, self->strides, self->ndim);
  } else {
    op_infer_dense(self->ndim, self->sizes, self->strides, strides);
  }
  DIT_RETURN_IF_NOT_OK(prepare_pair(call, self, self->sizes, contiguous ? NULL : strides, &values, &indices));
  const struct dit_tensor_view *outs[2] = {&values, &indices};
  DIT_RETURN_IF_NOT_OK(op_invoke(call, call->op->function, outs, 0));
  DIT_RETURN_IF_NOT_OK(op_return(call, 0, &values));
  return op_return(call, 1, &indices);
}

enum dit_status op_sort(struct dit_call *call) {
  return run_sort(call);
}

enum dit_status op_sort_stable(struct dit_call *call) {
  const struct dit_value stable = call->args[1];
  call->args[1] = call->args[2];
  call->args[2] = call->args[3];
  call->args[3] = stable;
  return run_sort(call);
}

enum dit_status op_topk(struct dit_call *call) {
  const struct dit_tensor_view *self = get_device_tensor(call, 0);
  struct dit_tensor_view values, indices;
  int64_t sizes[DIT_MAX_DIMS];
  const int64_t k = call->args[1].v.i;
  int64_t dim = call->args[2].v.i;
  if (!self || !op_can_invoke(call, call->op->function) || !op_is_dim(self, dim) || self->dtype == DIT_DTYPE_BOOL) {
    return DIT_ERR_UNSUPPORTED;
  }
  dim += dim < 0 ? self->ndim : 0;
  if (k < 0 || k > (self->ndim > 0 ? self->sizes[dim] : 1) || (self->ndim == 0 && k != 1)) {
    return DIT_ERR_UNSUPPORTED;
  }
  op_copy_dims(sizes, self->sizes, self->ndim);
  if (self->ndim > 0) {
    sizes[dim] = k;
  }
  DIT_RETURN_IF_NOT_OK(prepare_pair(call, self, sizes, NULL, &values, &indices));
  const struct dit_tensor_view *outs[2] = {&values, &indices};
  DIT_RETURN_IF_NOT_OK(op_invoke(call, call->op->function, outs, 0));
  DIT_RETURN_IF_NOT_OK(op_return(call, 0, &values));
  return op_return(call, 1, &indices);
}

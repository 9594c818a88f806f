/// Reductions: sum, mean, prod, amax, any, all, norm, std, max, min, argmax, argmin; row-major results.
///
/// Over all dimensions or some of them; a reduced dimension stays as 1 with keepdim. An empty list of dimensions means
/// all. sum and prod of integers and bool are int64 unless `dtype` says otherwise, mean, norm and std need a floating
/// dtype, any and all give bool (uint8 of uint8), argmax and argmin int64 indices. Every element is converted to the
/// result dtype before it is added. Reductions of nothing that PyTorch refuses or warns about are left to it.
#include "reduce.h"

#include <stddef.h>

#include "table.h"

/// Where the arguments stand; -1: there is no such argument.
struct form {
  int dims, keep, dtype;
};

/// Bits of the dimensions to reduce; false for a wrong or repeated one.
static bool get_mask(const struct dit_value *dims, int ndim, uint32_t *mask) {
  const uint32_t all = ndim == 0 ? 0 : (uint32_t)((UINT64_C(1) << ndim) - 1);
  const int64_t *data = &dims->v.i;
  int64_t count = 1;
  *mask = 0;
  if (dims->tag == DIT_VALUE_INTS) {
    data = dims->v.ints.data;
    count = dims->v.ints.size;
  } else if (dims->tag != DIT_VALUE_INT && dims->tag != DIT_VALUE_NONE) {
    return false;
  }
  if (dims->tag == DIT_VALUE_NONE || count == 0) {
    *mask = all;
    return true;
  }
  for (int64_t i = 0; i < count; i++) {
    int64_t dim = data[i], wrap = ndim > 0 ? ndim : 1;
    dim += dim < 0 ? wrap : 0;
    if (dim < 0 || dim >= wrap || *mask >> dim & 1 || (ndim == 0 && i > 0)) {
      return false;
    }
    *mask |= ndim > 0 ? 1u << dim : 0;
  }
  return true;
}

static const struct dit_value none = {.tag = DIT_VALUE_NONE};

bool reduce_infer_shape(const struct dit_call *call, const struct dit_tensor_view *self, int dims, int keep,
                        struct reduce_shape *shape) {
  if (!get_mask(dims < 0 ? &none : &call->args[dims], self->ndim, &shape->mask)) {
    return false;
  }
  shape->keep = keep >= 0 && call->args[keep].v.i != 0;
  shape->ndim = 0;
  shape->reduced = 1;
  for (int dim = 0; dim < self->ndim; dim++) {
    bool reduced = shape->mask >> dim & 1;
    shape->reduced *= reduced ? self->sizes[dim] : 1;
    if (!reduced || shape->keep) {
      shape->sizes[shape->ndim++] = reduced ? 1 : self->sizes[dim];
    }
  }
  return true;
}

static bool infer_shape(const struct dit_call *call, const struct dit_tensor_view *self, const struct form *form,
                        struct reduce_shape *shape) {
  return reduce_infer_shape(call, self, form->dims, form->keep, shape);
}

/// Make the result and call the row's function with the call's arguments.
static enum dit_status run_library(struct dit_call *call, const struct dit_tensor_view *self,
                                   const struct reduce_shape *shape, int dtype) {
  struct dit_tensor_view *given = call->op->target == OP_OUT ? op_get_given(call, 0) : NULL, out;
  const struct dit_tensor_view *outs[1] = {&out};
  if (!op_is_element(dtype) || (call->op->target == OP_OUT && !given) || !op_can_invoke(call, call->op->function)) {
    return DIT_ERR_UNSUPPORTED;
  }
  DIT_RETURN_IF_NOT_OK(op_prepare_contiguous(call, given, &self, 1, shape->ndim, shape->sizes, dtype, &out));
  DIT_RETURN_IF_NOT_OK(op_invoke(call, call->op->function, outs, 0));
  return op_return(call, 0, &out);
}

const struct dit_tensor_view *reduce_get_self(struct dit_call *call) {
  const struct dit_tensor_view *self = op_get_tensor(call, 0);
  return op_check_input(self) == DIT_OK && op_is_device(self) ? self : NULL;
}

// Sum, mean, prod

/// Result dtype; -1 where PyTorch refuses. A given result tells it when `dtype` does not.
static int get_sum_dtype(struct dit_call *call, const struct dit_tensor_view *self, const struct dit_value *asked,
                         bool mean, bool exact) {
  const struct dit_tensor_view *given = call->op->target == OP_OUT && !exact ? op_get_given(call, 0) : NULL;
  int dtype = asked->tag == DIT_VALUE_INT ? (int)asked->v.i : self->dtype;
  if (given && asked->tag == DIT_VALUE_NONE) {
    dtype = given->dtype;  // PyTorch accumulates in the type of a given result
    return mean && dtype != self->dtype ? -1 : dtype;
  }
  if (!mean && asked->tag == DIT_VALUE_NONE && !op_is_floating(dtype) && !op_is_complex(dtype)) {
    return DIT_DTYPE_I64;
  }
  return dtype;
}

static enum dit_status run_sum(struct dit_call *call, const struct form *form) {
  const struct dit_tensor_view *self = op_get_tensor(call, 0);
  const bool mean = call->op->function == DIT_DIOPI_diopiMean;
  struct reduce_shape shape;
  if (op_check_element(self) != DIT_OK || !op_is_device(self) ||
      (call->op->target == OP_OUT && !op_get_given(call, 0)) || !infer_shape(call, self, form, &shape)) {
    return DIT_ERR_UNSUPPORTED;
  }
  const bool exact = form->dims < 0;  // these out= forms take the functional form's dtype alone
  const int dtype = get_sum_dtype(call, self, &call->args[form->dtype], mean, exact);
  if (!op_is_element(dtype) || dtype == DIT_DTYPE_BOOL || (mean && !op_is_floating(dtype) && !op_is_complex(dtype)) ||
      (op_is_complex(self->dtype) && !op_is_complex(dtype))) {
    return DIT_ERR_UNSUPPORTED;
  }
  call->args[form->dtype].tag = DIT_VALUE_NONE;  // the result's dtype says it; the place may be the one of `dim`
  return run_library(call, self, &shape, dtype);
}

enum dit_status op_sum(struct dit_call *call) {
  static const struct form form = {-1, -1, 1};
  return run_sum(call, &form);
}
enum dit_status op_sum_dim(struct dit_call *call) {
  static const struct form form = {1, 2, 3};
  return run_sum(call, &form);
}

// One result per slice, without a dtype argument

static const struct form no_form = {-1, -1, -1}, dim_form = {1, 2, -1};

static enum dit_status run_plain(struct dit_call *call, const struct form *form, int dtype, bool empty) {
  const struct dit_tensor_view *self = reduce_get_self(call);
  struct reduce_shape shape;
  if (!self || !infer_shape(call, self, form, &shape) || (!empty && self->numel == 0)) {
    return DIT_ERR_UNSUPPORTED;
  }
  return run_library(call, self, &shape, dtype < 0 ? self->dtype : dtype);
}

enum dit_status op_extreme(struct dit_call *call) {
  return run_plain(call, &no_form, -1, false);
}
enum dit_status op_extreme_dims(struct dit_call *call) {
  return run_plain(call, &dim_form, -1, false);
}
enum dit_status op_position(struct dit_call *call) {
  return run_plain(call, &dim_form, DIT_DTYPE_I64, false);
}

static int get_truth_dtype(struct dit_call *call) {
  const struct dit_tensor_view *self = op_get_tensor(call, 0);
  return self && self->dtype == DIT_DTYPE_U8 ? DIT_DTYPE_U8 : DIT_DTYPE_BOOL;
}
enum dit_status op_truth(struct dit_call *call) {
  return run_plain(call, &no_form, get_truth_dtype(call), true);
}
enum dit_status op_truth_dim(struct dit_call *call) {
  return run_plain(call, &dim_form, get_truth_dtype(call), true);
}

// Norm, std

static void set_default(struct dit_value *value, int64_t number) {
  if (value->tag == DIT_VALUE_NONE) {
    value->tag = DIT_VALUE_INT;
    value->v.i = number;
  }
}

/// Floating input, result of the same dtype. Norms of complex numbers are real.
static enum dit_status run_floating(struct dit_call *call, const struct form *form, bool norm) {
  const struct dit_tensor_view *self = op_get_tensor(call, 0);
  struct reduce_shape shape;
  if (!self || op_check_element(self) != DIT_OK || !op_is_device(self) || self->numel == 0 ||
      !(op_is_floating(self->dtype) || (norm && op_is_complex(self->dtype))) ||
      (form->dtype >= 0 && call->args[form->dtype].tag == DIT_VALUE_INT &&
       call->args[form->dtype].v.i != self->dtype) ||
      !infer_shape(call, self, form, &shape)) {
    return DIT_ERR_UNSUPPORTED;
  }
  return run_library(call, self, &shape, op_is_complex(self->dtype) ? dit_dtype_get_real(self->dtype) : self->dtype);
}

enum dit_status op_norm(struct dit_call *call) {
  set_default(&call->args[1], 2);
  return run_floating(call, &no_form, true);
}
enum dit_status op_norm_dim(struct dit_call *call) {
  static const struct form form = {2, 3, -1};
  set_default(&call->args[1], 2);
  return run_floating(call, &form, true);
}
enum dit_status op_vector_norm(struct dit_call *call) {
  static const struct form form = {2, 3, 4};
  return run_floating(call, &form, true);
}

/// std with less than two degrees of freedom makes PyTorch warn: left to it.
enum dit_status op_std(struct dit_call *call) {
  static const struct form form = {1, 3, -1};
  const struct dit_tensor_view *self = reduce_get_self(call);
  struct reduce_shape shape;
  set_default(&call->args[2], 1);
  if (!self || !infer_shape(call, self, &form, &shape) || call->args[2].tag != DIT_VALUE_INT ||
      shape.reduced <= call->args[2].v.i) {
    return DIT_ERR_UNSUPPORTED;
  }
  return run_floating(call, &form, false);
}

// Values and indices

enum dit_status op_extreme_dim(struct dit_call *call) {
  const struct dit_tensor_view *self = reduce_get_self(call);
  const bool given = call->op->target == OP_OUT;
  struct dit_tensor_view values, indices;
  struct reduce_shape shape;
  if (!self || !infer_shape(call, self, &dim_form, &shape) || self->numel == 0 ||
      !op_can_invoke(call, call->op->function) || (given && (!op_get_given(call, 0) || !op_get_given(call, 1))) ||
      (given && op_get_given(call, 0)->storage == op_get_given(call, 1)->storage)) {
    return DIT_ERR_UNSUPPORTED;
  }
  if (given && (op_get_given(call, 0)->dtype != self->dtype || op_get_given(call, 1)->dtype != DIT_DTYPE_I64)) {
    return DIT_ERR_UNSUPPORTED;
  }
  DIT_RETURN_IF_NOT_OK(op_prepare_contiguous(call, given ? op_get_given(call, 0) : NULL, &self, 1, shape.ndim,
                                             shape.sizes, self->dtype, &values));
  DIT_RETURN_IF_NOT_OK(op_prepare_contiguous(call, given ? op_get_given(call, 1) : NULL, &self, 1, shape.ndim,
                                             shape.sizes, DIT_DTYPE_I64, &indices));
  const struct dit_tensor_view *outs[2] = {&values, &indices};
  DIT_RETURN_IF_NOT_OK(op_invoke(call, call->op->function, outs, 0));
  DIT_RETURN_IF_NOT_OK(op_return(call, 0, &values));
  return op_return(call, 1, &indices);
}

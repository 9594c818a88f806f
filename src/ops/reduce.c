/// sum and mean: over all dimensions or a list of them; the result is row-major.
///
/// sum of integers and bool is int64 unless `dtype` says otherwise; mean needs a floating dtype. An empty dimension
/// list means all. Every element is converted to the result dtype before it is added.
#include <stddef.h>

#include "infer.h"
#include "table.h"

/// Bits of the dimensions to reduce; false for a wrong or repeated one.
static bool get_mask(const struct dit_value *dims, int ndim, uint32_t *mask) {
  const uint32_t all = ndim == 0 ? 0 : (uint32_t)((UINT64_C(1) << ndim) - 1);
  *mask = 0;
  if (dims->tag == DIT_VALUE_NONE || (dims->tag == DIT_VALUE_INTS && dims->v.ints.size == 0)) {
    *mask = all;
    return true;
  }
  if (dims->tag != DIT_VALUE_INTS) {
    return false;
  }
  for (int64_t i = 0; i < dims->v.ints.size; i++) {
    int64_t dim = dims->v.ints.data[i], wrap = ndim > 0 ? ndim : 1;
    dim += dim < 0 ? wrap : 0;
    if (dim < 0 || dim >= wrap || *mask >> dim & 1 || (ndim == 0 && i > 0)) {
      return false;
    }
    *mask |= ndim > 0 ? 1u << dim : 0;
  }
  return true;
}

static int get_dtype(enum dit_reduce_kind kind, const struct dit_tensor_view *self, const struct dit_value *asked) {
  int dtype = asked->tag == DIT_VALUE_INT ? (int)asked->v.i : self->dtype;
  if (kind == DIT_REDUCE_SUM && asked->tag == DIT_VALUE_NONE && !op_is_floating(dtype)) {
    return DIT_DTYPE_I64;
  }
  if (kind == DIT_REDUCE_MEAN && !op_is_floating(dtype)) {
    return -1;
  }
  return dtype;
}

static enum dit_status run_reduce(struct dit_call *call, enum dit_reduce_kind kind, const struct dit_value *dims,
                                  bool keep, const struct dit_value *asked, enum op_target target, int out_index) {
  const struct dit_tensor_view *self = op_get_tensor(call, 0);
  struct dit_tensor_view *given = target == OP_OUT ? op_get_tensor(call, out_index) : NULL, out;
  uint32_t mask;
  if (!OP_HAS_KERNEL(call, reduce) || op_check_input(self) != DIT_OK || !op_is_device(self) ||
      (target == OP_OUT && !given) || !get_mask(dims, self->ndim, &mask)) {
    return DIT_ERR_UNSUPPORTED;
  }
  int dtype = get_dtype(kind, self, asked);
  if (target == OP_OUT && asked->tag == DIT_VALUE_NONE) {
    dtype = given->dtype;  // PyTorch accumulates in the type of a given result
    if (kind == DIT_REDUCE_MEAN && dtype != self->dtype) {
      return DIT_ERR_UNSUPPORTED;
    }
  }
  if (!op_is_plain(dtype) || dtype == DIT_DTYPE_BOOL) {
    return DIT_ERR_UNSUPPORTED;
  }
  int64_t sizes[DIT_MAX_DIMS], full_sizes[DIT_MAX_DIMS], strides[DIT_MAX_DIMS];
  int ndim = 0;
  for (int dim = 0; dim < self->ndim; dim++) {
    bool reduced = mask >> dim & 1;
    full_sizes[dim] = reduced ? 1 : self->sizes[dim];
    if (!reduced || keep) {
      sizes[ndim++] = full_sizes[dim];
    }
  }
  DIT_RETURN_IF_NOT_OK(op_prepare_contiguous(call, given, &self, 1, ndim, sizes, dtype, &out));
  struct dit_tensor_view full = out;
  for (int dim = 0, next = 0; dim < self->ndim; dim++) {
    bool reduced = mask >> dim & 1;
    strides[dim] = reduced ? 0 : out.strides[next];
    next += !reduced || keep;
  }
  full.sizes = full_sizes;
  full.strides = strides;
  full.ndim = self->ndim;
  DIT_RETURN_IF_NOT_OK(call->kernels->reduce(call->stream, kind, &full, self, mask, call->err));
  return op_return(call, 0, &out);
}

static const struct dit_value none = {.tag = DIT_VALUE_NONE};

enum dit_status op_sum(struct dit_call *call) {
  return run_reduce(call, DIT_REDUCE_SUM, &none, false, &call->args[1], OP_NEW, 0);
}
enum dit_status op_sum_dim(struct dit_call *call) {
  return run_reduce(call, DIT_REDUCE_SUM, &call->args[1], call->args[2].v.i != 0, &call->args[3], OP_NEW, 0);
}
enum dit_status op_sum_out(struct dit_call *call) {
  return run_reduce(call, DIT_REDUCE_SUM, &call->args[1], call->args[2].v.i != 0, &call->args[3], OP_OUT, 4);
}
enum dit_status op_mean(struct dit_call *call) {
  return run_reduce(call, DIT_REDUCE_MEAN, &none, false, &call->args[1], OP_NEW, 0);
}
enum dit_status op_mean_dim(struct dit_call *call) {
  return run_reduce(call, DIT_REDUCE_MEAN, &call->args[1], call->args[2].v.i != 0, &call->args[3], OP_NEW, 0);
}
enum dit_status op_mean_out(struct dit_call *call) {
  return run_reduce(call, DIT_REDUCE_MEAN, &call->args[1], call->args[2].v.i != 0, &call->args[3], OP_OUT, 4);
}

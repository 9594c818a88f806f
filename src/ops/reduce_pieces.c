/// Reductions that the standard has no function for, made of several that it has.
///
///   any, all over some dimensions   one dimension after the other; all of them at once
///   amin, aminmax                   minima along one dimension after the other; the largest by diopiAmax
///   var, var_mean, std_mean         the square of the standard deviation; half types are widened to float for it
///   count_nonzero, nansum           the sum of x != 0; the sum of x without its NaNs
///
/// Shapes and dtypes as in reduce.c. Scratch tensors come from the framework. A library that lacks one of the pieces
/// leaves the whole to the CPU.
#include <stddef.h>

#include "reduce.h"
#include "table.h"

/// A view with sizes and strides of its own.
struct shaped {
  struct dit_tensor_view view;
  int64_t sizes[DIT_MAX_DIMS], strides[DIT_MAX_DIMS];
};

static enum dit_status new_like(struct dit_call *call, int ndim, const int64_t *sizes, int dtype,
                                struct dit_tensor_view *out) {
  return call->services->new_tensor(call, ndim, sizes, NULL, dtype, out);
}

/// The tensor without the dimensions of `mask`, which have one element.
static void squeeze(struct shaped *out, const struct dit_tensor_view *view, uint32_t mask) {
  out->view = *view;
  out->view.sizes = out->sizes;
  out->view.strides = out->strides;
  out->view.ndim = 0;
  for (int dim = 0; dim < view->ndim; dim++) {
    if (!(mask >> dim & 1)) {
      out->sizes[out->view.ndim] = view->sizes[dim];
      out->strides[out->view.ndim++] = view->strides[dim];
    }
  }
}

/// The given tensor of an out= form; false when there should be one and is none.
static bool get_given(struct dit_call *call, int index, struct dit_tensor_view **given) {
  *given = call->op->target == OP_OUT ? op_get_given(call, index) : NULL;
  return call->op->target != OP_OUT || *given;
}

static bool has_functions(struct dit_call *call, const int *functions) {
  for (; *functions; functions++) {
    if (!dit_diopi_library_get(call->diopi, *functions)) {
      return false;
    }
  }
  return true;
}

// One dimension after the other

typedef enum dit_status fold_step(struct dit_call *call, const struct dit_tensor_view *out,
                                  const struct dit_tensor_view *in, int64_t dim);

/// `out` keeps its reduced dimensions or not, as `keep` says; the last dimension goes first, so that the numbers of the
/// others stay.
static enum dit_status fold_dims(struct dit_call *call, fold_step *step, const struct dit_tensor_view *in,
                                 uint32_t mask, bool keep, const struct dit_tensor_view *out) {
  struct shaped last, room;
  struct dit_tensor_view from = *in, to;
  squeeze(&last, out, keep ? mask : 0);
  for (int dim = in->ndim - 1; dim >= 0; dim--) {
    if (!(mask >> dim & 1)) {
      continue;
    }
    const bool final = (mask & ((1u << dim) - 1)) == 0;
    squeeze(&room, &from, 1u << dim);
    if (final) {
      to = last.view;
    } else {
      DIT_RETURN_IF_NOT_OK(new_like(call, room.view.ndim, room.sizes, out->dtype, &to));
    }
    DIT_RETURN_IF_NOT_OK(step(call, &to, &from, dim));
    from = to;
  }
  return DIT_OK;
}

static int count_dims(uint32_t mask) {
  int count = 0;
  for (; mask; mask &= mask - 1) {
    count++;
  }
  return count;
}

static enum dit_status step_truth(struct dit_call *call, const struct dit_tensor_view *out,
                                  const struct dit_tensor_view *in, int64_t dim) {
  struct diopiContext context;
  struct diopiTensor to, from;
  op_context_init(&context, call);
  if (call->op->function == DIT_DIOPI_diopiAny) {
    return OP_DIOPI(call, &context, diopiAny, op_handle(call, &to, out), op_handle(call, &from, in), &dim);
  }
  return OP_DIOPI(call, &context, diopiAll, op_handle(call, &to, out), op_handle(call, &from, in), &dim);
}

enum dit_status op_truth_dims(struct dit_call *call) {
  const struct dit_tensor_view *self = reduce_get_self(call);
  struct dit_tensor_view *given, out;
  struct reduce_shape shape;
  if (!self || !get_given(call, 0, &given) || !reduce_infer_shape(call, self, 1, 2, &shape) ||
      !op_can_invoke(call, call->op->function)) {
    return DIT_ERR_UNSUPPORTED;
  }
  if (call->args[1].tag == DIT_VALUE_INTS && call->args[1].v.ints.size == 0) {
    return DIT_ERR_UNSUPPORTED;  // an empty list reduces nothing here, unlike everywhere else
  }
  const int dtype = self->dtype == DIT_DTYPE_U8 ? DIT_DTYPE_U8 : DIT_DTYPE_BOOL;
  DIT_RETURN_IF_NOT_OK(op_prepare_contiguous(call, given, &self, 1, shape.ndim, shape.sizes, dtype, &out));
  if (count_dims(shape.mask) == self->ndim) {
    const struct dit_tensor_view *outs[1] = {&out};
    call->args[1].tag = DIT_VALUE_NONE;
    DIT_RETURN_IF_NOT_OK(op_invoke(call, call->op->function, outs, 0));
  } else {
    DIT_RETURN_IF_NOT_OK(fold_dims(call, step_truth, self, shape.mask, shape.keep, &out));
  }
  return op_return(call, 0, &out);
}

// In one piece, where the vendor has a kernel

/// DIT_ERR_UNSUPPORTED, and nothing written, where it has none.
static enum dit_status run_fold(struct dit_call *call, enum dit_kernel_fold fold, const struct dit_tensor_view *out,
                                const struct dit_tensor_view *self, const struct reduce_shape *shape) {
  struct shaped kept;
  if (!OP_HAS_KERNEL(call, fold) || self->numel == 0) {
    return DIT_ERR_UNSUPPORTED;
  }
  kept.view = *out;
  kept.view.ndim = self->ndim;
  kept.view.sizes = kept.sizes;
  kept.view.strides = kept.strides;
  for (int dim = 0, next = 0; dim < self->ndim; dim++) {
    const bool reduced = shape->mask >> dim & 1;
    kept.sizes[dim] = reduced ? 1 : self->sizes[dim];
    kept.strides[dim] = reduced && !shape->keep ? 0 : out->strides[next];
    next += !reduced || shape->keep;
  }
  return call->kernels->fold(call->stream, fold, &kept.view, self, shape->mask, call->err);
}

static enum dit_status step_min(struct dit_call *call, const struct dit_tensor_view *out,
                                const struct dit_tensor_view *in, int64_t dim) {
  struct diopiContext context;
  struct diopiTensor to, at, from;
  struct dit_tensor_view indices;
  DIT_RETURN_IF_NOT_OK(new_like(call, out->ndim, out->sizes, DIT_DTYPE_I64, &indices));
  op_context_init(&context, call);
  return OP_DIOPI(call, &context, diopiMin, op_handle(call, &to, out), op_handle(call, &at, &indices),
                  op_handle(call, &from, in), dim);
}

static enum dit_status run_min(struct dit_call *call, const struct dit_tensor_view *out,
                               const struct dit_tensor_view *self, const struct reduce_shape *shape) {
  const enum dit_status status = run_fold(call, DIT_KERNEL_FOLD_MIN, out, self, shape);
  if (status != DIT_ERR_UNSUPPORTED) {
    return status;
  }
  if (count_dims(shape->mask) == self->ndim) {
    struct diopiContext context;
    struct diopiTensor to, from;
    op_context_init(&context, call);
    return OP_DIOPI(call, &context, diopiMinAll, op_handle(call, &to, out), op_handle(call, &from, self));
  }
  return fold_dims(call, step_min, self, shape->mask, shape->keep, out);
}

enum dit_status op_amin(struct dit_call *call) {
  static const int pieces[] = {DIT_DIOPI_diopiMin, DIT_DIOPI_diopiMinAll, 0};
  const struct dit_tensor_view *self = reduce_get_self(call);
  struct dit_tensor_view *given, out;
  struct reduce_shape shape;
  if (!self || !get_given(call, 0, &given) || !reduce_infer_shape(call, self, 1, 2, &shape) || self->numel == 0 ||
      !has_functions(call, pieces)) {
    return DIT_ERR_UNSUPPORTED;
  }
  DIT_RETURN_IF_NOT_OK(op_prepare_contiguous(call, given, &self, 1, shape.ndim, shape.sizes, self->dtype, &out));
  DIT_RETURN_IF_NOT_OK(run_min(call, &out, self, &shape));
  return op_return(call, 0, &out);
}

enum dit_status op_aminmax(struct dit_call *call) {
  static const int pieces[] = {DIT_DIOPI_diopiMin, DIT_DIOPI_diopiMinAll, DIT_DIOPI_diopiAmax, 0};
  const struct dit_tensor_view *self = reduce_get_self(call);
  struct dit_tensor_view *given[2], least, most;
  struct reduce_shape shape;
  struct diopiContext context;
  struct diopiTensor to, from;
  if (!self || !get_given(call, 0, &given[0]) || !get_given(call, 1, &given[1]) ||
      !reduce_infer_shape(call, self, 1, 2, &shape) || self->numel == 0 || !has_functions(call, pieces) ||
      (given[0] && given[0]->storage == given[1]->storage)) {
    return DIT_ERR_UNSUPPORTED;
  }
  DIT_RETURN_IF_NOT_OK(op_prepare_contiguous(call, given[0], &self, 1, shape.ndim, shape.sizes, self->dtype, &least));
  DIT_RETURN_IF_NOT_OK(op_prepare_contiguous(call, given[1], &self, 1, shape.ndim, shape.sizes, self->dtype, &most));
  DIT_RETURN_IF_NOT_OK(run_min(call, &least, self, &shape));
  const int64_t dim = call->args[1].v.i;
  const diopiSize_t dims = {&dim, call->args[1].tag == DIT_VALUE_INT};
  op_context_init(&context, call);
  DIT_RETURN_IF_NOT_OK(
      OP_DIOPI(call, &context, diopiAmax, op_handle(call, &to, &most), op_handle(call, &from, self), dims, shape.keep));
  DIT_RETURN_IF_NOT_OK(op_return(call, 0, &least));
  return op_return(call, 1, &most);
}

// Variance

struct spread {
  const struct dit_tensor_view *self;
  struct reduce_shape shape;
  int work;  ///< float for the half types
  struct dit_scalar correction;
  diopiSize_t dims;
  int64_t one;
};

static diopiSize_t get_dims(const struct dit_value *value, int64_t *room) {
  if (value->tag == DIT_VALUE_INT) {
    *room = value->v.i;
    return (diopiSize_t){room, 1};
  }
  return value->tag == DIT_VALUE_INTS ? (diopiSize_t){value->v.ints.data, value->v.ints.size} : (diopiSize_t){NULL, 0};
}

/// Less than one degree of freedom makes PyTorch warn: left to it.
static bool begin_spread(struct dit_call *call, struct spread *spread) {
  static const int pieces[] = {DIT_DIOPI_diopiStd, DIT_DIOPI_diopiMean, DIT_DIOPI_diopiMul, DIT_DIOPI_diopiCastDtype,
                               0};
  const struct dit_value *correction = &call->args[2];
  spread->self = reduce_get_self(call);
  if (!spread->self || !op_is_floating(spread->self->dtype) || spread->self->numel == 0 ||
      !has_functions(call, pieces) || !reduce_infer_shape(call, spread->self, 1, 3, &spread->shape)) {
    return false;
  }
  spread->correction = (struct dit_scalar){DIT_SCALAR_INT, {.i = 1}};
  if (correction->tag != DIT_VALUE_NONE && op_read_scalar(correction, &spread->correction) != DIT_OK) {
    return false;
  }
  spread->work = op_is_half(spread->self->dtype) ? DIT_DTYPE_F32 : spread->self->dtype;
  spread->dims = get_dims(&call->args[1], &spread->one);
  return spread->correction.kind == DIT_SCALAR_INT && spread->shape.reduced > spread->correction.v.i;
}

static enum dit_status cast(struct dit_call *call, const struct dit_tensor_view *out,
                            const struct dit_tensor_view *in) {
  struct diopiContext context;
  struct diopiTensor to, from;
  op_context_init(&context, call);
  return OP_DIOPI(call, &context, diopiCastDtype, op_handle(call, &to, out), op_handle(call, &from, in));
}

/// out = the standard deviation, or its square.
static enum dit_status run_spread(struct dit_call *call, const struct spread *spread, bool square,
                                  const struct dit_tensor_view *out) {
  struct dit_tensor_view in = *spread->self, to = *out;
  struct diopiContext context;
  struct diopiTensor target, source;
  diopiScalar_t correction;
  if (spread->work != in.dtype) {
    DIT_RETURN_IF_NOT_OK(new_like(call, in.ndim, in.sizes, spread->work, &in));
    DIT_RETURN_IF_NOT_OK(cast(call, &in, spread->self));
    DIT_RETURN_IF_NOT_OK(new_like(call, out->ndim, out->sizes, spread->work, &to));
  }
  op_context_init(&context, call);
  DIT_RETURN_IF_NOT_OK(OP_DIOPI(call, &context, diopiStd, op_handle(call, &target, &to), op_handle(call, &source, &in),
                                spread->dims, op_scalar(&correction, spread->correction)));
  if (square) {
    struct diopiTensor left, right;
    op_context_init(&context, call);
    DIT_RETURN_IF_NOT_OK(OP_DIOPI(call, &context, diopiMul, op_handle(call, &target, &to), op_handle(call, &left, &to),
                                  op_handle(call, &right, &to)));
  }
  return spread->work == out->dtype ? DIT_OK : cast(call, out, &to);
}

enum dit_status op_var(struct dit_call *call) {
  struct spread spread;
  struct dit_tensor_view *given, out;
  if (!get_given(call, 0, &given) || !begin_spread(call, &spread)) {
    return DIT_ERR_UNSUPPORTED;
  }
  DIT_RETURN_IF_NOT_OK(op_prepare_contiguous(call, given, &spread.self, 1, spread.shape.ndim, spread.shape.sizes,
                                             spread.self->dtype, &out));
  DIT_RETURN_IF_NOT_OK(run_spread(call, &spread, true, &out));
  return op_return(call, 0, &out);
}

static enum dit_status run_spread_mean(struct dit_call *call, bool square) {
  struct spread spread;
  struct dit_tensor_view *given[2], out, mean;
  struct diopiContext context;
  struct diopiTensor to, from;
  if (!get_given(call, 0, &given[0]) || !get_given(call, 1, &given[1]) || !begin_spread(call, &spread) ||
      (given[0] && given[0]->storage == given[1]->storage)) {
    return DIT_ERR_UNSUPPORTED;
  }
  const struct reduce_shape *shape = &spread.shape;
  DIT_RETURN_IF_NOT_OK(
      op_prepare_contiguous(call, given[0], &spread.self, 1, shape->ndim, shape->sizes, spread.self->dtype, &out));
  DIT_RETURN_IF_NOT_OK(
      op_prepare_contiguous(call, given[1], &spread.self, 1, shape->ndim, shape->sizes, spread.self->dtype, &mean));
  DIT_RETURN_IF_NOT_OK(run_spread(call, &spread, square, &out));
  op_context_init(&context, call);
  DIT_RETURN_IF_NOT_OK(OP_DIOPI(call, &context, diopiMean, op_handle(call, &to, &mean),
                                op_handle(call, &from, spread.self), spread.dims));
  DIT_RETURN_IF_NOT_OK(op_return(call, 0, &out));
  return op_return(call, 1, &mean);
}

enum dit_status op_var_mean(struct dit_call *call) {
  return run_spread_mean(call, true);
}
enum dit_status op_std_mean(struct dit_call *call) {
  return run_spread_mean(call, false);
}

// Sums of something made of the input

static enum dit_status run_sum(struct dit_call *call, const struct dit_tensor_view *out,
                               const struct dit_tensor_view *in, diopiSize_t dims) {
  struct diopiContext context;
  struct diopiTensor to, from;
  op_context_init(&context, call);
  return OP_DIOPI(call, &context, diopiSum, op_handle(call, &to, out), op_handle(call, &from, in), dims);
}

enum dit_status op_count_nonzero(struct dit_call *call) {
  static const int pieces[] = {DIT_DIOPI_diopiNeScalar, DIT_DIOPI_diopiSum, 0};
  const struct dit_tensor_view *self = reduce_get_self(call);
  struct dit_tensor_view *given, mask, out;
  struct reduce_shape shape;
  int64_t room;
  if (!self || !get_given(call, 0, &given) || !reduce_infer_shape(call, self, 1, -1, &shape) ||
      !has_functions(call, pieces)) {
    return DIT_ERR_UNSUPPORTED;
  }
  mask = *self;
  DIT_RETURN_IF_NOT_OK(op_prepare_contiguous(call, given, &self, 1, shape.ndim, shape.sizes, DIT_DTYPE_I64, &out));
  if (self->dtype != DIT_DTYPE_BOOL) {
    struct diopiContext context;
    struct diopiTensor to, from;
    diopiScalar_t zero;
    const int64_t *strides = self->flags & DIT_TENSOR_DENSE ? self->strides : NULL;  // the order does not matter
    DIT_RETURN_IF_NOT_OK(call->services->new_tensor(call, self->ndim, self->sizes, strides, DIT_DTYPE_BOOL, &mask));
    op_context_init(&context, call);
    DIT_RETURN_IF_NOT_OK(OP_DIOPI(call, &context, diopiNeScalar, op_handle(call, &to, &mask),
                                  op_handle(call, &from, self),
                                  op_scalar(&zero, (struct dit_scalar){DIT_SCALAR_INT, {.i = 0}})));
  }
  DIT_RETURN_IF_NOT_OK(run_sum(call, &out, &mask, get_dims(&call->args[1], &room)));
  return op_return(call, 0, &out);
}

enum dit_status op_nansum(struct dit_call *call) {
  static const int pieces[] = {DIT_DIOPI_diopiIsNan, DIT_DIOPI_diopiMaskedFillScalar, DIT_DIOPI_diopiSum, 0};
  const struct dit_tensor_view *self = reduce_get_self(call);
  const struct dit_value *asked = &call->args[3];
  struct dit_tensor_view *given, mask, clean, out;
  struct diopiContext context;
  struct diopiTensor to, from, where;
  struct reduce_shape shape;
  diopiScalar_t zero;
  int64_t room;
  if (self && !op_is_floating(self->dtype) && !op_is_complex(self->dtype)) {  // nothing is NaN
    return op_sum_dim(call);
  }
  if (!self || !get_given(call, 0, &given) || !reduce_infer_shape(call, self, 1, 2, &shape) ||
      !has_functions(call, pieces) || !op_is_floating(self->dtype) ||
      (asked->tag == DIT_VALUE_INT && !op_is_floating((int)asked->v.i))) {
    return DIT_ERR_UNSUPPORTED;
  }
  const int dtype = asked->tag == DIT_VALUE_INT ? (int)asked->v.i : self->dtype;
  DIT_RETURN_IF_NOT_OK(op_prepare_contiguous(call, given, &self, 1, shape.ndim, shape.sizes, dtype, &out));
  const enum dit_status status = run_fold(call, DIT_KERNEL_FOLD_NANSUM, &out, self, &shape);
  if (status != DIT_ERR_UNSUPPORTED) {
    return status == DIT_OK ? op_return(call, 0, &out) : status;
  }
  DIT_RETURN_IF_NOT_OK(new_like(call, self->ndim, self->sizes, DIT_DTYPE_BOOL, &mask));
  DIT_RETURN_IF_NOT_OK(new_like(call, self->ndim, self->sizes, self->dtype, &clean));
  op_context_init(&context, call);
  DIT_RETURN_IF_NOT_OK(
      OP_DIOPI(call, &context, diopiIsNan, op_handle(call, &where, &mask), op_handle(call, &from, self)));
  op_context_init(&context, call);
  DIT_RETURN_IF_NOT_OK(OP_DIOPI(call, &context, diopiMaskedFillScalar, op_handle(call, &to, &clean),
                                op_handle(call, &from, self), op_handle(call, &where, &mask),
                                op_scalar(&zero, (struct dit_scalar){DIT_SCALAR_DOUBLE, {.d = 0}})));
  DIT_RETURN_IF_NOT_OK(run_sum(call, &out, &clean, get_dims(&call->args[1], &room)));
  return op_return(call, 0, &out);
}

/// Pieces of tensors (see movement.h).
#include <string.h>

#include "movement.h"

diopiError_t piece_init(struct piece *piece, diopiConstTensorHandle_t tensor, const char *name) {
  ADAPT_CHECK_ARGUMENT(tensor, "'%s' is NULL; it must be a tensor", name);
  ADAPT_CHECK_ARGUMENT(tensor->view.flags & DIT_TENSOR_ON_DEVICE, "'%s' is in the host's memory", name);
  ADAPT_CHECK_ARGUMENT(tensor->view.ndim <= DIT_MAX_DIMS, "'%s' has more than %d dimensions", name, DIT_MAX_DIMS);
  piece->view = tensor->view;
  for (int d = 0; d < tensor->view.ndim; d++) {
    piece->sizes[d] = tensor->view.sizes[d];
    piece->strides[d] = tensor->view.strides[d];
  }
  piece->view.sizes = piece->sizes;
  piece->view.strides = piece->strides;
  return diopiSuccess;
}

void piece_copy(struct piece *piece, const struct piece *from) {
  *piece = *from;
  piece->view.sizes = piece->sizes;
  piece->view.strides = piece->strides;
}

void piece_update(struct piece *piece) {
  struct dit_tensor_view *view = &piece->view;
  view->numel = 1;
  for (int d = 0; d < view->ndim; d++) {
    view->numel *= piece->sizes[d];
  }
  view->flags &= (uint8_t) ~(DIT_TENSOR_CONTIGUOUS | DIT_TENSOR_DENSE);
  if (dit_shape_is_contiguous(view->ndim, piece->sizes, piece->strides)) {
    view->flags |= DIT_TENSOR_CONTIGUOUS | DIT_TENSOR_DENSE;
  }
}

void piece_narrow(struct piece *piece, int dim, int64_t start, int64_t length, int64_t step) {
  if (piece->view.data && length > 0) {
    piece->view.data =
        (char *)piece->view.data + start * piece->strides[dim] * (int64_t)dit_dtype_get_size(piece->view.dtype);
  }
  piece->sizes[dim] = length;
  piece->strides[dim] *= step;
  piece_update(piece);
}

void piece_drop(struct piece *piece, int dim) {
  const size_t rest = (size_t)(piece->view.ndim - dim - 1) * sizeof(int64_t);
  memmove(piece->sizes + dim, piece->sizes + dim + 1, rest);
  memmove(piece->strides + dim, piece->strides + dim + 1, rest);
  piece->view.ndim--;
  piece_update(piece);
}

void piece_insert(struct piece *piece, int dim) {
  const size_t rest = (size_t)(piece->view.ndim - dim) * sizeof(int64_t);
  memmove(piece->sizes + dim + 1, piece->sizes + dim, rest);
  memmove(piece->strides + dim + 1, piece->strides + dim, rest);
  piece->sizes[dim] = 1;
  piece->strides[dim] = 1;
  piece->view.ndim++;
  piece_update(piece);
}

diopiError_t piece_wrap_dim(const char *what, int64_t dim, int ndim, int *out) {
  const int64_t room = ndim > 0 ? ndim : 1;
  ADAPT_CHECK_ARGUMENT(dim >= -room && dim < room, "%s is %lld; valid: %lld to %lld", what, (long long)dim,
                       (long long)-room, (long long)room - 1);
  *out = (int)(dim < 0 ? dim + room : dim);
  return diopiSuccess;
}

diopiError_t piece_check_shape(const struct piece *out, int ndim, const int64_t *sizes) {
  ADAPT_CHECK_ARGUMENT(out->view.ndim == ndim, "the output has %d dimensions; it must have %d", out->view.ndim, ndim);
  for (int d = 0; d < ndim; d++) {
    ADAPT_CHECK_ARGUMENT(out->sizes[d] == sizes[d], "the output has size %lld in dimension %d; it must be %lld",
                         (long long)out->sizes[d], d, (long long)sizes[d]);
  }
  return diopiSuccess;
}

diopiError_t piece_copy_mapped(diopiContextHandle_t ctx, const struct piece *out, const struct piece *in, int dim,
                               const int64_t *map) {
  for (int64_t j = 0, run; j < out->sizes[dim]; j += run) {
    struct piece to, from;
    run = 1;
    if (map[j] < 0) {
      continue;
    }
    while (j + run < out->sizes[dim] && map[j + run] == map[j] + run) {
      run++;
    }
    piece_copy(&to, out);
    piece_copy(&from, in);
    piece_narrow(&to, dim, j, run, 1);
    piece_narrow(&from, dim, map[j], run, 1);
    ADAPT_TRY(adapt_copy(ctx, &to.view, &from.view, ADAPT_WRAP));
  }
  return diopiSuccess;
}

diopiError_t piece_fill(diopiContextHandle_t ctx, const struct piece *out, const diopiScalar_t *value) {
  const bool real = value->stype == diopi_dtype_float16 || value->stype == diopi_dtype_float32 ||
                    value->stype == diopi_dtype_float64 || value->stype == diopi_dtype_bfloat16 ||
                    value->stype == diopi_dtype_tfloat32;
  return adapt_write(ctx, &out->view, real ? (const void *)&value->fval : (const void *)&value->ival,
                     real ? DIT_DTYPE_F64 : DIT_DTYPE_I64, 1);
}

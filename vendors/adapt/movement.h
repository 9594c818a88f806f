/// Pieces of tensors for composites that are copies alone: views with their own sizes and strides.
#ifndef DIT_ADAPT_MOVEMENT_H
#define DIT_ADAPT_MOVEMENT_H

#include "adapt.h"

/// A view that owns its sizes and strides. Not to be moved once initialised: the view points into it.
struct piece {
  struct dit_tensor_view view;
  int64_t sizes[DIT_MAX_DIMS], strides[DIT_MAX_DIMS];
};

/// NULL and tensors in the host's memory are argument errors.
diopiError_t piece_init(struct piece *piece, diopiConstTensorHandle_t tensor, const char *name);
void piece_copy(struct piece *piece, const struct piece *from);
/// Count elements again after sizes or strides changed.
void piece_update(struct piece *piece);
/// Elements `start`, `start` + `step`, ... (`length` of them) of a dimension; arguments were checked.
void piece_narrow(struct piece *piece, int dim, int64_t start, int64_t length, int64_t step);
void piece_drop(struct piece *piece, int dim);
/// A dimension of size 1 before `dim`.
void piece_insert(struct piece *piece, int dim);
/// -ndim..ndim-1 to 0..ndim-1.
diopiError_t piece_wrap_dim(const char *what, int64_t dim, int ndim, int *out);
/// The output must have exactly this shape.
diopiError_t piece_check_shape(const struct piece *out, int ndim, const int64_t *sizes);

/// out[..., j, ...] = in[..., map[j], ...] along a dimension of equal place; map[j] < 0 leaves the place alone.
diopiError_t piece_copy_mapped(diopiContextHandle_t ctx, const struct piece *out, const struct piece *in, int dim,
                               const int64_t *map);
diopiError_t piece_fill(diopiContextHandle_t ctx, const struct piece *out, const diopiScalar_t *value);

#endif

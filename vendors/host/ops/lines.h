/// Views with other dimensions: what reductions and operators along one dimension have in common.
#ifndef DIT_HOST_OPS_LINES_H
#define DIT_HOST_OPS_LINES_H

#include "frame.h"

/// A view with its own sizes and strides, so that dimensions can be changed.
struct shaped {
  struct dit_tensor_view view;
  int64_t sizes[DIT_MAX_DIMS], strides[DIT_MAX_DIMS];
};

/// A copy of `view`; a 0-d tensor becomes 1-d with one element when `least_one` is set. Do not copy the struct itself.
void shaped_init(struct shaped *shaped, const struct dit_tensor_view *view, bool least_one);
/// Append a dimension.
void shaped_push(struct shaped *shaped, int64_t size, int64_t stride);
/// Set numel and the contiguous and dense flags from sizes and strides.
void shaped_finish(struct shaped *shaped);
/// `out` of a reduction as a view with all dimensions of `in`, the reduced ones with size 1: with or without those
/// dimensions, as `out` has them. An argument error when the shape is neither, or not the one that `keepdim` (0 or 1;
/// -1: either) asks for.
diopiError_t shaped_keep(struct shaped *shaped, struct frame *frame, const char *name,
                         const struct dit_tensor_view *out, const struct dit_tensor_view *in, uint32_t mask,
                         int keepdim);
/// The dimensions outside `mask` first, those inside last, both in their order.
void shaped_move_last(struct shaped *shaped, const struct dit_tensor_view *view, uint32_t mask);
/// A complex tensor as real numbers with a last dimension of 2. False when there are too many dimensions.
bool shaped_as_real(struct shaped *shaped, const struct dit_tensor_view *view);

/// Row-major element = outer * length * inner: how a dimension cuts the tensor.
struct line_shape {
  int64_t outer, length, inner;
};
struct line_shape line_shape_get(const struct dit_tensor_view *view, int dim);

#endif

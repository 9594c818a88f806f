/// Views with other dimensions (see lines.h).
#include "lines.h"

#include <string.h>

void shaped_init(struct shaped *shaped, const struct dit_tensor_view *view, bool least_one) {
  shaped->view = *view;
  if (view->ndim > 0) {
    memcpy(shaped->sizes, view->sizes, sizeof(int64_t) * (size_t)view->ndim);
    memcpy(shaped->strides, view->strides, sizeof(int64_t) * (size_t)view->ndim);
  }
  shaped->view.sizes = shaped->sizes;
  shaped->view.strides = shaped->strides;
  if (view->ndim == 0 && least_one) {
    shaped_push(shaped, 1, 1);
  }
}

void shaped_push(struct shaped *shaped, int64_t size, int64_t stride) {
  shaped->sizes[shaped->view.ndim] = size;
  shaped->strides[shaped->view.ndim++] = stride;
}

void shaped_finish(struct shaped *shaped) {
  struct dit_tensor_view *view = &shaped->view;
  view->numel = 1;
  for (int dim = 0; dim < view->ndim; dim++) {
    view->numel *= shaped->sizes[dim];
  }
  view->flags &= (uint8_t) ~(DIT_TENSOR_CONTIGUOUS | DIT_TENSOR_DENSE);
  if (dit_shape_is_contiguous(view->ndim, shaped->sizes, shaped->strides)) {
    view->flags |= DIT_TENSOR_CONTIGUOUS | DIT_TENSOR_DENSE;
  } else if (dit_shape_is_dense(view->ndim, shaped->sizes, shaped->strides)) {
    view->flags |= DIT_TENSOR_DENSE;
  }
}

static bool matches(const struct dit_tensor_view *out, const struct dit_tensor_view *in, uint32_t mask, bool keep) {
  int next = 0;
  for (int dim = 0; dim < in->ndim; dim++) {
    const bool reduced = mask >> dim & 1;
    if (reduced && !keep) {
      continue;
    }
    if (next >= out->ndim || out->sizes[next++] != (reduced ? 1 : in->sizes[dim])) {
      return false;
    }
  }
  return next == out->ndim;
}

diopiError_t shaped_keep(struct shaped *shaped, struct frame *frame, const char *name,
                         const struct dit_tensor_view *out, const struct dit_tensor_view *in, uint32_t mask,
                         int keepdim) {
  const bool kept = matches(out, in, mask, true) && keepdim != 0;
  if (!kept && !(keepdim != 1 && matches(out, in, mask, false))) {
    return frame_fail(frame, diopiErrorOccurred,
                      "'%s' has %d dimensions and %lld elements; it must have the input's shape without the reduced "
                      "dimensions%s",
                      name, (int)out->ndim, (long long)out->numel,
                      keepdim == 1 ? " or with size 1 for them (keepdim)" : "");
  }
  shaped_init(shaped, out, false);
  shaped->view.ndim = 0;
  for (int dim = 0, next = 0; dim < in->ndim; dim++) {
    const bool reduced = mask >> dim & 1;
    shaped_push(shaped, reduced ? 1 : in->sizes[dim], reduced ? 0 : out->strides[next]);
    next += !reduced || kept;
  }
  return diopiSuccess;
}

void shaped_move_last(struct shaped *shaped, const struct dit_tensor_view *view, uint32_t mask) {
  shaped_init(shaped, view, false);
  shaped->view.ndim = 0;
  for (int pass = 0; pass < 2; pass++) {
    for (int dim = 0; dim < view->ndim; dim++) {
      if ((int)(mask >> dim & 1) == pass) {
        shaped_push(shaped, view->sizes[dim], view->strides[dim]);
      }
    }
  }
  shaped_finish(shaped);
}

bool shaped_as_real(struct shaped *shaped, const struct dit_tensor_view *view) {
  if (view->ndim >= DIT_MAX_DIMS) {
    return false;
  }
  shaped_init(shaped, view, false);
  for (int dim = 0; dim < view->ndim; dim++) {
    shaped->strides[dim] *= 2;
  }
  shaped_push(shaped, 2, 1);
  shaped->view.dtype = (int16_t)dit_dtype_get_real(view->dtype);
  shaped_finish(shaped);
  return true;
}

struct line_shape line_shape_get(const struct dit_tensor_view *view, int dim) {
  struct line_shape shape = {1, view->ndim > 0 ? view->sizes[dim] : 1, 1};
  for (int d = 0; d < view->ndim; d++) {
    if (d < dim) {
      shape.outer *= view->sizes[d];
    } else if (d > dim) {
      shape.inner *= view->sizes[d];
    }
  }
  return shape;
}

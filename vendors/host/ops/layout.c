/// Parts of tensors (see layout.h).
#include "layout.h"

#include <stdio.h>
#include <string.h>

#include "engine/cast.h"
#include "engine/index.h"
#include "engine/kernels.h"
#include "fail.h"

void layout_init(struct layout *layout, const struct dit_tensor_view *view) {
  layout->view = *view;
  if (view->ndim > 0) {
    memcpy(layout->sizes, view->sizes, sizeof(int64_t) * (size_t)view->ndim);
    memcpy(layout->strides, view->strides, sizeof(int64_t) * (size_t)view->ndim);
  }
  layout->view.sizes = layout->sizes;
  layout->view.strides = layout->strides;
}

void layout_finish(struct layout *layout) {
  struct dit_tensor_view *view = &layout->view;
  view->numel = 1;
  for (int dim = 0; dim < view->ndim; dim++) {
    view->numel *= layout->sizes[dim];
  }
  view->sizes = layout->sizes;
  view->strides = layout->strides;
  view->flags &= (uint8_t) ~(DIT_TENSOR_CONTIGUOUS | DIT_TENSOR_DENSE);
  if (dit_shape_is_contiguous(view->ndim, view->sizes, view->strides)) {
    view->flags |= DIT_TENSOR_CONTIGUOUS | DIT_TENSOR_DENSE;
  }
}

void layout_narrow(struct layout *layout, int dim, int64_t start, int64_t count, int64_t step) {
  const int64_t width = (int64_t)dit_dtype_get_size(layout->view.dtype);
  if (layout->view.data && count > 0) {
    layout->view.data = (char *)layout->view.data + start * layout->strides[dim] * width;
  }
  layout->sizes[dim] = count;
  layout->strides[dim] *= step;
  layout_finish(layout);
}

void layout_select(struct layout *layout, int dim, int64_t index) {
  layout_narrow(layout, dim, index, 1, 1);
  for (int i = dim + 1; i < layout->view.ndim; i++) {
    layout->sizes[i - 1] = layout->sizes[i];
    layout->strides[i - 1] = layout->strides[i];
  }
  layout->view.ndim--;
  layout_finish(layout);
}

void layout_raise(struct dit_tensor_view *view) {
  static const int64_t one = 1;
  if (view->ndim == 0) {
    view->ndim = 1;
    view->sizes = view->strides = &one;
  }
}

bool layout_is_same(const struct dit_tensor_view *a, const struct dit_tensor_view *b) {
  return a->data == b->data && a->dtype == b->dtype && frame_is_same_shape(a, b) &&
         (a->ndim == 0 || memcmp(a->strides, b->strides, sizeof(int64_t) * (size_t)a->ndim) == 0);
}

diopiError_t layout_copy(struct frame *frame, const struct dit_tensor_view *out, const struct dit_tensor_view *in) {
  struct dit_error err;
  err.message[0] = 0;
  return frame_get_code(frame, kernel_copy(frame->stream, out, in, &err), &err);
}

diopiError_t layout_zero(struct frame *frame, const struct dit_tensor_view *out) {
  struct dit_error err = {.message = ""};
  const struct dit_scalar zero = {.kind = DIT_SCALAR_INT, .v.i = 0};
  return frame_get_code(frame, kernel_fill(frame->stream, out, zero, &err), &err);
}

diopiError_t layout_check_dtype(struct frame *frame, const char *name, const struct dit_tensor_view *view,
                                const char *other, const struct dit_tensor_view *like) {
  if (view->dtype != like->dtype) {
    return frame_fail(frame, diopiErrorOccurred, "'%s' is %s; it must be %s, as '%s' is", name,
                      dit_dtype_get_name(view->dtype), dit_dtype_get_name(like->dtype), other);
  }
  return diopiSuccess;
}

const char *layout_print(int ndim, const int64_t *sizes) {
  static _Thread_local char texts[4][96];
  static _Thread_local unsigned turn;
  char *text = texts[turn++ % 4];
  size_t used = 1;
  strcpy(text, "[");
  for (int dim = 0; dim < ndim && used < sizeof texts[0] - 32; dim++) {
    used += (size_t)snprintf(text + used, sizeof texts[0] - used, dim ? ", %lld" : "%lld", (long long)sizes[dim]);
  }
  strcpy(text + used, "]");
  return text;
}

diopiError_t layout_check_sizes(struct frame *frame, const char *name, const struct dit_tensor_view *view, int ndim,
                                const int64_t *sizes) {
  if (view->ndim != ndim || (ndim > 0 && memcmp(view->sizes, sizes, sizeof(int64_t) * (size_t)ndim) != 0)) {
    return frame_fail(frame, diopiErrorOccurred, "'%s' has shape %s; it must be %s", name,
                      layout_print(view->ndim, view->sizes), layout_print(ndim, sizes));
  }
  return diopiSuccess;
}

diopiError_t layout_check_index(struct frame *frame, const char *name, const struct dit_tensor_view *index,
                                int64_t size, bool wrap) {
  int64_t low, high;
  if (!index_is_position(index->dtype)) {
    return frame_fail(frame, diopiDtypeNotSupported, "'%s' is %s; valid: int32, int64", name,
                      dit_dtype_get_name(index->dtype));
  }
  index_get_range(frame->stream, index, &low, &high);
  const int64_t least = wrap ? -size : 0;
  if (index->numel > 0 && (low < least || high >= size)) {
    return frame_fail_range(frame, "'%s' holds %lld; valid for a dimension of size %lld: %lld to %lld", name,
                            (long long)(low < least ? low : high), (long long)size, (long long)least,
                            (long long)size - 1);
  }
  return diopiSuccess;
}

diopiError_t layout_get_value(struct frame *frame, const char *name, struct dit_scalar scalar, int dtype, void *out) {
  if (scalar.kind == DIT_SCALAR_COMPLEX && dit_dtype_get_class(dtype) != DIT_DTYPE_CLASS_COMPLEX) {
    return frame_fail(frame, diopiErrorOccurred, "'%s' is complex; it does not fit %s", name,
                      dit_dtype_get_name(dtype));
  }
  if (!dit_scalar_fits(scalar, dtype)) {
    return frame_fail(frame, diopiErrorOccurred, "'%s' is %.17g, which %s cannot hold", name,
                      frame_scalar_to_double(scalar), dit_dtype_get_name(dtype));
  }
  memset(out, 0, 16);
  return kernel_store_scalar(scalar, dtype, out) ? diopiSuccess : frame_fail_dtype(frame, name, dtype);
}

diopiError_t layout_read_scalar(struct frame *frame, const char *name, const struct dit_tensor_view *view,
                                struct dit_scalar *out) {
  _Alignas(16) char element[16];
  if (view->ndim != 0 && (view->numel != 1 || view->ndim > 1)) {
    return frame_fail(frame, diopiErrorOccurred, "'%s' has shape %s; it must be one number, a 0-d tensor", name,
                      layout_print(view->ndim, view->sizes));
  }
  FRAME_TRY(layout_read_element(frame, view, element));
  switch (dit_dtype_get_class(view->dtype)) {
    case DIT_DTYPE_CLASS_COMPLEX:
      out->kind = DIT_SCALAR_COMPLEX;
      cast_block(DIT_DTYPE_C128, &out->v.c, view->dtype, element, 1);
      break;
    case DIT_DTYPE_CLASS_FLOAT:
      out->kind = DIT_SCALAR_DOUBLE;
      cast_block(DIT_DTYPE_F64, &out->v.d, view->dtype, element, 1);
      break;
    default:
      out->kind = view->dtype == DIT_DTYPE_BOOL ? DIT_SCALAR_BOOL : DIT_SCALAR_INT;
      cast_block(DIT_DTYPE_I64, &out->v.i, view->dtype, element, 1);
  }
  return diopiSuccess;
}

/// Rows of neighbouring elements as float, and where the rows of a strided tensor begin.
#ifndef DIT_HOST_INFER_ROW_H
#define DIT_HOST_INFER_ROW_H

#include "dit/dtype.h"
#include "dit/tensor.h"
#include "engine/cast.h"

/// Element number of row `row` (all dimensions but the last, counted row-major).
static inline int64_t row_find(const struct dit_tensor_view *view, int64_t row) {
  int64_t at = 0;
  for (int dim = view->ndim - 2; dim >= 0; dim--) {
    at += row % view->sizes[dim] * view->strides[dim];
    row /= view->sizes[dim];
  }
  return at;
}

static inline int64_t row_count(const struct dit_tensor_view *view) {
  const int64_t width = view->sizes[view->ndim - 1];
  return width > 0 ? view->numel / width : 0;
}

static inline char *row_at(const struct dit_tensor_view *view, int64_t element) {
  return (char *)view->data + element * dit_dtype_get_size(view->dtype);
}

/// `count` elements from `element` on: where they lie when they are float, else converted in `room`.
static inline const float *row_read(const struct dit_tensor_view *view, int64_t element, int64_t count, float *room) {
  const char *from = row_at(view, element);
  if (view->dtype == DIT_DTYPE_F32) {
    return (const float *)(const void *)from;
  }
  cast_block(DIT_DTYPE_F32, room, view->dtype, from, count);
  return room;
}

static inline void row_write(const struct dit_tensor_view *view, int64_t element, int64_t count, const float *from) {
  cast_block(view->dtype, row_at(view, element), DIT_DTYPE_F32, from, count);
}

/// Element `i` of an index tensor of one dimension, or of the row of one that begins at `element`.
static inline int64_t row_index(const struct dit_tensor_view *view, int64_t element) {
  return view->dtype == DIT_DTYPE_I32 ? ((const int32_t *)view->data)[element] : ((const int64_t *)view->data)[element];
}

/// Element `i` of a small floating tensor whose elements lie side by side.
static inline float row_number(const struct dit_tensor_view *view, int64_t i) {
  float room = 0;
  return row_read(view, i, 1, &room)[0];
}

#endif

/// Batches of matrices for the operators of linear algebra: the last two dimensions are a matrix, the others count
/// them.
#ifndef DIT_HOST_OPS_MATRIX_BATCH_H
#define DIT_HOST_OPS_MATRIX_BATCH_H

#include "frame.h"

#define DTYPES_LINALG (DTYPE_BIT(F32) | DTYPE_BIT(F64) | DTYPES_COMPLEX)

/// Do the tensor's last two sizes have these values (-1: any)?
static inline bool matrix_is(const struct dit_tensor_view *view, int64_t rows, int64_t columns) {
  return view->ndim >= 2 && (rows < 0 || view->sizes[view->ndim - 2] == rows) &&
         (columns < 0 || view->sizes[view->ndim - 1] == columns);
}

static inline int64_t matrix_get_rows(const struct dit_tensor_view *view) {
  return view->sizes[view->ndim - 2];
}

static inline int64_t matrix_get_columns(const struct dit_tensor_view *view) {
  return view->sizes[view->ndim - 1];
}

/// Matrices in the tensor; 0 when they have no elements.
static inline int64_t matrix_count(const struct dit_tensor_view *view) {
  int64_t count = 1;
  for (int dim = 0; dim < view->ndim - 2; dim++) {
    count *= view->sizes[dim];
  }
  return count;
}

/// The leading dimensions of a and b, broadcast against each other; false when they do not fit. `sizes` has room for
/// DIT_MAX_DIMS.
static inline bool matrix_broadcast(const struct dit_tensor_view *a, const struct dit_tensor_view *b, int *ndim,
                                    int64_t *sizes) {
  int n = 0;
  const bool fits = dit_shape_broadcast(a->ndim - 2, a->sizes, &n, sizes, NULL) == DIT_OK &&
                    dit_shape_broadcast(b->ndim - 2, b->sizes, &n, sizes, NULL) == DIT_OK;
  *ndim = n;
  return fits;
}

/// Has the tensor these leading dimensions?
static inline bool matrix_has_batch(const struct dit_tensor_view *view, int ndim, const int64_t *sizes) {
  bool same = view->ndim == ndim + 2;
  for (int dim = 0; same && dim < ndim; dim++) {
    same = view->sizes[dim] == sizes[dim];
  }
  return same;
}

/// Number of the matrix of `view` that stands for matrix `number` of the batch (ndim, sizes) it broadcasts to.
static inline int64_t matrix_find(const struct dit_tensor_view *view, int ndim, const int64_t *sizes, int64_t number) {
  int64_t place = 0, step = 1;
  for (int dim = ndim - 1, own = view->ndim - 3; dim >= 0; dim--, own--) {
    if (own >= 0) {
      place += view->sizes[own] == 1 ? 0 : number % sizes[dim] * step;
      step *= view->sizes[own];
    }
    number /= sizes[dim];
  }
  return place;
}

#endif

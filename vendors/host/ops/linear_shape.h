/// Shapes and dtypes of the linear layer, which the layer and its gradients check alike.
#ifndef DIT_HOST_OPS_LINEAR_SHAPE_H
#define DIT_HOST_OPS_LINEAR_SHAPE_H

#include "frame.h"
#include "product.h"

/// Shapes and dtypes of the layer; `o` is its result or the gradient of it.
static inline diopiError_t check_layer(struct frame *frame, const char *name, const struct dit_tensor_view *o,
                                       const struct dit_tensor_view *x, const struct dit_tensor_view *w,
                                       uint64_t dtypes) {
  FRAME_CHECK(frame, x->ndim >= 1, "'input' has no dimension; valid: at least 1");
  FRAME_CHECK(frame, w->ndim == 2, "'weight' has %d dimensions; valid: 2", (int)w->ndim);
  FRAME_CHECK(frame, x->sizes[x->ndim - 1] == w->sizes[1], "'input' ends with %lld elements; 'weight' has %lld columns",
              (long long)x->sizes[x->ndim - 1], (long long)w->sizes[1]);
  FRAME_CHECK(frame, o->ndim == x->ndim, "'%s' has %d dimensions; 'input' has %d", name, (int)o->ndim, (int)x->ndim);
  for (int dim = 0; dim < x->ndim; dim++) {
    const int64_t size = dim == x->ndim - 1 ? w->sizes[0] : x->sizes[dim];
    FRAME_CHECK(frame, o->sizes[dim] == size, "'%s' has size %lld in dimension %d; it must be %lld", name,
                (long long)o->sizes[dim], dim, (long long)size);
  }
  FRAME_CHECK(frame, x->dtype == w->dtype && x->dtype == o->dtype,
              "'input' is %s, 'weight' %s and '%s' %s; they must have one dtype", dit_dtype_get_name(x->dtype),
              dit_dtype_get_name(w->dtype), name, dit_dtype_get_name(o->dtype));
  return frame_has_dtype(dtypes, x->dtype) ? diopiSuccess : frame_fail_dtype(frame, "input", x->dtype);
}

/// The batch of a tensor with rows in the dimension before the last.
static inline void set_batch(struct product *p, const struct dit_tensor_view *x) {
  *p = (struct product){.dtype = x->dtype, .ndim = x->ndim > 2 ? x->ndim - 2 : 0};
  for (int dim = 0; dim < p->ndim; dim++) {
    p->sizes[dim] = x->sizes[dim];
  }
}

static inline int get_row(const struct dit_tensor_view *x) {
  return x->ndim > 1 ? x->ndim - 2 : -1;
}

#endif

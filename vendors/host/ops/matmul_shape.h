/// Shapes and dtypes of matrix products: what the products and the gradient of matmul check alike.
#ifndef DIT_HOST_OPS_MATMUL_SHAPE_H
#define DIT_HOST_OPS_MATMUL_SHAPE_H

#include "frame.h"
#include "product.h"

#define PRODUCT_DTYPES (DTYPES_REAL | DTYPES_COMPLEX)

static inline diopiError_t check_dtypes(struct frame *frame, const char *const *names,
                                        const struct dit_tensor_view *const *views, int count, uint64_t set) {
  for (int i = 0; i < count; i++) {
    if (views[i]->dtype != views[0]->dtype) {
      return frame_fail(frame, diopiErrorOccurred, "'%s' is %s and '%s' is %s; all operands have one dtype", names[0],
                        dit_dtype_get_name(views[0]->dtype), names[i], dit_dtype_get_name(views[i]->dtype));
    }
  }
  return frame_has_dtype(set, views[0]->dtype) ? diopiSuccess : frame_fail_dtype(frame, names[0], views[0]->dtype);
}

/// Where the operands of matmul have their rows and columns, and the batch they broadcast to.
struct matmul_shape {
  struct product product;
  int a_row, b_column, out_row, out_column;  ///< dimensions; -1 where a 1-d operand has none
};

static inline int max_int(int a, int b) {
  return a > b ? a : b;
}

/// Sizes of the batch and of the result; an argument error where they do not fit. `o` is the result or its gradient.
static inline diopiError_t set_shape(struct frame *frame, const char *name, const struct dit_tensor_view *o,
                                     const struct dit_tensor_view *a, const struct dit_tensor_view *b,
                                     struct matmul_shape *shape) {
  struct product *p = &shape->product;
  *shape = (struct matmul_shape){.product = {.dtype = a->dtype}};
  FRAME_CHECK(frame, a->ndim > 0 && b->ndim > 0, "'input' has %d and 'other' %d dimensions; valid: at least 1",
              (int)a->ndim, (int)b->ndim);
  const int a_batch = max_int(a->ndim - 2, 0), b_batch = max_int(b->ndim - 2, 0);
  shape->a_row = a->ndim > 1 ? a->ndim - 2 : -1;
  shape->b_column = b->ndim > 1 ? b->ndim - 1 : -1;
  const int64_t depth = a->sizes[a->ndim - 1], rows = b->sizes[b->ndim > 1 ? b->ndim - 2 : 0];
  FRAME_CHECK(frame, depth == rows, "'input' ends with %lld elements and 'other' has %lld rows; they must be equal",
              (long long)depth, (long long)rows);
  p->ndim = max_int(a_batch, b_batch);
  const int ndim = p->ndim + (shape->a_row >= 0) + (shape->b_column >= 0);
  shape->out_row = shape->a_row >= 0 ? p->ndim : -1;
  shape->out_column = shape->b_column >= 0 ? ndim - 1 : -1;
  FRAME_CHECK(frame, o->ndim == ndim, "'%s' has %d dimensions; the product has %d", name, (int)o->ndim, ndim);
  for (int i = 0; i < p->ndim; i++) {
    const int64_t x = i < p->ndim - a_batch ? 1 : a->sizes[i - p->ndim + a_batch];
    const int64_t y = i < p->ndim - b_batch ? 1 : b->sizes[i - p->ndim + b_batch];
    FRAME_CHECK(frame, x == y || x == 1 || y == 1, "sizes %lld and %lld in batch dimension %d do not broadcast",
                (long long)x, (long long)y, i);
    p->sizes[i] = x == 1 ? y : x;
    FRAME_CHECK(frame, o->sizes[i] == p->sizes[i], "'%s' has size %lld in dimension %d; the product has %lld", name,
                (long long)o->sizes[i], i, (long long)p->sizes[i]);
  }
  FRAME_CHECK(frame, shape->a_row < 0 || o->sizes[shape->out_row] == a->sizes[shape->a_row],
              "'%s' has another number of rows than 'input'", name);
  FRAME_CHECK(frame, shape->b_column < 0 || o->sizes[shape->out_column] == b->sizes[shape->b_column],
              "'%s' has another number of columns than 'other'", name);
  return diopiSuccess;
}

static inline void set_operands(struct matmul_shape *shape, const struct dit_tensor_view *o,
                                const struct dit_tensor_view *a, const struct dit_tensor_view *b) {
  struct product *p = &shape->product;
  product_set(p, &p->out, o, shape->out_row, shape->out_column);
  product_set(p, &p->a, a, shape->a_row, a->ndim - 1);
  product_set(p, &p->b, b, b->ndim > 1 ? b->ndim - 2 : 0, shape->b_column);
}

#endif

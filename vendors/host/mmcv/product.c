/// Products of matrices (see product.h).
#include "product.h"

#include <string.h>

#include "engine/kernels.h"

static void set_view(struct dit_tensor_view *view, int dtype, const void *data, int64_t rows, int64_t columns,
                     bool turned, int64_t *sizes, int64_t *strides) {
  sizes[0] = 1;
  sizes[1] = rows;
  sizes[2] = columns;
  strides[0] = rows * columns;
  strides[1] = turned ? 1 : columns;
  strides[2] = turned ? rows : 1;
  *view = (struct dit_tensor_view){.data = (void *)data,
                                   .sizes = sizes,
                                   .strides = strides,
                                   .numel = rows * columns,
                                   .ndim = 3,
                                   .dtype = (int16_t)dtype,
                                   .flags = DIT_TENSOR_ON_DEVICE | DIT_TENSOR_DENSE};
  view->flags |= turned ? 0 : DIT_TENSOR_CONTIGUOUS;
}

void product_multiply(int dtype, int64_t m, int64_t n, int64_t k, const void *a, bool turn_a, const void *b,
                      bool turn_b, void *c) {
  struct dit_tensor_view x, y, out;
  int64_t sizes[3][3], strides[3][3];
  if (m == 0 || n == 0 || k == 0) {
    memset(c, 0, (size_t)(m * n) * dit_dtype_get_size(dtype));
    return;
  }
  set_view(&x, dtype, a, m, k, turn_a, sizes[0], strides[0]);
  set_view(&y, dtype, b, k, n, turn_b, sizes[1], strides[1]);
  set_view(&out, dtype, c, m, n, false, sizes[2], strides[2]);
  const enum dit_status status = kernel_gemm(NULL, &out, &x, &y, NULL, 1, 0, NULL);
  (void)status;  // float and double are always there
}

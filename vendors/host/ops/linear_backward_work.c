/// The gradients of the linear layer on the host (linear_backward.h): rows as one dense matrix.
#include "dense.h"
#include "engine/kernels.h"
#include "linear_backward.h"
#include "product.h"

diopiError_t linear_run_weight(struct linear_task *task) {
  struct dense to = {0}, grad = {0}, from = {0};
  struct dit_error err = {.message = ""};
  enum dit_status status = DIT_ERR_NOMEM;
  const struct dit_tensor_view *w = &task->grad_w;
  const int work = w->dtype;  // one product: the kernel itself widens the half types, and rounds once
  const int64_t rows = w->sizes[0] > 0 ? task->grad.numel / w->sizes[0] : 0;
  if (rows == 0 || w->numel == 0) {
    status = kernel_fill(NULL, w, (struct dit_scalar){.kind = DIT_SCALAR_INT}, &err);
    return frame_get_code(task->frame, status, &err);
  }
  if (dense_reserve(&to, w, work) && dense_read(&grad, &task->grad, work) && dense_read(&from, &task->x, work)) {
    struct product p = {.dtype = work};
    const int64_t n = w->sizes[0], k = w->sizes[1];
    p.out = (struct product_matrix){.data = to.data, .sizes = {n, k}, .strides = {k, 1}};
    p.a = (struct product_matrix){.data = grad.data, .sizes = {n, rows}, .strides = {1, n}};
    p.b = (struct product_matrix){.data = from.data, .sizes = {rows, k}, .strides = {k, 1}};
    status = product_sum(NULL, &p, &err);
    dense_store(&to);
  }
  dense_close(&to);
  dense_close(&grad);
  dense_close(&from);
  return frame_get_code(task->frame, status, &err);
}

static diopiError_t run_backward(void *context) {
  return linear_add_gradients(context);
}

diopiError_t linear_run_backward(struct linear_task *task) {
  task->stream = NULL;
  return frame_run(task->frame, run_backward, task);
}

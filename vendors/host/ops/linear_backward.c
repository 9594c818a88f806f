/// The gradients of the linear layer on the host: grad_input = grad_output @ weight, grad_weight = grad_output^T @
/// input, grad_bias = sum of grad_output over all but the last dimension; a gradient that is not wanted is NULL.
#include "dense.h"
#include "engine/kernels.h"
#include "engine/reduce.h"
#include "linear_shape.h"

struct linear_task {
  struct frame *frame;
  struct dit_tensor_view grad, x, w, grad_x, grad_w, grad_b;
};

/// Rows of a tensor as one 2-d view when they follow each other, for a gradient that adds over all of them.
static diopiError_t run_grad_weight(struct linear_task *task) {
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
    status = product_sum(&p, &err);
    dense_store(&to);
  }
  dense_close(&to);
  dense_close(&grad);
  dense_close(&from);
  return frame_get_code(task->frame, status, &err);
}

static diopiError_t run_grad_bias(struct linear_task *task) {
  const int ndim = task->grad.ndim;
  struct dit_error err = {.message = ""};
  struct dit_tensor_view o = task->grad_b;
  int64_t sizes[DIT_MAX_DIMS], strides[DIT_MAX_DIMS];
  for (int dim = 0; dim < ndim; dim++) {
    sizes[dim] = dim == ndim - 1 ? o.sizes[0] : 1;
    strides[dim] = dim == ndim - 1 ? task->grad_b.strides[0] : 0;
  }
  o.ndim = ndim;
  o.sizes = sizes;
  o.strides = strides;
  o.flags &= (uint8_t) ~(DIT_TENSOR_CONTIGUOUS | DIT_TENSOR_DENSE);
  const uint32_t mask = (1u << (ndim - 1)) - 1;
  enum dit_status status = mask ? reduce_launch(NULL, REDUCE_SUM, 0, &o, &task->grad, mask, &err)
                                : kernel_copy(NULL, &task->grad_b, &task->grad, &err);
  return frame_get_code(task->frame, status, &err);
}

static diopiError_t run_backward(void *context) {
  struct linear_task *task = context;
  struct dit_error err = {.message = ""};
  if (task->grad_x.handle) {
    struct product p;
    set_batch(&p, &task->x);
    product_set(&p, &p.out, &task->grad_x, get_row(&task->grad_x), task->grad_x.ndim - 1);
    product_set(&p, &p.a, &task->grad, get_row(&task->grad), task->grad.ndim - 1);
    product_set(&p, &p.b, &task->w, 0, 1);
    FRAME_TRY(frame_get_code(task->frame, product_run(NULL, &p, &err), &err));
  }
  if (task->grad_w.handle) {
    FRAME_TRY(run_grad_weight(task));
  }
  return task->grad_b.handle && task->grad_b.numel ? run_grad_bias(task) : diopiSuccess;
}

diopiError_t diopiLinearBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                 diopiTensorHandle_t grad_weight, diopiTensorHandle_t grad_bias,
                                 diopiConstTensorHandle_t grad_output, diopiConstTensorHandle_t input,
                                 diopiConstTensorHandle_t weight) {
  struct frame frame;
  struct linear_task task;
  FRAME_BEGIN(&frame, ctx);
  FRAME_TAKE_OPTIONAL(&frame, grad_input, &task.grad_x);
  FRAME_TAKE_OPTIONAL(&frame, grad_weight, &task.grad_w);
  FRAME_TAKE_OPTIONAL(&frame, grad_bias, &task.grad_b);
  FRAME_TAKE(&frame, grad_output, &task.grad);
  FRAME_TAKE(&frame, input, &task.x);
  FRAME_TAKE(&frame, weight, &task.w);
  FRAME_TRY(check_layer(&frame, "grad_output", &task.grad, &task.x, &task.w, DTYPES_FLOAT));
  FRAME_CHECK(&frame, !task.grad_x.handle || frame_is_same_shape(&task.grad_x, &task.x),
              "'grad_input' has another shape than 'input'");
  FRAME_CHECK(&frame, !task.grad_w.handle || frame_is_same_shape(&task.grad_w, &task.w),
              "'grad_weight' has another shape than 'weight'");
  FRAME_CHECK(&frame, !task.grad_b.handle || (task.grad_b.ndim == 1 && task.grad_b.sizes[0] == task.w.sizes[0]),
              "'grad_bias' must have one dimension of size %lld", (long long)task.w.sizes[0]);
  const struct dit_tensor_view *inputs[] = {&task.grad, &task.x, &task.w, &task.grad_x, &task.grad_w};
  const struct dit_tensor_view *const results[] = {&task.grad_x, &task.grad_w, &task.grad_b};
  static const char *const names[] = {"grad_input", "grad_weight", "grad_bias"};
  for (int i = 0; i < 3; i++) {
    if (results[i]->handle) {
      FRAME_CHECK(&frame, results[i]->dtype == task.x.dtype, "'%s' is %s; it must be %s like 'input'", names[i],
                  dit_dtype_get_name(results[i]->dtype), dit_dtype_get_name(task.x.dtype));
      FRAME_TRY(frame_check_output(&frame, names[i], results[i], inputs, 3 + i, false));
    }
  }
  task.frame = &frame;
  return frame_run(&frame, run_backward, &task);
}

/// The gradients of the linear layer: grad_input = grad_output @ weight, grad_weight = grad_output^T @
/// input, grad_bias = sum of grad_output over all but the last dimension; a gradient that is not wanted is NULL.
#include "linear_backward.h"

#include "engine/kernels.h"
#include "engine/reduce.h"
#include "linear_shape.h"

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
  enum dit_status status = mask ? reduce_launch(task->stream, REDUCE_SUM, 0, &o, &task->grad, mask, &err)
                                : kernel_copy(task->stream, &task->grad_b, &task->grad, &err);
  return frame_get_code(task->frame, status, &err);
}

diopiError_t linear_add_gradients(struct linear_task *task) {
  struct dit_error err = {.message = ""};
  if (task->grad_x.handle) {
    struct product p;
    set_batch(&p, &task->x);
    product_set(&p, &p.out, &task->grad_x, get_row(&task->grad_x), task->grad_x.ndim - 1);
    product_set(&p, &p.a, &task->grad, get_row(&task->grad), task->grad.ndim - 1);
    product_set(&p, &p.b, &task->w, 0, 1);
    FRAME_TRY(frame_get_code(task->frame, product_run(task->stream, &p, &err), &err));
  }
  if (task->grad_w.handle) {
    FRAME_TRY(linear_run_weight(task));
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
  return linear_run_backward(&task);
}

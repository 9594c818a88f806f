/// The gradient of matmul: it sums over the dimensions that were broadcast (see matmul.c).
#include "matmul_backward.h"

struct product matmul_get_gradient(const struct matmul_task *task, bool of_b, const struct dit_tensor_view *target,
                                   const struct dit_tensor_view *grad, const struct dit_tensor_view *x) {
  struct matmul_shape shape = task->shape;
  struct product *p = &shape.product;
  p->dtype = target->dtype;
  if (of_b) {
    set_operands(&shape, grad, x, target);
    const struct product_matrix result = p->b;
    p->b = p->out;
    p->out = result;
    product_transpose(&p->a);
  } else {
    set_operands(&shape, grad, target, x);
    const struct product_matrix result = p->a;
    p->a = p->out;
    p->out = result;
    product_transpose(&p->b);
  }
  return shape.product;
}

diopiError_t diopiMatmulBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                 diopiTensorHandle_t grad_other, diopiConstTensorHandle_t grad_out,
                                 diopiConstTensorHandle_t input, diopiConstTensorHandle_t other) {
  struct frame frame;
  struct matmul_task task;
  FRAME_BEGIN(&frame, ctx);
  FRAME_TAKE_OPTIONAL(&frame, grad_input, &task.grad_a);
  FRAME_TAKE_OPTIONAL(&frame, grad_other, &task.grad_b);
  FRAME_TAKE(&frame, grad_out, &task.grad);
  FRAME_TAKE(&frame, input, &task.a);
  FRAME_TAKE(&frame, other, &task.b);
  static const char *const names[] = {"input", "other", "grad_out"};
  const struct dit_tensor_view *views[] = {&task.a, &task.b, &task.grad, &task.grad_a};
  FRAME_TRY(check_dtypes(&frame, names, views, 3, DTYPES_FLOAT));
  FRAME_TRY(set_shape(&frame, "grad_out", &task.grad, &task.a, &task.b, &task.shape));
  const struct dit_tensor_view *const results[] = {&task.grad_a, &task.grad_b};
  static const char *const labels[] = {"grad_input", "grad_other"};
  for (int i = 0; i < 2; i++) {
    if (results[i]->handle) {
      FRAME_CHECK(&frame, frame_is_same_shape(results[i], views[i]) && results[i]->dtype == views[i]->dtype,
                  "'%s' has another shape or dtype than '%s'", labels[i], names[i]);
      FRAME_TRY(frame_check_output(&frame, labels[i], results[i], views, 3 + i, false));
    }
  }
  task.frame = &frame;
  return matmul_run_backward(&task);
}

/// The gradient of matmul on the host: it sums over the dimensions that were broadcast (see matmul.c).
#include "dense.h"
#include "engine/kernels.h"
#include "matmul_shape.h"

struct backward_task {
  struct frame *frame;
  struct matmul_shape shape;
  struct dit_tensor_view grad, a, b, grad_a, grad_b;
};

/// A view over a dense copy; `room` holds its strides.
static struct dit_tensor_view get_copy(const struct dense *dense, int64_t *room) {
  struct dit_tensor_view view = dense->view;
  dit_shape_set_contiguous(view.ndim, view.sizes, room);
  view.data = dense->data;
  view.dtype = (int16_t)dense->dtype;
  view.strides = room;
  return view;
}

/// grad_a = grad @ b^T, or with `of_b` grad_b = a^T @ grad; x is the other operand.
static enum dit_status add_gradient(const struct backward_task *task, bool of_b, const struct dit_tensor_view *target,
                                    const struct dit_tensor_view *grad, const struct dit_tensor_view *x,
                                    struct dit_error *err) {
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
  if (grad->numel == 0) {
    return kernel_fill(NULL, target, (struct dit_scalar){.kind = DIT_SCALAR_INT}, err);
  }
  return product_sum(p, err);
}

static diopiError_t run_gradient(struct backward_task *task, bool of_b, const struct dit_tensor_view *target,
                                 const struct dit_tensor_view *x) {
  struct dense to = {0}, grad = {0}, from = {0};
  struct dit_error err = {.message = ""};
  enum dit_status status = DIT_ERR_NOMEM;
  const int work = dense_get_work(target->dtype);
  if (!target->handle || target->numel == 0) {
    return diopiSuccess;
  }
  if (work == target->dtype) {
    return frame_get_code(task->frame, add_gradient(task, of_b, target, &task->grad, x, &err), &err);
  }
  if (dense_reserve(&to, target, work) && dense_read(&grad, &task->grad, work) && dense_read(&from, x, work)) {
    int64_t rooms[3][DIT_MAX_DIMS];
    const struct dit_tensor_view wide = get_copy(&to, rooms[0]), wide_grad = get_copy(&grad, rooms[1]),
                                 wide_x = get_copy(&from, rooms[2]);
    status = add_gradient(task, of_b, &wide, &wide_grad, &wide_x, &err);
    if (status == DIT_OK) {
      dense_store(&to);
    }
  }
  dense_close(&to);
  dense_close(&grad);
  dense_close(&from);
  return frame_get_code(task->frame, status, &err);
}

static diopiError_t run_backward(void *context) {
  struct backward_task *task = context;
  FRAME_TRY(run_gradient(task, false, &task->grad_a, &task->b));
  return run_gradient(task, true, &task->grad_b, &task->a);
}

diopiError_t diopiMatmulBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                 diopiTensorHandle_t grad_other, diopiConstTensorHandle_t grad_out,
                                 diopiConstTensorHandle_t input, diopiConstTensorHandle_t other) {
  struct frame frame;
  struct backward_task task;
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
  return frame_run(&frame, run_backward, &task);
}

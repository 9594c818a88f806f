/// The gradients of matmul on the host (matmul_backward.h): half types are widened, so that sums are rounded once.
#include "dense.h"
#include "engine/kernels.h"
#include "matmul_backward.h"

/// A view over a dense copy; `room` holds its strides.
static struct dit_tensor_view get_copy(const struct dense *dense, int64_t *room) {
  struct dit_tensor_view view = dense->view;
  dit_shape_set_contiguous(view.ndim, view.sizes, room);
  view.data = dense->data;
  view.dtype = (int16_t)dense->dtype;
  view.strides = room;
  return view;
}

static enum dit_status add_gradient(const struct matmul_task *task, bool of_b, const struct dit_tensor_view *target,
                                    const struct dit_tensor_view *grad, const struct dit_tensor_view *x,
                                    struct dit_error *err) {
  struct product product = matmul_get_gradient(task, of_b, target, grad, x);
  if (grad->numel == 0) {
    return kernel_fill(NULL, target, (struct dit_scalar){.kind = DIT_SCALAR_INT}, err);
  }
  return product_sum(NULL, &product, err);
}

static diopiError_t run_gradient(struct matmul_task *task, bool of_b, const struct dit_tensor_view *target,
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
  struct matmul_task *task = context;
  FRAME_TRY(run_gradient(task, false, &task->grad_a, &task->b));
  return run_gradient(task, true, &task->grad_b, &task->a);
}

diopiError_t matmul_run_backward(struct matmul_task *task) {
  return frame_run(task->frame, run_backward, task);
}
